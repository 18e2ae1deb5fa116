"""Totals of one GPU's time so far: settled sums, pauses, suspicion, and the verdict on now."""

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
    """Ended pauses, as counts in a fixed log histogram.

    Attributes:
        total_ns: Their total idle time.
        p50_ns: Median length; ``None`` without a pause.
        p95_ns: 95th percentile; ``None`` without a pause.
        bucket_counts: Cumulative counts for the bounds of
            ``settings.detector.GAP_BUCKETS_SECONDS``, without ``+Inf``, which is ``count``.
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
    """Settled time of one GPU since observation began; only pending or irregular time can fall.

    ``busy_ns + sum(idle_ns.values()) + pending_ns == observed_ns``, always.

    Attributes:
        observed_ns: Time covered by valid samples.
        busy_ns: The part of it with at least one kernel running.
        idle_ns: Settled idle time by cause; causes with none are left out.
        pending_ns: Idle time whose cause is not decided yet.
        in_use_ns: Time from the first to the last active sample of each job,
            and longer while a tagged run goes on.
        in_use_busy_ns: The busy part of ``in_use_ns``.
        suspected_ns: Unknown idle time in pauses that were more likely than not waits for input
            when they ended.
        resolved_ns: Idle time whose cause is shown by a sample that was idle and in one phase.
        inferred_ns: Idle time given a cause by a phase in any other way.
        input_wait_by_reason_ns: ``input_wait`` by the value of its ``InputWaitReason``; adds up
            to it.
        hidden_input_wait_ns: Time the host waited for input while the device was busy.
        low_ns: In-use time covered by samples below ``DetectorSettings.low_below``.
        high_ns: In-use time covered by samples above ``DetectorSettings.high_above``.
        gaps: Ended pauses as the histogram counts them: a blip splits a pause in two.
        starved_intervals: Pauses that were starved or are suspected, oldest first.
        merged_intervals: How many adjacent intervals were merged to keep that list short.
        episodes: How often the GPU began to be starved.
        starved_now: Whether it is starved or suspected now (``is_starved_now``).
        irregular_ns: Unknown idle time in pauses that look like those between requests, and so
            are not suspected.
        cycle_ns: Time from one pause to the next if the last ones were regular; else ``None``.
        pauses: The same idle time as verdicts and messages count it: a blip splits no pause
            (``PauseCount``), so there are at most as many.
        first_input_wait_ns: Part of ``input_wait``: runs' waits for their very first batch,
            which are paid once, so that no verdict rests on them.
        validation_input_wait_ns: Part of ``input_wait`` in validation or prediction after
            the very first batch.
        within_step_by_reason_ns: ``within_step`` by reason, which can be ``gil_bound``.
        suspicion: What the pauses of the job that probably lost most may be; ``None``: there
            were too few, or these totals were counted elsewhere.
        may_be_less_ns: Part of ``idle_ns``, by cause, that may belong to another cause: if
            the device works while the host waits, idle time has no certain cause.
        may_be_more_ns: Idle time beyond ``idle_ns``, by cause, that may belong to it.
        hanging_ns: Time in which a run that uses the GPU hung, and no other one worked.
        hanging_idle_ns: Settled idle time in hangs, by cause.
        hanging_now: Whether a run that uses the GPU hangs now, and no other one works.
        epoch_input_wait_ns: Part of ``input_wait`` at the start of epochs, except the first.
        rank_wait_low_ns: Time in which it read as busy but certainly waited for another rank of
            its job.
        rank_wait_high_ns: The same, at most.
        seen_ns: Part of ``idle_ns``, by cause, that has this cause because stack samples showed it.
        seen_samples: How many agreeing stack samples that rests on, by cause.
        sampled_pauses: Ended pauses with a stack sample.
        seen_input_pauses: Those in which stack samples showed a wait for input.
        low_levels: How often it worked at a low level for three samples or more, which is no pause.
        samples: How many rows of a log have its utilisation; ``None``: it was watched live.
        sample_distance_ns: The median time between two of them; ``None``: watched live.
        unusable_samples: How many of its rows have none, with its share of the rows that name
            no GPU; ``None``: watched live.
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
    seen_ns: Mapping[IdleCause, int] = _NO_CAUSES
    seen_samples: Mapping[IdleCause, int] = _NO_CAUSES
    sampled_pauses: int = 0
    seen_input_pauses: int = 0
    low_levels: int = 0
    samples: int | None = None
    sample_distance_ns: int | None = None
    unusable_samples: int | None = None

    @property
    def starved_ns(self) -> int:
        """Idle time that a tag proves, or stack samples show, to be a wait for input.

        Excludes the wait for the very first batch, time in which the run hung, and
        time that may be of another cause.
        """
        waited_ns = self.idle_ns.get(IdleCause.INPUT_WAIT, 0) - self.first_input_wait_ns
        unsure_ns = self.may_be_less_ns.get(IdleCause.INPUT_WAIT, 0)
        return waited_ns - self.hanging_idle_ns.get(IdleCause.INPUT_WAIT, 0) - unsure_ns

    def bounds_ns(self, cause: IdleCause) -> tuple[int, int]:
        """Certain and maximal idle time of a cause."""
        idle_ns = self.idle_ns.get(cause, 0)
        low_ns = idle_ns - self.may_be_less_ns.get(cause, 0)
        return low_ns, idle_ns + self.may_be_more_ns.get(cause, 0)

    @property
    def diagnosed(self) -> GpuTotals:
        """The totals that a verdict rests on: without waits for the first batch and hangs."""
        if not self.first_input_wait_ns and not self.hanging_idle_ns:
            return self
        excluded = dict(self.hanging_idle_ns)
        hung_ns = excluded.get(IdleCause.INPUT_WAIT, 0)
        excluded[IdleCause.INPUT_WAIT] = hung_ns + self.first_input_wait_ns
        excluded_ns = sum(excluded.values())
        idle_ns = {cause: ns - excluded.get(cause, 0) for cause, ns in self.idle_ns.items()}
        return self._replace(
            observed_ns=self.observed_ns - excluded_ns,
            in_use_ns=self.in_use_ns - excluded_ns,
            low_ns=max(0, self.low_ns - excluded_ns),
            idle_ns=idle_ns,
            first_input_wait_ns=0,
            hanging_idle_ns=_NO_CAUSES,
        )

    @property
    def usable_share(self) -> float:
        """The share, 0 to 1, of its rows in a log that have its utilisation."""
        rows = (self.samples or 0) + (self.unusable_samples or 0)
        return (self.samples or 0) / rows if rows else 1.0

    @property
    def to_subtract(self) -> GpuTotals:
        """The part that later totals are compared with."""
        return self._replace(starved_intervals=self.starved_intervals[-1:], suspicion=None)

    @property
    def idle_total_ns(self) -> int:
        return sum(self.idle_ns.values())

    @property
    def lost_ns(self) -> int:
        """Idle time while in use: between the first burst and the last."""
        return self.in_use_ns - self.in_use_busy_ns


class NowVerdict(NamedTuple):
    """The verdict on a GPU's last minutes in use, within its present job.

    Attributes:
        name: The verdict now: that of ``verdict``, but ``not_in_use`` once the job has ended or
            while its process is suspended, and ``hanging`` while its run hangs.
        since_ns: Start of this verdict, on the clock of the intervals.
        totals: Totals of the present job's last ten minutes in use, or of the complete
            last job, once that has ended.
        ended_ns: End of the last job; ``None``: it goes on, or there was none.
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
        """Whether it has stopped losing time within its job."""
        is_well = self.name is VerdictName.HEALTHY
        return is_well and self.before is not None and self.before.is_of_a_loss

    @property
    def window_ns(self) -> int:
        """The time in use that the totals cover."""
        return self.totals.in_use_ns
