"""The shape of utilisation over time: bursts, the pauses between them, and when that is a pattern."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.core.gaps import GapHistogram
from gpumon.core.intervals import Interval, IntervalList
from gpumon.core.settings import MAX_INTERVALS, DetectorSettings


class IdleSpan(NamedTuple):
    """One sample, as far as a pause is concerned.

    Attributes:
        start_ns: Where the sample begins.
        end_ns: Where it ends.
        idle_ns: Its idle time.
        untagged_ns: Of it, what no phase explains.
        input_wait_ns: Of it, what a tag proves to be a wait for input.
    """

    start_ns: int
    end_ns: int
    idle_ns: int
    untagged_ns: int = 0
    input_wait_ns: int = 0


class PauseTracker:
    """Follows one GPU's samples and credits its pauses.

    A driver window rarely begins where a burst ends, so a pause also owns the
    idle part of the burst sample on either side of it: without them a pause
    of 1.8 windows would count as 1.
    """

    def __init__(self, settings: DetectorSettings) -> None:
        self._settings = settings
        self.gaps = GapHistogram()
        self.starved_intervals = IntervalList(MAX_INTERVALS)
        self.suspected_ns = 0
        self._held = IntervalList(MAX_INTERVALS)
        self.begin_job()

    def begin_job(self) -> None:
        """Forget the job before: what it held back stays uncounted, its last pause was none."""
        self._job_pauses = 0
        self._held_ns = 0
        self._held.take()
        self._before: IdleSpan | None = None
        self._idle_ns = self._untagged_ns = self._input_wait_ns = 0
        self._stretches: list[Interval] = []

    @property
    def is_open(self) -> bool:
        """Whether there was a burst, and samples since that may turn out to be a pause."""
        return bool(self._stretches)

    def take_low(self, span: IdleSpan) -> None:
        """A sample at or below the burst threshold."""
        if self._before is None:
            return  # no burst yet: this is not between two
        self._idle_ns += span.idle_ns
        self._untagged_ns += span.untagged_ns
        self._input_wait_ns += span.input_wait_ns
        stretches = self._stretches
        if stretches and stretches[-1].end_ns == span.start_ns:
            stretches[-1] = Interval(stretches[-1].start_ns, span.end_ns)
        elif len(stretches) < MAX_INTERVALS:
            stretches.append(Interval(span.start_ns, span.end_ns))

    def take_burst(self, span: IdleSpan, low_share: float) -> None:
        """A sample above the burst threshold; ``low_share`` is the job's, up to here."""
        if self._stretches and self._before is not None:
            self._end_pause(self._before, span, low_share)
            span = IdleSpan(span.start_ns, span.end_ns, 0)  # its idle part is spent
        self._before = span

    def _end_pause(self, before: IdleSpan, after: IdleSpan, low_share: float) -> None:
        idle_ns = before.idle_ns + self._idle_ns + after.idle_ns
        untagged_ns = before.untagged_ns + self._untagged_ns + after.untagged_ns
        input_wait_ns = before.input_wait_ns + self._input_wait_ns + after.input_wait_ns
        stretches = self._stretches
        if before.end_ns == stretches[0].start_ns:
            start_ns = stretches[0].start_ns - before.idle_ns
            stretches[0] = Interval(start_ns, stretches[0].end_ns)
        if after.start_ns == stretches[-1].end_ns:
            stretches[-1] = Interval(stretches[-1].start_ns, after.start_ns + after.idle_ns)
        self._stretches = []
        self._idle_ns = self._untagged_ns = self._input_wait_ns = 0
        self._job_pauses += 1
        self._held_ns += untagged_ns
        self.gaps.add(idle_ns)
        if input_wait_ns * 2 > idle_ns:
            self.starved_intervals.extend(stretches)
        elif untagged_ns * 2 > idle_ns:
            self._held.extend(stretches)
        if self._is_pattern(low_share):
            self._suspect()

    def _is_pattern(self, low_share: float) -> bool:
        settings = self._settings
        return self._job_pauses >= settings.min_pauses and low_share > settings.min_low_share

    def _suspect(self) -> None:
        self.suspected_ns += self._held_ns
        self._held_ns = 0
        held = self._held.take()
        if held:
            self.starved_intervals.insert(held)
