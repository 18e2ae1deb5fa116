"""Converts the driver's stamps to the monotonic clock. Pure logic: clocks are parameters.

NVML calls its stamps "CPU timestamps" in microseconds and does not document their clock. Boards
were seen to count from the epoch and from boot, so the clock is detected: the one that is within
5 s of the newest stamp.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Final

from gpumon.core.clock import NS_PER_S, Clock

US: Final = 1_000
"""Nanoseconds of a microsecond."""

NEAR_NS: Final = 5 * NS_PER_S
"""A clock fits if it is this near to the newest stamp."""

AHEAD_NS: Final = NS_PER_S
"""A stamp may lie this far in the future: the driver ends a window by its own clock."""

_SET_NS: Final = 20_000_000
"""A clock that moved by more than this between two ticks was set; by less, it was slewed."""

_REMEMBER_NS: Final = 300 * NS_PER_S
"""How long stamps from before a jump may still be in a ring: idle boards keep 120 s."""

_ESTIMATE_TICKS: Final = 60
_MISSES_BEFORE_DOUBT: Final = 3
_GOOD_PAIR_NS: Final = 20_000


class StampDomain(Enum):
    """The clock that the stamps count."""

    REALTIME = "realtime"
    MONOTONIC = "monotonic"
    BOOTTIME = "boottime"
    ESTIMATED = "estimated"


_CLOCK_IDS: Final = {
    StampDomain.REALTIME: time.CLOCK_REALTIME,
    StampDomain.MONOTONIC: time.CLOCK_MONOTONIC,
    StampDomain.BOOTTIME: time.CLOCK_BOOTTIME,
}

Entry = tuple[int, float]
"""A stamp in the driver's microseconds, and a value."""


class StampClock:
    """How far the driver's stamps are ahead of CLOCK_MONOTONIC.

    Call ``tick`` before the rings are drained and ``learn`` after; then a stamp in microseconds
    is ``stamp * 1000 - offset_ns`` on the monotonic clock.

    Attributes:
        domain: The clock found; ``None`` before the first usable stamp.
        offset_ns: Stamp minus monotonic, in nanoseconds; ``None`` while no stamp can be placed
            in time.
        ticked_at_ns: CLOCK_MONOTONIC of the last tick.
        silence_ns: Time between that tick and the one before; 0 at the first.
        was_set: Whether rings could still hold stamps from before the clock was set.
    """

    def __init__(
        self, clock: Clock, read_clock_ns: Callable[[int], int] = time.clock_gettime_ns
    ) -> None:
        self.domain: StampDomain | None = None
        self.offset_ns: int | None = None
        self.ticked_at_ns = 0
        self._clock_id: int | None = None
        self._monotonic_ns = clock.monotonic_ns
        self._read_clock_ns = read_clock_ns
        self.silence_ns = 0
        self._misses = 0
        self._seen_offsets: deque[int] = deque(maxlen=_ESTIMATE_TICKS)
        self._jump_ns = 0
        self._jumped_after_ns = 0
        self._forget_at_ns = 0
        self.was_set = False

    def tick(self) -> int:
        """Return by how many nanoseconds the stamps' clock was set since the last tick."""
        now_ns = self._monotonic_ns()
        offset_ns = self.offset_ns
        if self._clock_id is not None and offset_ns is not None:
            self.offset_ns = self._paired_offset_ns(self._clock_id)
        before_ns, self.ticked_at_ns = self.ticked_at_ns or now_ns, now_ns
        self.silence_ns = now_ns - before_ns
        self.was_set = now_ns < self._forget_at_ns
        moved_ns = (self.offset_ns or 0) - (offset_ns or 0)
        if -_SET_NS < moved_ns < _SET_NS:
            return 0
        self._jump_ns, self._jumped_after_ns = moved_ns, before_ns
        self._forget_at_ns = now_ns + _REMEMBER_NS
        self.was_set = True
        return moved_ns

    def straightened(self, entries: Sequence[Entry], now_ns: int) -> list[Entry]:
        """Return the entries with stamps from before the jump moved to the clock as it is now.

        They are in the order of the ring: where a stamp is from before the jump, because it is
        impossible after it or the next one is smaller, so are all that precede it.
        """
        offset_ns, jump_us = self.offset_ns or 0, self._jump_ns // US
        earliest_us = -(-(self._jumped_after_ns + offset_ns) // US)
        latest_us = (now_ns + AHEAD_NS + offset_ns) // US
        old = len(entries)
        next_us = latest_us
        while old and earliest_us <= entries[old - 1][0] <= min(next_us, latest_us):
            old -= 1
            next_us = entries[old][0]
        moved = [(stamp_us + jump_us, value) for stamp_us, value in entries[:old]]
        return [*moved, *entries[old:]]

    def learn(self, newest_us: Iterable[int], now_ns: int) -> None:
        """Detect or check the clock of the stamps.

        ``newest_us`` has the newest stamp of each ring that had a new entry.
        """
        stamps_us = list(newest_us)
        if not stamps_us:
            return
        if any(self._fits(stamp_us, now_ns) for stamp_us in stamps_us):
            self._misses = 0
            if self.domain is StampDomain.ESTIMATED:
                self._estimate(stamps_us, now_ns)
            return
        found = self._nearest_clock(stamps_us, now_ns)
        if found is not None:
            self.domain, self.offset_ns = found
            self._clock_id = _CLOCK_IDS[self.domain]
            self._misses = 0
            return
        self._misses += 1
        # Old entries of a ring without new ones while idle fit no clock: the first drain alone
        # proves nothing, and neither does one bad stamp.
        if self._misses >= (2 if self.domain is None else _MISSES_BEFORE_DOUBT):
            self._seen_offsets.clear()
            self.domain, self._clock_id = StampDomain.ESTIMATED, None
            self._estimate(stamps_us, now_ns)
            self._misses = 0

    def _fits(self, stamp_us: int, now_ns: int) -> bool:
        if self.offset_ns is None:
            return False
        age_ns = now_ns - (stamp_us * US - self.offset_ns)
        return -AHEAD_NS <= age_ns <= NEAR_NS + self.silence_ns

    def _nearest_clock(self, stamps_us: list[int], now_ns: int) -> tuple[StampDomain, int] | None:
        offsets = [
            (domain, self._paired_offset_ns(number)) for domain, number in _CLOCK_IDS.items()
        ]
        distance_ns, _, domain, offset_ns = min(
            (abs(now_ns + offset_ns - stamp_us * US), rank, domain, offset_ns)
            for rank, (domain, offset_ns) in enumerate(offsets)
            for stamp_us in stamps_us
        )
        return (domain, offset_ns) if distance_ns <= NEAR_NS else None

    def _paired_offset_ns(self, clock_id: int) -> int:
        if clock_id == time.CLOCK_MONOTONIC:
            return 0
        best_width_ns, offset_ns = math.inf, 0
        for _ in range(3):
            before_ns = self._monotonic_ns()
            stamp_ns = self._read_clock_ns(clock_id)
            width_ns = self._monotonic_ns() - before_ns
            if width_ns < _GOOD_PAIR_NS:
                return stamp_ns - before_ns - width_ns // 2
            if width_ns < best_width_ns:
                best_width_ns, offset_ns = width_ns, stamp_ns - before_ns - width_ns // 2
        return offset_ns

    def _estimate(self, stamps_us: list[int], now_ns: int) -> None:
        """Use the offset of the tick whose stamp arrived soonest after it was made."""
        self._seen_offsets.append(max(stamps_us) * US - now_ns)
        self.offset_ns = max(self._seen_offsets)
