"""What is known of one GPU's time so far: settled sums, pauses and what they look like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from gpumon.core.accounting.intervals import Interval
from gpumon.core.accounting.suspicion import Suspicion
from gpumon.core.phase import IdleCause
from gpumon.core.verdict import Verdict, VerdictName


@dataclass(frozen=True, slots=True)
class GapTotals:
    """Pauses that have ended, as counts in a fixed log histogram.

    Attributes:
        total_ns: Their idle time together.
        p50_ns: Median length; ``None`` without a pause.
        p95_ns: 95th percentile; ``None`` without a pause.
        bucket_counts: Cumulative counts for the bounds of
            ``settings.detector.GAP_BUCKETS_SECONDS``, as Prometheus wants them
            (without the last, ``+Inf``, which is ``count``).
    """

    count: int = 0
    total_ns: int = 0
    longest_ns: int = 0
    p50_ns: int | None = None
    p95_ns: int | None = None
    bucket_counts: tuple[int, ...] = ()


_NO_CAUSES: Mapping[IdleCause, int] = MappingProxyType({})
_NO_REASONS: Mapping[str, int] = MappingProxyType({})
_NO_GAPS = GapTotals()


class GpuTotals(NamedTuple):
    """Settled time of one GPU since observation began; only what is pending or irregular can fall.

    ``busy_ns + sum(idle_ns.values()) + pending_ns == observed_ns``, always.

    Attributes:
        observed_ns: Time covered by valid samples.
        busy_ns: Of it, time with at least one kernel running.
        idle_ns: Settled idle time by cause; causes without any are left out.
        pending_ns: Idle time whose cause is not decided yet.
        in_use_ns: Time from the first to the last active sample of each job,
            and on while a tagged run goes on.
        in_use_busy_ns: Of it, busy time.
        suspected_ns: Of the unknown idle time, what fell into pauses that, as each ended, were
            likelier than not to wait for input.
        resolved_ns: Idle time given a cause by a sample that was idle and wholly in one phase.
        inferred_ns: Idle time given a cause by a phase in any other way.
        input_wait_by_reason_ns: ``input_wait`` split by ``InputWaitReason``, by its value: they
            add up to it.
        hidden_input_wait_ns: Time the host waited for input while the device was busy.
        low_ns: In-use time covered by samples below ``DetectorSettings.low_below``.
        high_ns: In-use time covered by samples above ``DetectorSettings.high_above``.
        gaps: Pauses that have ended.
        starved_intervals: Pauses that were starved or are suspected, oldest first.
        merged_intervals: How many neighbours were merged to keep that list short.
        episodes: How often the GPU began to be starved.
        starved_now: Whether it is starved now, or suspected to be, by its latest time in use: see
            ``is_starved_now``.
        irregular_ns: Of the unknown idle time, what fell into pauses that look like those between
            requests, and so are not suspected.
        cycle_ns: From one pause to the next, where the last ones came like a clock; else ``None``.
        pauses: Pauses that have ended, as verdicts and sentences count them: a blip splits none
            (``PauseCount``). They hold the same time as ``gaps``, in as many or fewer.
        first_input_wait_ns: Of ``input_wait``, the waits of trainings for their very first batch:
            paid once, so that no verdict rests on them.
        validation_input_wait_ns: Of ``input_wait``, what passed in validation or prediction after
            the very first batch.
        epoch_input_wait_ns: Of ``input_wait``, what passed at the start of epochs, but the first.
        within_step_by_reason_ns: ``within_step`` split likewise; its reason can be ``gil_bound``.
        may_be_less_ns: Of ``idle_ns``, by cause, what may have been lost to another cause: where
            the device works while the host waits, idle time has no certain cause.
        may_be_more_ns: Beyond ``idle_ns``, by cause, what may have been lost to it as well.
        hanging_ns: Time that passed while a run that uses the GPU hung, and no other one worked.
        hanging_idle_ns: Of the settled idle time, what passed then, by cause.
        hanging_now: Whether that is so now.
        rank_wait_low_ns: Beside all idle time, for how long it certainly waited for another rank of
            its job while it read as busy.
        rank_wait_high_ns: For how long it can have, at most.
        low_levels: How often it worked at a low level for three samples or more, which is no pause.
        samples: How many rows of a log say how busy it was; ``None``: it was watched live.
        sample_distance_ns: The median time between two of them; ``None``: likewise.
        unusable_samples: How many rows of the log that are of it do not, those among them of which
            no GPU can be told by its share; ``None``: likewise.
        suspicion: What the pauses of the job that probably lost most look like; ``None``: there
            were too few, or these totals were counted elsewhere.
    """

    observed_ns: int = 0
    busy_ns: int = 0
    idle_ns: Mapping[IdleCause, int] = _NO_CAUSES
    pending_ns: int = 0
    in_use_ns: int = 0
    in_use_busy_ns: int = 0
    suspected_ns: int = 0
    resolved_ns: int = 0
    inferred_ns: int = 0
    input_wait_by_reason_ns: Mapping[str, int] = _NO_REASONS
    hidden_input_wait_ns: int = 0
    low_ns: int = 0
    high_ns: int = 0
    gaps: GapTotals = _NO_GAPS
    starved_intervals: tuple[Interval, ...] = ()
    merged_intervals: int = 0
    episodes: int = 0
    starved_now: bool = False
    irregular_ns: int = 0
    cycle_ns: int | None = None
    pauses: GapTotals = _NO_GAPS
    first_input_wait_ns: int = 0
    validation_input_wait_ns: int = 0
    within_step_by_reason_ns: Mapping[str, int] = _NO_REASONS
    suspicion: Suspicion | None = None
    may_be_less_ns: Mapping[IdleCause, int] = _NO_CAUSES
    may_be_more_ns: Mapping[IdleCause, int] = _NO_CAUSES
    hanging_ns: int = 0
    hanging_idle_ns: Mapping[IdleCause, int] = _NO_CAUSES
    hanging_now: bool = False
    epoch_input_wait_ns: int = 0
    rank_wait_low_ns: int = 0
    rank_wait_high_ns: int = 0
    low_levels: int = 0
    samples: int | None = None
    sample_distance_ns: int | None = None
    unusable_samples: int | None = None

    @property
    def starved_ns(self) -> int:
        """Idle time that a tag proves to be a wait for input.

        Without the wait for the very first batch, without what passed while the run hung, and
        without what may be of another cause.
        """
        waited_ns = self.idle_ns.get(IdleCause.INPUT_WAIT, 0) - self.first_input_wait_ns
        unsure_ns = self.may_be_less_ns.get(IdleCause.INPUT_WAIT, 0)
        return waited_ns - self.hanging_idle_ns.get(IdleCause.INPUT_WAIT, 0) - unsure_ns

    def bounds_ns(self, cause: IdleCause) -> tuple[int, int]:
        """How much of the idle time is of a cause for certain, and how much at most."""
        idle_ns = self.idle_ns.get(cause, 0)
        low_ns = idle_ns - self.may_be_less_ns.get(cause, 0)
        return low_ns, idle_ns + self.may_be_more_ns.get(cause, 0)

    @property
    def judged(self) -> GpuTotals:
        """The same without waits for the very first batch, and without what passed in hangs.

        That is what a verdict rests on.
        """
        if not self.first_input_wait_ns and not self.hanging_idle_ns:
            return self
        left_out = dict(self.hanging_idle_ns)
        hung_ns = left_out.get(IdleCause.INPUT_WAIT, 0)
        left_out[IdleCause.INPUT_WAIT] = hung_ns + self.first_input_wait_ns
        left_out_ns = sum(left_out.values())
        idle_ns = {cause: ns - left_out.get(cause, 0) for cause, ns in self.idle_ns.items()}
        return self._replace(
            observed_ns=self.observed_ns - left_out_ns,
            in_use_ns=self.in_use_ns - left_out_ns,
            low_ns=max(0, self.low_ns - left_out_ns),
            idle_ns=idle_ns,
            first_input_wait_ns=0,
            hanging_idle_ns=_NO_CAUSES,
        )

    @property
    def usable_share(self) -> float:
        """The share, 0 to 1, of its rows in a log that say how busy it was."""
        rows = (self.samples or 0) + (self.unusable_samples or 0)
        return (self.samples or 0) / rows if rows else 1.0

    @property
    def to_subtract(self) -> GpuTotals:
        """What later totals are compared with: without what only these themselves show."""
        return self._replace(starved_intervals=self.starved_intervals[-1:], suspicion=None)

    @property
    def idle_total_ns(self) -> int:
        """All settled idle time."""
        return sum(self.idle_ns.values())

    @property
    def lost_ns(self) -> int:
        """Idle time while in use: all but what was before the first burst and after the last."""
        return self.in_use_ns - self.in_use_busy_ns


class NowVerdict(NamedTuple):
    """The verdict on a GPU's last minutes in use, within its present job.

    Attributes:
        name: The verdict now: that of ``verdict``, but ``not_in_use`` once the job has ended or
            while its process is suspended, and ``hanging`` while its run hangs.
        since_ns: Since when, on the clock of the intervals.
        totals: Where the time went: of the last ten minutes in use of the job that is on, or all
            of the last job, once that has ended.
        verdict: On these totals.
        ended_ns: When the last job ended; ``None``: it goes on, or there was none.
        is_suspended: Whether the processes of its runs are stopped.
        before: The name before ``since_ns``, in the same job; ``None``: there was none.
    """

    name: VerdictName
    since_ns: int
    totals: GpuTotals
    verdict: Verdict
    ended_ns: int | None = None
    is_suspended: bool = False
    before: VerdictName | None = None

    @property
    def has_recovered(self) -> bool:
        """Whether it has stopped losing time, within its job."""
        is_well = self.name is VerdictName.HEALTHY
        return is_well and self.before is not None and self.before.is_of_a_loss

    @property
    def window_ns(self) -> int:
        """The time in use that the totals cover."""
        return self.totals.in_use_ns
