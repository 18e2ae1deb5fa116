"""The stretch of time that each entry of a GPU's utilisation ring covers. Pure logic.

An entry is a stamp and a percentage: the share of the time *before* the stamp in which a kernel
ran. NVML does not document how much time that is, so it is derived from the stamps, never from a
constant. Where the ring has no new entry, a reading of the current utilisation covers the time
since, unless the source was not read meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from gpumon.core.clock import NS_PER_S
from gpumon.core.sample import BusySample
from gpumon.sources.nvml.stamp_clock import AHEAD_NS, US, Entry, StampClock

_SHORTEST_NS: Final = 10_000_000
_USUAL_NS: Final = 166_666_667
"""NVML documents sample periods from 1/6 s to 1 s; assumed until two stamps are known."""

_LONGEST_DOCUMENTED_NS: Final = 3 * NS_PER_S // 2
_IDLE_PERCENT: Final = 5


class Cadence:
    """How far apart the stamps of one ring are, in nanoseconds.

    While idle, some boards take samples less often, and others record no sample at all. Both leave
    a long gap between two stamps, but only in the first case does the next sample cover the
    complete gap. A longer step is therefore adopted only if two such gaps follow each other and
    the sample shows an idle GPU.

    Attributes:
        step_ns: The usual distance of two stamps.
        reach_ns: The longest distance at which two stamps still touch.
    """

    def __init__(self) -> None:
        self._known = False
        self._set(_USUAL_NS)

    def _set(self, step_ns: int) -> None:
        self.step_ns = max(step_ns, _SHORTEST_NS)
        self.reach_ns = self.step_ns * 5 // 2

    def learn_history(self, stamps_us: list[int]) -> None:
        """Learn the step from a complete ring: a low quantile, so that gaps do not count."""
        gaps_ns = sorted((late - early) * US for early, late in pairwise(stamps_us) if late > early)
        if gaps_ns:
            self._set(gaps_ns[len(gaps_ns) // 10])
            self._known = True

    def learn_step(self, gap_ns: int, gap_before_ns: int) -> None:
        """Follow a gap within reach slowly; a much shorter one must come twice."""
        slack_ns = self.step_ns // 64
        if abs(gap_ns - self.step_ns) <= slack_ns:
            return
        if gap_ns * 5 >= self.step_ns * 2:
            self._set(self.step_ns + (gap_ns - self.step_ns) // 8)
        elif _are_alike(gap_ns, gap_before_ns):
            self._set(gap_ns)

    def length_after(self, gap_ns: int, gap_before_ns: int, percent: float) -> int:
        """Return how much time an entry covers whose predecessor is out of reach."""
        if not self._known and gap_ns <= _LONGEST_DOCUMENTED_NS:
            self._known = True
            self._set(gap_ns)
        elif percent <= _IDLE_PERCENT and _are_alike(gap_ns, gap_before_ns):
            self._set(gap_ns)
        return min(gap_ns, self.step_ns)


def _are_alike(one_ns: int, other_ns: int) -> bool:
    return 0 < 2 * one_ns <= 3 * other_ns and 2 * other_ns <= 3 * one_ns


class BusyTrack:
    """One GPU's utilisation, as ordered and disjoint samples, whatever the driver answers.

    Attributes:
        position_us: The newest stamp seen: newer entries are drained.
        percent: The latest utilisation; ``None`` before the first.
        percent_at_ns: CLOCK_MONOTONIC that it is for.
        started: Whether the position is set.
    """

    def __init__(self, refuse: Callable[[], None]) -> None:
        """Start without a sample; ``refuse`` counts an invalid value."""
        self.position_us = 0
        self.percent: float | None = None
        self.percent_at_ns = 0
        self.started = False
        self._refuse = refuse
        self._cadence = Cadence()
        self._previous_ns = 0
        self._covered_until_ns = 0
        self._gap_ns = 0

    def start(self, entries: Iterable[Entry], offset_ns: int | None, now_ns: int) -> None:
        """Set the position: time before ``now_ns`` is not observed."""
        known = list(entries)
        self.started = True
        self.position_us = known[-1][0] if known else 0
        self._previous_ns = 0
        if known and offset_ns is not None:
            self._previous_ns = min(now_ns, self.position_us * US - offset_ns)
        self._covered_until_ns = max(self._covered_until_ns, now_ns)
        self._gap_ns = 0
        self._cadence.learn_history([stamp_us for stamp_us, _ in known])
        if known and 0 <= known[-1][1] <= 100:
            self.percent, self.percent_at_ns = known[-1][1], self._previous_ns or now_ns

    def forget_position(self) -> None:
        """Let the next reading set the position again: the ring may be another one now."""
        self.started = False
        self.position_us = 0
        self.percent = None

    def shift(self, by_ns: int) -> None:
        """Keep the position at the same time after the stamps' clock was set."""
        if self.position_us:
            self.position_us = max(0, self.position_us + by_ns // US)

    def ingest(self, entries: Iterable[Entry], offset_ns: int, now_ns: int) -> list[BusySample]:
        """Turn new entries of the ring into samples, oldest first.

        Known entries are skipped. A stamp that runs back or lies in the future, and a value
        outside 0 to 100, are refused; the window of such a value stays unobserved.

        ``offset_ns`` is stamp minus monotonic clock; entries were drained just before ``now_ns``.
        """
        samples: list[BusySample] = []
        seen_us = position_us = self.position_us
        previous_ns, latest_ns = self._previous_ns, now_ns + AHEAD_NS
        cadence, covered_ns = self._cadence, self._covered_until_ns
        gap_ns = gap_before_ns = self._gap_ns
        for stamp_us, percent in entries:
            end_ns = stamp_us * US - offset_ns
            if stamp_us <= position_us or end_ns > latest_ns:
                # Known entries are expected at the head of the ring only.
                if end_ns > latest_ns or stamp_us < position_us != seen_us:
                    self._refuse()
                continue
            gap_before_ns, gap_ns = gap_ns, end_ns - previous_ns
            start_ns = previous_ns
            if gap_ns > cadence.reach_ns:
                start_ns = end_ns - cadence.length_after(gap_ns, gap_before_ns, percent)
            previous_ns, position_us = end_ns, stamp_us
            if not 0 <= percent <= 100:
                self._refuse()
                continue
            self.percent, self.percent_at_ns = percent, end_ns
            start_ns = max(start_ns, covered_ns)
            if start_ns < end_ns:
                samples.append(BusySample(start_ns, end_ns, percent / 100))
                covered_ns = end_ns
        self._covered_until_ns = covered_ns
        if position_us != seen_us:
            self.position_us, self._previous_ns, self._gap_ns = position_us, previous_ns, gap_ns
            if gap_ns <= cadence.reach_ns:
                cadence.learn_step(gap_ns, gap_before_ns)
        return samples

    def is_dry(self, now_ns: int) -> bool:
        """Whether the ring has had no entry for longer than ``Cadence.reach_ns``."""
        return now_ns - self._previous_ns > self._cadence.reach_ns

    def is_silent(self, now_ns: int) -> bool:
        """Whether it has had none for longer than an idle board leaves between two entries."""
        return self.is_dry(now_ns) and now_ns - self._previous_ns > _LONGEST_DOCUMENTED_NS

    def leaves_hole(self, entries: Sequence[Entry]) -> bool:
        """Whether the oldest of these new entries is out of reach of the newest known one."""
        position_us, reach_ns = self.position_us, self._cadence.reach_ns
        return bool(entries and position_us) and (entries[0][0] - position_us) * US > reach_ns

    def step_of(self, entries: Sequence[Entry]) -> int:
        """The usual distance of two entries, in nanoseconds, given all that the ring keeps."""
        if not self.started:
            self._cadence.learn_history([stamp_us for stamp_us, _ in entries])
        return self._cadence.step_ns

    def cover(self, percent: float, since_ns: int, now_ns: int) -> list[BusySample]:
        """Use a reading of ``GetUtilizationRates``, made at ``now_ns``, for time without entries.

        Time before ``since_ns`` stays unobserved, because the GPU was not read then.
        """
        start_ns = max(since_ns, self._covered_until_ns)
        self._covered_until_ns = max(self._covered_until_ns, now_ns)
        if not 0 <= percent <= 100:
            self._refuse()
            return []
        self.percent, self.percent_at_ns = percent, now_ns
        return [BusySample(start_ns, now_ns, percent / 100)] if start_ns < now_ns else []


class DrainInstant(NamedTuple):
    """When a tick's rings were drained, and the clock of their stamps.

    Attributes:
        steady_since_ns: Since when the source was read without a break; CLOCK_MONOTONIC.
        now_ns: The same clock just after the rings were drained.
    """

    stamps: StampClock
    steady_since_ns: int
    now_ns: int

    def ingest(self, track: BusyTrack, entries: Sequence[Entry]) -> list[BusySample]:
        """Turn new entries of a GPU's ring into samples, if their stamps can be placed in time."""
        stamps = self.stamps
        if stamps.offset_ns is None:
            track.start(entries, None, self.now_ns)
            return []
        if stamps.was_set:
            entries = stamps.straightened(entries, self.now_ns)
        return track.ingest(entries, stamps.offset_ns, self.now_ns)


_NO_STOP_NS: Final = 3 * NS_PER_S // 2
"""NVML's own reading covers up to 1 s, so a shorter pause is no break."""


class Pace:
    """Detects that the source was not read for a while, as after SIGSTOP or a hanging call.

    A reading of the current utilisation must not cover such a break.

    Attributes:
        steady_since_ns: Since when readings have come regularly; CLOCK_MONOTONIC.
    """

    def __init__(self) -> None:
        self._usual_ns = 0
        self.steady_since_ns = 0

    def step(self, gap_ns: int, now_ns: int) -> None:
        """Update it with the time between two readings; 0 at the first."""
        if gap_ns == 0:
            self.steady_since_ns = now_ns
        elif gap_ns <= max(_NO_STOP_NS, self._usual_ns * 5 // 2):
            self._usual_ns += (gap_ns - self._usual_ns) // 4
        else:
            # A longer period is learnt, too, but one break is not a period.
            self._usual_ns = min(gap_ns, 2 * max(self._usual_ns, _NO_STOP_NS))
            self.steady_since_ns = now_ns
