"""Bursts, the pauses between them, and when they form a pattern."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from gpumon.core.accounting.cycles import Cycle
from gpumon.core.accounting.histograms import GapHistogram
from gpumon.core.accounting.intervals import Interval, IntervalList
from gpumon.core.accounting.seen_pauses import SeenPause
from gpumon.core.accounting.suspicion import JobSuspicion, Suspicion
from gpumon.core.clock import seconds
from gpumon.core.phase import IdleCause
from gpumon.core.settings.detector import MAX_INTERVALS, DetectorSettings
from gpumon.core.verdict import LikelyCause

_NAMED: Final = 3
"""How many of the last pauses are reported with their start."""


class IdleSpan(NamedTuple):
    """A sample as a part of a pause.

    Attributes:
        untagged_ns: Idle time that no phase explains, and that can be a wait for input.
        input_wait_ns: Idle time that a tag proves, or stack samples show, to be a wait for input.
    """

    start_ns: int
    end_ns: int
    idle_ns: int
    untagged_ns: int
    input_wait_ns: int


class PauseCount:
    """Counts one GPU's pauses as verdicts and messages do: a blip does not split a pause.

    A blip is a burst of a single sample between two long pauses, in a job
    whose other bursts are longer: a heartbeat, a line that logs a norm. It is
    recognised by the bursts before it, when the pause after it ends; so where single
    samples become the rule, they are no blips any more.

    Attributes:
        lengths: Lengths of the pauses of all jobs.
        latest_ns: Start of the last few, oldest first.
    """

    def __init__(self, settings: DetectorSettings) -> None:
        self._settings = settings
        self.lengths = GapHistogram()
        self.latest_ns: deque[int] = deque(maxlen=_NAMED)
        self.begin_job()

    def begin_job(self) -> None:
        self.pauses_in_job = self._last_samples = 0
        self._burst_samples = self._bursts = self._long_bursts = 0

    def add_bursts(self, samples: int) -> None:
        self._burst_samples += samples

    def end_pause(self, began_ns: int, idle_ns: int, samples: int) -> None:
        """Count a pause with so much idle time, in so many samples that are no bursts."""
        if self._is_after_blip(samples):
            self.lengths.lengthen_last(idle_ns)
            self._last_samples += samples
        else:
            self.lengths.add(idle_ns)
            self.latest_ns.append(began_ns)
            self.pauses_in_job += 1
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

    A driver window rarely begins where a burst ends, so a pause includes the
    idle part of the burst sample on either side of it: without them a pause
    of 1.8 windows would count as 1.

    A stretch of low samples, few of them near zero, is a low level and no pause, unless tags
    explain most of it. It counts as part of the burst; its idle time stays idle.

    Untagged time of a job's pauses is undecided until they look like waits for input, and
    then suspected, or until they look like requests. Both are final, whatever the job looks like
    later.

    Attributes:
        gaps: Pauses that have ended, whatever their cause: each stretch of low samples is one.
        counted: The same pauses as verdicts count them: a blip does not split one.
        starved_intervals: Pauses that were starved or are suspected.
        suspected_ns: Their untagged idle time.
        irregular_ns: Untagged idle time of pauses that looked like those between requests.
        low_levels: How often the GPU worked at a low level instead, between two bursts.
        sampled: Pauses with a stack sample.
        seen_as_input: Those in which stack samples show a wait for input.
        before: The newest burst sample; ``None`` before the job's first.
        is_open: Whether low samples followed, which may be a pause.
    """

    def __init__(self, settings: DetectorSettings) -> None:
        self._settings = settings
        self.gaps = GapHistogram()
        self.counted = PauseCount(settings)
        self.starved_intervals = IntervalList(MAX_INTERVALS)
        self.suspected_ns = self.irregular_ns = self.low_levels = 0
        self.sampled = self.seen_as_input = 0
        self._undecided = IntervalList(MAX_INTERVALS)
        self._job = JobSuspicion(settings)
        self._worst: tuple[float, Suspicion] | None = None
        self._undecided_ns = 0
        self.begin_job()

    def begin_job(self) -> None:
        """Forget the last job: undecided time stays uncounted, and the open pause is discarded."""
        if self._job.is_complete:
            self._worst = self._worst_job()
            self._job.forget()
        self.counted.begin_job()
        self._undecided_ns = 0
        self._undecided.pop_all()
        self.before: IdleSpan | None = None
        self._burst_ns = 0
        self._close()

    def _close(self) -> None:
        self._stretches: list[Interval] = []
        self.is_open = False
        self._was_sampled = False
        self._seen_as_input: bool | None = None
        self._low_samples = self._nearly_idle_samples = self._low_ns = 0
        self._idle_ns = self._untagged_ns = self._input_wait_ns = 0

    @property
    def open_idle_ns(self) -> int:
        """Idle time so far of the open pause; 0 if none is open."""
        if not self.is_open or self.before is None or self._is_level:
            return 0
        return self._idle_ns + self.before.idle_ns

    @property
    def _is_level(self) -> bool:
        """Whether the GPU works at a low level in the low samples so far.

        The first and the last may be parts of bursts; of those between, half are near zero in a
        pause.
        """
        if self._low_samples < self._settings.level_samples:
            return False
        is_busy = 2 * self._nearly_idle_samples < self._low_samples - 2
        return is_busy and self._untagged_ns * 2 > self._idle_ns

    @property
    def cycle_ns(self) -> int | None:
        """Time from one pause to the next if the last ones were regular; else ``None``."""
        return self._job.cycle_ns

    @property
    def suspicion(self) -> Suspicion | None:
        """The suspicion about the job that probably lost most to late input."""
        worst = self._worst_job()
        return None if worst is None else worst[1]._replace(began_ns=(*self.counted.latest_ns,))

    def add_bursts(self, last: IdleSpan, length_ns: int, samples: int = 1) -> None:
        """Add samples above the burst threshold, without a gap, while no pause is open.

        Args:
            last: The newest of them.
            length_ns: Their total length.
            samples: How many they are.
        """
        self.before = last
        self._burst_ns += length_ns
        self.counted.add_bursts(samples)

    def add_low(self, span: IdleSpan, busy_ratio: float, samples: int = 1) -> None:
        """Add samples at or below the burst threshold, without a gap.

        Args:
            span: All of them.
            busy_ratio: Busy ratio of the first; all are below ``low_below``, or none is.
            samples: How many they are.
        """
        if self.before is None:
            return  # not between two bursts
        start_ns, end_ns, stretches = span.start_ns, span.end_ns, self._stretches
        self._low_samples += samples
        self._low_ns += end_ns - start_ns
        if busy_ratio < self._settings.low_below:
            self._nearly_idle_samples += samples
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

    def note_seen(self, seen: SeenPause) -> None:
        """Count what stack samples show of the open pause, if one is: it is not suspected then."""
        before = self.before
        if not self.is_open or before is None:
            return
        self._was_sampled = True
        if seen.cause is None and not seen.is_elsewhere:
            return
        is_input = seen.cause is IdleCause.INPUT_WAIT
        self._seen_as_input = is_input if self._seen_as_input is None else self._seen_as_input
        if not is_input or seen.is_whole:
            wait_ns = self._untagged_ns + before.untagged_ns if is_input else 0
            self.before = before._replace(untagged_ns=0)
            self._untagged_ns = 0
        else:
            wait_ns = min(seen.idle_ns, self._untagged_ns)
            self._untagged_ns -= wait_ns
        self._input_wait_ns += wait_ns

    def explain(self, explained_ns: int) -> None:
        """Count so much of the open pause, if one is, as explained by phases."""
        self._untagged_ns = max(0, self._untagged_ns - explained_ns)

    def end_pause(self, after: IdleSpan, low_share: float) -> None:
        """End the open pause, or low level, by a burst.

        Args:
            after: The burst sample: its idle part belongs to the pause.
            low_share: Share of the job's in-use time so far that is below the low threshold.
        """
        before = self.before
        if before is None:
            return
        if self._is_level:
            self.low_levels += 1
            self._burst_ns += self._low_ns
            self._close()
            self.add_bursts(after, after.end_ns - after.start_ns)
            return
        idle_ns = before.idle_ns + self._idle_ns + after.idle_ns
        untagged_ns = before.untagged_ns + self._untagged_ns + after.untagged_ns
        input_wait_ns = before.input_wait_ns + self._input_wait_ns + after.input_wait_ns
        stretches = self._with_edges(before, after)
        self.counted.end_pause(stretches[0].start_ns, idle_ns, self._low_samples)
        self._job.add(
            Cycle(
                burst_s=seconds(self._burst_ns - before.idle_ns),
                pause_s=seconds(idle_ns),
                pause_busy_s=seconds(self._low_ns - self._idle_ns),
            ),
            untagged_ns,
            seconds(after.end_ns - after.start_ns),
            is_pattern=self.counted.pauses_in_job >= self._settings.min_pauses,
            is_input=self._seen_as_input,
        )
        self.sampled += self._was_sampled
        self.seen_as_input += bool(self._seen_as_input)
        # The idle part of the sample after it is counted already.
        self._burst_ns = -after.idle_ns
        edge = IdleSpan(after.start_ns, after.end_ns, 0, 0, 0)
        self.add_bursts(edge, after.end_ns - after.start_ns)
        self._close()
        self._undecided_ns += untagged_ns
        self.gaps.add(idle_ns)
        is_untagged = untagged_ns * 2 > idle_ns
        is_suspected = self._decide(low_share)
        if input_wait_ns * 2 > idle_ns or (is_suspected and is_untagged):
            self.starved_intervals.extend(stretches)
        elif is_untagged:
            self._undecided.extend(stretches)

    def _decide(self, low_share: float) -> bool:
        """Count undecided time once the job's shape decides; return whether as suspected."""
        suspicion = self._job.suspicion
        is_suspected = (
            suspicion is not None
            and suspicion.input_probability >= self._settings.suspected_from
            and self.counted.pauses_in_job >= self._settings.min_pauses
            and low_share > self._settings.min_low_share
        )
        if is_suspected:
            self.suspected_ns += self._undecided_ns
            if undecided := self._undecided.pop_all():
                self.starved_intervals.insert(undecided)
        elif suspicion is not None and suspicion.likely_causes[0] is LikelyCause.REQUESTS:
            self.irregular_ns += self._undecided_ns
            self._undecided.pop_all()
        else:
            return False
        self._undecided_ns = 0
        return is_suspected

    def _worst_job(self) -> tuple[float, Suspicion] | None:
        """The job that probably waited longest so far: for how long, and its suspicion."""
        suspicion, likely_ns, worst = self._job.suspicion, self._job.likely_ns, self._worst
        if suspicion is None or (worst is not None and worst[0] > likely_ns):
            return worst
        return likely_ns, suspicion

    def _with_edges(self, before: IdleSpan, after: IdleSpan) -> list[Interval]:
        stretches = self._stretches
        if before.end_ns == stretches[0].start_ns:
            stretches[0] = Interval(stretches[0].start_ns - before.idle_ns, stretches[0].end_ns)
        if after.start_ns == stretches[-1].end_ns:
            stretches[-1] = Interval(stretches[-1].start_ns, after.start_ns + after.idle_ns)
        return stretches
