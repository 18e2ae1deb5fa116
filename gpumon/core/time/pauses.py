"""The shape of utilisation over time: bursts, pauses between them, and when that is a pattern."""

from __future__ import annotations

import math
from typing import NamedTuple

from gpumon.core.settings.detector import MAX_INTERVALS, DetectorSettings
from gpumon.core.time.histograms import GapHistogram
from gpumon.core.time.intervals import Interval, IntervalList


class Rhythm:
    """How regular the last cycles of a GPU were: each a burst and the pause after it.

    A training repeats itself: what it waits for comes at the pace of its
    loader. Cells that a person runs, and requests that come when they like,
    do not: their cycles spread as much as they last, or more. Where a loader
    is erratic (a read of a minute now and then) cycles spread, too, but the
    device is busy between: it must be mostly idle before it counts.

    Older cycles weigh less and less, and those of another job still less: not
    nothing, for a person who thinks for minutes seems to begin a new job with
    each cell.
    """

    def __init__(self, settings: DetectorSettings) -> None:
        self._settings = settings
        self._count, self._most = 0, settings.rhythm_cycles
        self._mean_ns = self._variance = 0.0

    def begin_job(self) -> None:
        """What was before counts for no more than it takes to tell a rhythm."""
        self._count = min(self._count, self._settings.min_cycles)

    def add(self, cycle_ns: int) -> None:
        """A cycle has ended."""
        self._count = count = self._count + 1
        weight = 1 / (count if count < self._most else self._most)
        off_ns = cycle_ns - self._mean_ns
        self._mean_ns += weight * off_ns
        self._variance = (1 - weight) * (self._variance + weight * off_ns * off_ns)

    @property
    def variation(self) -> float:
        """Standard deviation of the cycles over their mean; 0 before the second."""
        return math.sqrt(self._variance) / self._mean_ns if self._mean_ns else 0.0

    @property
    def steady_ns(self) -> int | None:
        """How long a cycle is where long ones come like a clock; ``None``: they do not."""
        settings = self._settings
        if self._count < settings.min_cycles or self._mean_ns < settings.clockwork_from_ns:
            return None
        return round(self._mean_ns) if self.variation < settings.steady_below else None

    def is_lacking(self, busy_share: float) -> bool:
        """Whether enough cycles show that there is none; ``busy_share`` is of the time in use."""
        settings = self._settings
        return (
            busy_share < settings.irregular_busy_below
            and self._count >= settings.min_cycles
            and self.variation > settings.irregular_from
        )


class IdleSpan(NamedTuple):
    """One sample, as far as a pause is concerned; nanoseconds.

    Attributes:
        idle_ns: Its idle part.
        untagged_ns: What of that no phase explains.
        input_wait_ns: What of it a tag proves to be a wait for input.
    """

    start_ns: int
    end_ns: int
    idle_ns: int
    untagged_ns: int
    input_wait_ns: int


class PauseCount:
    """Counts one GPU's pauses as verdicts and sentences do: a blip splits none.

    A blip is a burst of a single sample between two long pauses, in a job
    whose bursts are longer else: a heartbeat, a line that logs a norm. It is
    told by the bursts before it, when the pause after it ends; so where single
    samples become the rule, they cease to be blips.

    Attributes:
        in_job: How many the present job has had.
        lengths: How long those of all jobs were.
    """

    def __init__(self, settings: DetectorSettings) -> None:
        self._settings = settings
        self.lengths = GapHistogram()
        self.begin_job()

    def begin_job(self) -> None:
        """Forget the bursts and pauses of the job before."""
        self.in_job = self._last_samples = 0
        self._burst_samples = self._bursts = self._long_bursts = 0

    def add_burst(self) -> None:
        """A burst sample has come; others may follow it."""
        self._burst_samples += 1

    def end_pause(self, idle_ns: int, samples: int) -> None:
        """A pause has ended: so much idle time, in so many samples that are no bursts."""
        if self._is_after_blip(samples):
            self.lengths.lengthen_last(idle_ns)
            self._last_samples += samples
        else:
            self.lengths.add(idle_ns)
            self.in_job += 1
            self._last_samples = samples
        self._bursts += 1
        self._long_bursts += self._burst_samples >= self._settings.blip_burst_samples
        self._burst_samples = 0

    def _is_after_blip(self, samples: int) -> bool:
        shorter = min(self._last_samples, samples)
        is_lone = self._burst_samples == 1 and shorter >= self._settings.blip_pause_samples
        return is_lone and 2 * self._long_bursts >= self._bursts  # their median is long, too


class PauseTracker:
    """Follows one GPU's samples and credits its pauses.

    A driver window rarely begins where a burst ends, so a pause also owns the
    idle part of the burst sample on either side of it: without them a pause
    of 1.8 windows would count as 1.

    Attributes:
        gaps: Pauses that have ended, whatever their cause, each run of samples for itself.
        counted: The same as verdicts count them.
        starved_intervals: The pauses that were starved or are suspected.
        suspected_ns: Their untagged idle time, once they are a pattern.
        irregular_ns: The same of those that come without a rhythm.
        before: The newest burst sample; ``None`` before the job's first.
        is_open: Whether there were low samples since, which may be a pause.
    """

    def __init__(self, settings: DetectorSettings) -> None:
        self._settings = settings
        self.gaps = GapHistogram()
        self.counted = PauseCount(settings)
        self.starved_intervals = IntervalList(MAX_INTERVALS)
        self.suspected_ns = self.irregular_ns = 0
        self._held = IntervalList(MAX_INTERVALS)
        self._rhythm = Rhythm(settings)
        self.begin_job()

    def begin_job(self) -> None:
        """Forget the job before: what it held back stays uncounted, its last pause was none."""
        self.counted.begin_job()
        self._cycle_from_ns: int | None = None
        self._rhythm.begin_job()
        self._held_ns = 0
        self._held.take()
        self.before: IdleSpan | None = None
        self._idle_ns = self._untagged_ns = self._input_wait_ns = self._low_samples = 0
        self._stretches: list[Interval] = []
        self.is_open = False

    @property
    def cycle_ns(self) -> int | None:
        """From one pause to the next, where the last ones came like a clock; else ``None``."""
        return self._rhythm.steady_ns

    def take_burst(self, span: IdleSpan) -> None:
        """A sample above the burst threshold, while no pause is open."""
        self.before = span
        self.counted.add_burst()

    def take_low(self, span: IdleSpan) -> None:
        """A sample at or below the burst threshold."""
        if self.before is None:
            return  # no burst yet: this is not between two
        start_ns, end_ns, stretches = span.start_ns, span.end_ns, self._stretches
        self._low_samples += 1
        self._idle_ns += span.idle_ns
        self._untagged_ns += span.untagged_ns
        self._input_wait_ns += span.input_wait_ns
        if not self.is_open:
            self.is_open = True
            stretches.append(Interval(start_ns, end_ns))
        elif stretches[-1].end_ns == start_ns:
            stretches[-1] = Interval(stretches[-1].start_ns, end_ns)
        elif len(stretches) < MAX_INTERVALS:
            stretches.append(Interval(start_ns, end_ns))

    def explain(self, explained_ns: int) -> None:
        """Phases have explained so much of the pause that is open, if one is."""
        self._untagged_ns = max(0, self._untagged_ns - explained_ns)

    def end_pause(self, after: IdleSpan, low_share: float, busy_share: float) -> None:
        """A burst ends the pause that is open.

        Args:
            after: The burst sample: its idle part is the pause's too.
            low_share: Share of the job's in-use time, up to here, below the
                low threshold.
            busy_share: Share of it in which the GPU was busy.
        """
        before = self.before
        if before is None:
            return
        idle_ns = before.idle_ns + self._idle_ns + after.idle_ns
        untagged_ns = before.untagged_ns + self._untagged_ns + after.untagged_ns
        input_wait_ns = before.input_wait_ns + self._input_wait_ns + after.input_wait_ns
        stretches = self._with_edges(before, after)
        self.counted.end_pause(idle_ns, self._low_samples)
        # The idle part of the sample after it is spent.
        self.take_burst(IdleSpan(after.start_ns, after.end_ns, 0, 0, 0))
        self._stretches, self.is_open = [], False
        self._idle_ns = self._untagged_ns = self._input_wait_ns = self._low_samples = 0
        self._held_ns += untagged_ns
        self.gaps.add(idle_ns)
        if idle_ns >= self._settings.cycle_pause_from_ns:
            if self._cycle_from_ns is not None:
                self._rhythm.add(after.start_ns - self._cycle_from_ns)
            self._cycle_from_ns = after.start_ns
        is_pattern = is_untagged = False
        if self._rhythm.is_lacking(busy_share):
            self._pass_over()
        else:
            is_untagged = untagged_ns * 2 > idle_ns
            is_pattern = self._is_pattern(low_share)
            if is_pattern:
                self._suspect()
        if input_wait_ns * 2 > idle_ns or (is_pattern and is_untagged):
            self.starved_intervals.extend(stretches)
        elif is_untagged:
            self._held.extend(stretches)

    def _with_edges(self, before: IdleSpan, after: IdleSpan) -> list[Interval]:
        stretches = self._stretches
        if before.end_ns == stretches[0].start_ns:
            stretches[0] = Interval(stretches[0].start_ns - before.idle_ns, stretches[0].end_ns)
        if after.start_ns == stretches[-1].end_ns:
            stretches[-1] = Interval(stretches[-1].start_ns, after.start_ns + after.idle_ns)
        return stretches

    def _is_pattern(self, low_share: float) -> bool:
        settings = self._settings
        return self.counted.in_job >= settings.min_pauses and low_share > settings.min_low_share

    def _pass_over(self) -> None:
        """What was held back came without a rhythm: it will not be suspected later either."""
        self.irregular_ns += self._held_ns
        self._held_ns = 0
        self._held.take()

    def _suspect(self) -> None:
        self.suspected_ns += self._held_ns
        self._held_ns = 0
        held = self._held.take()
        if held:
            self.starved_intervals.insert(held)
