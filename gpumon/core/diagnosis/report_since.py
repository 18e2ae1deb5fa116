"""What happened between two reports of one daemon."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar, get_type_hints

from gpumon.core.accounting.pending import NOTHING_UNSETTLED, Unsettled
from gpumon.core.accounting.totals import GapTotals, GpuTotals
from gpumon.core.device.job_measurements import in_job_since
from gpumon.core.device.sm_utilisation import fill_since
from gpumon.core.device.troubles import troubles_since
from gpumon.core.diagnosis.advice import advise
from gpumon.core.diagnosis.verdict_rules import diagnose
from gpumon.core.phase import OUT_OF_USE, UNPROVED, IdleCause, InputWaitReason
from gpumon.core.report.report import GpuReport, Report

_Key = TypeVar("_Key")
_COUNTERS = tuple(
    name for name, kind in get_type_hints(GpuTotals).items() if kind is int and name != "pending_ns"
)
_UNUSED = diagnose(GpuTotals())
_counters_of = operator.attrgetter(*_COUNTERS)


def totals_since(
    before: GpuTotals,
    after: GpuTotals,
    *,
    unsettled_before: Unsettled = NOTHING_UNSETTLED,
    unsettled_after: Unsettled = NOTHING_UNSETTLED,
) -> GpuTotals:
    """The totals of the time between two snapshots of one GPU.

    What was pending at ``before`` had passed by then: whatever it has been settled as since is
    left out, and so is the part of a pause that was open. Where that is not known, it counts for
    the time between. The sums close here too. Quantiles of pauses, how long a cycle is, and what
    pauses look like are those of ``after``, where any pause ended meanwhile.
    """
    grown = map(operator.sub, _counters_of(after), _counters_of(before))
    counters = dict(zip(_COUNTERS, grown, strict=True))
    counters["rank_wait_high_ns"] = max(0, counters["rank_wait_high_ns"])  # it may be known better
    counters["rank_wait_low_ns"] = min(counters["rank_wait_low_ns"], counters["rank_wait_high_ns"])
    earlier = unsettled_after.of(unsettled_before.settled_ns, before.pending_ns)
    still_pending_ns = min(before.pending_ns - sum(earlier.values()), after.pending_ns)
    counters["observed_ns"] += before.pending_ns - sum(earlier.values()) - still_pending_ns
    idle_ns = _less(_less(after.idle_ns, before.idle_ns), earlier)
    if earlier:
        _leave_out(earlier, unsettled_before, counters)
    hung_ns = {
        cause: min(ns, idle_ns.get(cause, 0))
        for cause, ns in _less(after.hanging_idle_ns, before.hanging_idle_ns).items()
    }
    input_ns, earlier_wait_ns = (one.get(IdleCause.INPUT_WAIT, 0) for one in (idle_ns, earlier))
    waited_ns = input_ns - hung_ns.get(IdleCause.INPUT_WAIT, 0)
    # What tags explained later is mostly the wait for a first batch.
    first_ns = min(max(0, counters["first_input_wait_ns"] - earlier_wait_ns), waited_ns)
    counters["first_input_wait_ns"] = first_ns
    for name in ("validation_input_wait_ns", "epoch_input_wait_ns"):
        counters[name] = min(counters[name], input_ns)
    # Unknown time of before may have a cause since; it is no part of the time between.
    unknown_ns = idle_ns.get(IdleCause.UNKNOWN, 0)
    counters["suspected_ns"] = min(counters["suspected_ns"], unknown_ns)
    rest_ns = unknown_ns - counters["suspected_ns"]
    counters["irregular_ns"] = max(0, min(counters["irregular_ns"], rest_ns))
    gaps = _gaps_since(before.gaps, after.gaps, unsettled_before.open_pause_ns)
    pauses = _gaps_since(before.pauses, after.pauses, unsettled_before.open_pause_ns)
    last_ns = before.starved_intervals[-1].end_ns if before.starved_intervals else -1
    left_out_ns = {**hung_ns, IdleCause.INPUT_WAIT: input_ns - waited_ns + first_ns}
    seen_ns = _less(after.seen_ns, before.seen_ns)
    less_ns = _less(after.may_be_less_ns, before.may_be_less_ns)
    more_ns = _less(after.may_be_more_ns, before.may_be_more_ns)
    return GpuTotals(
        **counters,
        idle_ns=idle_ns,
        # What is known better since of the time before makes that of the time between no surer.
        may_be_less_ns={
            cause: min(ns, idle_ns.get(cause, 0) - left_out_ns.get(cause, 0))
            for cause, ns in less_ns.items()
            if ns > 0
        },
        hanging_idle_ns=hung_ns,
        hanging_now=after.hanging_now,
        may_be_more_ns={cause: ns for cause, ns in more_ns.items() if ns > 0},
        input_wait_by_reason_ns=_reasons_since(
            before.input_wait_by_reason_ns, after.input_wait_by_reason_ns, earlier_wait_ns
        ),
        within_step_by_reason_ns=_reasons_since(
            before.within_step_by_reason_ns,
            after.within_step_by_reason_ns,
            earlier.get(IdleCause.WITHIN_STEP, 0),
        ),
        pending_ns=after.pending_ns - still_pending_ns,
        cycle_ns=after.cycle_ns if gaps.count else None,
        suspicion=after.suspicion if gaps.count else None,
        gaps=gaps,
        pauses=pauses,
        starved_intervals=tuple(
            interval for interval in after.starved_intervals if interval.start_ns >= last_ns
        ),
        starved_now=after.starved_now,
        # A pause that was open before is seen when it ends.
        seen_ns={cause: min(ns, idle_ns.get(cause, 0)) for cause, ns in seen_ns.items()},
        seen_samples=_less(after.seen_samples, before.seen_samples),
    )


def _leave_out(
    earlier: Mapping[IdleCause, int], before: Unsettled, counters: dict[str, int]
) -> None:
    """Take what passed before, and was settled since, off these counters of the time between."""
    used_ns = sum(ns for cause, ns in earlier.items() if cause not in OUT_OF_USE)
    if used_ns:
        counters["in_use_ns"] -= used_ns + before.unsure_busy_ns
        counters["in_use_busy_ns"] -= before.unsure_busy_ns
        counters["low_ns"] = max(0, counters["low_ns"] - (before.unsure_low_ns or used_ns))
    proved_ns = sum(ns for cause, ns in earlier.items() if cause not in UNPROVED)
    of_resolved_ns = min(proved_ns, counters["resolved_ns"])
    counters["resolved_ns"] -= of_resolved_ns
    counters["inferred_ns"] = max(0, counters["inferred_ns"] - (proved_ns - of_resolved_ns))


def _less(amounts: Mapping[_Key, int], less: Mapping[_Key, int]) -> dict[_Key, int]:
    left = {key: amount - less.get(key, 0) for key, amount in amounts.items()}
    return {key: amount for key, amount in left.items() if amount}


def _reasons_since(
    before: Mapping[str, int], after: Mapping[str, int], earlier_ns: int
) -> dict[str, int]:
    """Subtract earlier time, by reason: from time without a known reason first."""
    grown = _less(after, before)
    unknown = InputWaitReason.UNKNOWN.value
    for reason in sorted(grown, key=lambda name: (name != unknown, -grown[name])):
        taken_ns = min(earlier_ns, grown[reason])
        grown[reason] -= taken_ns
        earlier_ns -= taken_ns
    return {reason: amount for reason, amount in grown.items() if amount}


def _gaps_since(before: GapTotals, after: GapTotals, open_ns: int) -> GapTotals:
    """Pauses that ended meanwhile, without the idle time of the one that was open before."""
    if after.total_ns == before.total_ns:
        return GapTotals(bucket_counts=(0,) * len(after.bucket_counts))
    earlier = before.bucket_counts or (0,) * len(after.bucket_counts)
    total_ns = max(0, after.total_ns - before.total_ns - open_ns)
    return GapTotals(
        count=max(1, after.count - before.count),  # of a pause that a blip did not end, the rest
        total_ns=total_ns,
        longest_ns=min(after.longest_ns, total_ns),
        p50_ns=None if after.p50_ns is None else min(after.p50_ns, total_ns),
        p95_ns=None if after.p95_ns is None else min(after.p95_ns, total_ns),
        bucket_counts=tuple(
            late - early for early, late in zip(earlier, after.bucket_counts, strict=True)
        ),
    )


def report_since(before: Report, after: Report) -> Report:
    """The report of the time between two of one daemon; clock and names are those of the later.

    Runs are those that were not yet over at ``before``, as they are now.
    """
    earlier = {gpu.uuid: gpu for gpu in before.gpus}
    gpus = []
    for gpu in after.gpus:
        was = earlier.get(gpu.uuid) or GpuReport(
            index=gpu.index, uuid=gpu.uuid, name=gpu.name, totals=GpuTotals(), verdict=_UNUSED
        )
        totals = totals_since(
            was.totals, gpu.totals, unsettled_before=was.unsettled, unsettled_after=gpu.unsettled
        )
        gpus.append(
            replace(
                gpu, totals=totals, verdict=diagnose(totals), fill=fill_since(was.fill, gpu.fill),
                in_job=in_job_since(was.in_job, gpu.in_job),
                reported_troubles=troubles_since(was.reported_troubles, gpu.reported_troubles),
            )
        )  # fmt: skip
    known = {(run.run, run.pid): run for run in before.runs}
    # The figures of a run that is over may settle for a while after that.
    runs = tuple(
        run
        for run in after.runs
        if (past := known.get((run.run, run.pid))) is None
        or not (past.alive is False or past == run)
    )
    return replace(
        after,
        observed_ns=max((gpu.totals.observed_ns for gpu in gpus), default=0),
        is_part=True,
        gpus=tuple(gpus),
        runs=runs,
        advice=advise(gpus, runs),
    )
