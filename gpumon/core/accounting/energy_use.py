"""What a GPU's energy was used for: work, lost time, or time out of use.

The board counts all of its energy in one counter, which is read seldom. What it draws while it
works and while it idles is known from readings of its power that lie wholly in busy or in idle
samples. By these two figures each increase of the counter is split between busy and idle time; the
idle part is split further once the idle time has a cause. Until then it is pending.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.clock import NS_PER_S, seconds
from gpumon.core.phase import IdleCause
from gpumon.core.sample import BusySample, GpuSample

_IDLE_UP_TO: Final = 0.05
_BUSY_FROM: Final = 0.95
_LEAST_COVERED: Final = 0.5
"""Of a span, if what is known of it is to count for all of it."""
_READINGS: Final = 32
"""Over so many readings of power the mean is taken, newer ones counting more."""
_LONGEST_READING_NS: Final = 2 * NS_PER_S
"""A reading of power is a mean of a second at most."""
_LONGEST_LAG_NS: Final = 120 * NS_PER_S
"""The energy of settled time comes within a minute; more without is a difference of rounding."""
_MOST_KEPT: Final = 1_024
"""Windows and readings kept until the energy of their time is known: two to three minutes."""


class EnergyUse(NamedTuple):
    """Joules since observation began; they add up to the increase of the board's counter.

    Attributes:
        lost_joules: Used in idle time that was lost.
        pending_joules: Of time whose use is not known yet, or was not observed.
    """

    busy_joules: float = 0.0
    lost_joules: float = 0.0
    not_in_use_joules: float = 0.0
    pending_joules: float = 0.0


NO_ENERGY: Final = EnergyUse()


@dataclass(frozen=True, slots=True)
class _Reading:
    """The mean power of a stretch of time, in watts."""

    start_ns: int
    end_ns: int
    watts: float


@dataclass(slots=True)
class _Mean:
    """A mean of the last readings; ``None`` before the first."""

    value: float | None = None
    _count: int = 0

    def add(self, watts: float) -> None:
        self._count = min(self._count + 1, _READINGS)
        before = watts if self.value is None else self.value
        self.value = before + (watts - before) / self._count


@dataclass(slots=True)
class _Span:
    """Energy of some time, and how much of that the GPU was busy and idle."""

    joules: float = 0.0
    busy_ns: float = 0.0
    idle_ns: float = 0.0


class EnergyLedger:
    """One GPU's ``EnergyUse``."""

    def __init__(self) -> None:
        self._windows: deque[BusySample] = deque(maxlen=_MOST_KEPT)
        self._readings: deque[_Reading] = deque(maxlen=_MOST_KEPT)
        self._counted: tuple[int, float] | None = None  # time and joules that are in a span
        self._newest: tuple[int, float] | None = None
        self._reading_at_ns = 0
        self._busy_watts, self._idle_watts = _Mean(), _Mean()
        self._unsplit, self._unobserved_joules = _Span(), 0.0
        self._use = NO_ENERGY
        self._idle_joules = self._idle_ns = 0.0  # not attributed to a use yet
        self._settled_ns = (0, 0)
        self._lost_ns = self._unused_ns = 0.0  # idle time with a cause, and without energy

    def observe(self, sample: GpuSample, at_ns: int) -> None:
        """Add the sample of one tick.

        Args:
            sample: Its energy may be that of an earlier tick.
            at_ns: CLOCK_MONOTONIC of the tick.
        """
        self._windows.extend(sample.busy)
        self._note_power(sample, at_ns)
        joules = sample.energy_joules
        if joules is not None and (self._newest is None or joules != self._newest[1]):
            self._newest = at_ns, joules
            if self._counted is None or joules < self._counted[1]:
                self._counted = self._newest
        self._follow()

    def settle(self, totals: GpuTotals) -> EnergyUse:
        """Split the energy of idle time by what that time was for; return all uses."""
        unused_ns = totals.idle_ns.get(IdleCause.NOT_IN_USE, 0)
        lost_ns = sum(totals.idle_ns.values()) - unused_ns
        before_lost_ns, before_unused_ns = self._settled_ns
        self._settled_ns = lost_ns, unused_ns
        self._lost_ns += lost_ns - before_lost_ns
        self._unused_ns += unused_ns - before_unused_ns
        self._attribute(is_whole=not totals.pending_ns)
        return self._use._replace(pending_joules=self._pending_joules)

    def _attribute(self, *, is_whole: bool) -> None:
        """Count the energy of idle time that has a cause, as far as both are known.

        Energy comes later than the cause of short pauses, and earlier than that of long ones.

        Args:
            is_whole: Whether all idle time has a cause.
        """
        settled_ns = self._lost_ns + self._unused_ns
        if not settled_ns or not self._idle_ns:
            return
        matched_ns = self._idle_ns if is_whole else min(self._idle_ns, settled_ns)
        joules = self._idle_joules * matched_ns / self._idle_ns
        lost_part = self._lost_ns / settled_ns
        self._use = self._use._replace(
            lost_joules=self._use.lost_joules + joules * lost_part,
            not_in_use_joules=self._use.not_in_use_joules + joules * (1 - lost_part),
        )
        self._idle_joules -= joules
        self._idle_ns -= matched_ns
        left_ns = min(max(0.0, settled_ns - matched_ns), _LONGEST_LAG_NS)
        self._lost_ns, self._unused_ns = left_ns * lost_part, left_ns * (1 - lost_part)

    @property
    def _pending_joules(self) -> float:
        newest = 0.0
        if self._newest is not None and self._counted is not None:
            newest = self._newest[1] - self._counted[1]
        return newest + self._unobserved_joules + self._unsplit.joules + self._idle_joules

    def _note_power(self, sample: GpuSample, at_ns: int) -> None:
        read_at_ns, watts = sample.power_now_at_ns, sample.power_now_watts
        if read_at_ns is not None and watts is not None:
            if read_at_ns > self._reading_at_ns:
                self._reading_at_ns = read_at_ns
                self._readings.append(_Reading(read_at_ns - 1, read_at_ns, watts))
        elif sample.busy and sample.power_watts is not None and sample.power_over_ns is not None:
            began_ns = at_ns - sample.power_over_ns
            self._readings.append(_Reading(began_ns, at_ns, sample.power_watts))

    def _follow(self) -> None:
        """Use the readings and the energy whose windows have come."""
        known_until_ns = self._windows[-1].end_ns if self._windows else 0
        while self._readings and self._readings[0].end_ns <= known_until_ns:
            self._use_reading(self._readings.popleft())
        self._count_span(known_until_ns)
        needed_from_ns = known_until_ns - _LONGEST_READING_NS
        if self._counted is not None:
            needed_from_ns = min(needed_from_ns, self._counted[0])
        while self._windows and self._windows[0].end_ns < needed_from_ns:
            self._windows.popleft()

    def _count_span(self, known_until_ns: int) -> None:
        """Count the energy up to its newest reading, once its windows have come."""
        if self._counted is None or self._newest is None:
            return
        (start_ns, before_joules), (end_ns, joules) = self._counted, self._newest
        if end_ns <= start_ns or end_ns > known_until_ns:
            return
        covered = self._covering(start_ns, end_ns)
        busy_ns = sum(_busy_within(one, start_ns, end_ns) for one in covered)
        covered_ns = sum(_overlap_ns(one, start_ns, end_ns) for one in covered)
        self._counted = self._newest
        if covered_ns < _LEAST_COVERED * (end_ns - start_ns):
            self._unobserved_joules += joules - before_joules
            return
        scale = (end_ns - start_ns) / covered_ns
        span = self._unsplit
        span.joules += joules - before_joules
        span.busy_ns += busy_ns * scale
        span.idle_ns += (covered_ns - busy_ns) * scale
        self._split()

    def _use_reading(self, reading: _Reading) -> None:
        covering = self._covering(reading.start_ns, reading.end_ns)
        length_ns = reading.end_ns - reading.start_ns
        covered_ns = sum(_overlap_ns(one, reading.start_ns, reading.end_ns) for one in covering)
        if not covering or covered_ns < length_ns:
            return
        if all(one.busy_ratio >= _BUSY_FROM for one in covering):
            self._busy_watts.add(reading.watts)
        elif all(one.busy_ratio <= _IDLE_UP_TO for one in covering):
            self._idle_watts.add(reading.watts)

    def _covering(self, start_ns: int, end_ns: int) -> Sequence[BusySample]:
        found = []
        for one in reversed(self._windows):
            if one.end_ns <= start_ns:
                break
            if one.start_ns < end_ns:
                found.append(one)
        return found

    def _split(self) -> None:
        """Split energy between busy and idle time, if what either draws is known."""
        span, idle_joules = self._unsplit, self._idle_part()
        if idle_joules is None:
            return
        self._idle_joules += idle_joules
        self._idle_ns += span.idle_ns
        self._use = self._use._replace(
            busy_joules=self._use.busy_joules + span.joules - idle_joules
        )
        self._unsplit = _Span()

    def _idle_part(self) -> float | None:
        """The joules of the idle time; ``None``: not known yet."""
        span = self._unsplit
        if not span.busy_ns or not span.idle_ns:
            return span.joules if span.idle_ns else 0.0
        busy_watts, idle_watts = self._busy_watts.value, self._idle_watts.value
        idle = None if idle_watts is None else idle_watts * seconds(round(span.idle_ns))
        busy = None if busy_watts is None else busy_watts * seconds(round(span.busy_ns))
        if idle is not None and busy is not None:
            return span.joules * idle / (idle + busy) if idle + busy else None
        if idle is not None:
            return min(idle, span.joules)
        return None if busy is None else max(0.0, span.joules - busy)


def _overlap_ns(window: BusySample, start_ns: int, end_ns: int) -> int:
    return min(window.end_ns, end_ns) - max(window.start_ns, start_ns)


def _busy_within(window: BusySample, start_ns: int, end_ns: int) -> float:
    return window.busy_ratio * _overlap_ns(window, start_ns, end_ns)
