"""What happened between two reports of one daemon."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar, get_type_hints

from gpumon.core.board.fill import fill_since
from gpumon.core.board.in_job import in_job_since
from gpumon.core.board.troubles import troubles_since
from gpumon.core.judge.advice import advise
from gpumon.core.judge.verdict_rules import judge
from gpumon.core.phase import IdleCause
from gpumon.core.report.report import Report, RunReport
from gpumon.core.time.totals import GapTotals, GpuTotals

_Key = TypeVar("_Key")
_COUNTERS = tuple(
    name for name, kind in get_type_hints(GpuTotals).items() if kind is int and name != "pending_ns"
)


def totals_since(before: GpuTotals, after: GpuTotals) -> GpuTotals:
    """The totals of the time between two of one GPU, as far as a daemon's counters can tell.

    Pending time that was decided meanwhile counts for the time in which it
    was decided: the observed time is taken less by what was pending before,
    so that the sums close here too. Quantiles of gaps, how long a cycle
    is, and what pauses look like are those of ``after``, where any pause ended meanwhile.
    """
    counters = {name: getattr(after, name) - getattr(before, name) for name in _COUNTERS}
    counters["observed_ns"] += before.pending_ns
    idle_ns = _grown(before.idle_ns, after.idle_ns)
    # What was unknown before may be judged since; that was no part of the time between.
    unknown_ns = idle_ns.get(IdleCause.UNKNOWN, 0)
    counters["suspected_ns"] = min(counters["suspected_ns"], unknown_ns)
    rest_ns = unknown_ns - counters["suspected_ns"]
    counters["irregular_ns"] = max(0, min(counters["irregular_ns"], rest_ns))
    gaps, pauses = _gaps_since(before.gaps, after.gaps), _gaps_since(before.pauses, after.pauses)
    last_ns = before.starved_intervals[-1].end_ns if before.starved_intervals else -1
    return GpuTotals(
        **counters,
        idle_ns=idle_ns,
        input_wait_by_reason_ns=_grown(
            before.input_wait_by_reason_ns, after.input_wait_by_reason_ns
        ),
        within_step_by_reason_ns=_grown(
            before.within_step_by_reason_ns, after.within_step_by_reason_ns
        ),
        pending_ns=after.pending_ns,
        cycle_ns=after.cycle_ns if gaps.count else None,
        suspicion=after.suspicion if gaps.count else None,
        gaps=gaps,
        pauses=pauses,
        starved_intervals=tuple(
            interval for interval in after.starved_intervals if interval.start_ns >= last_ns
        ),
        starved_now=after.starved_now,
    )


def _grown(before: Mapping[_Key, int], after: Mapping[_Key, int]) -> dict[_Key, int]:
    grown = {key: amount - before.get(key, 0) for key, amount in after.items()}
    return {key: amount for key, amount in grown.items() if amount}


def _gaps_since(before: GapTotals, after: GapTotals) -> GapTotals:
    if after.total_ns == before.total_ns:
        return GapTotals(bucket_counts=(0,) * len(after.bucket_counts))
    earlier = before.bucket_counts or (0,) * len(after.bucket_counts)
    return GapTotals(
        count=max(1, after.count - before.count),  # of a pause that a blip did not end, the rest
        total_ns=after.total_ns - before.total_ns,
        longest_ns=after.longest_ns,
        p50_ns=after.p50_ns,
        p95_ns=after.p95_ns,
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
        was = earlier.get(gpu.uuid)
        totals = totals_since(GpuTotals() if was is None else was.totals, gpu.totals)
        fill = fill_since(None if was is None else was.fill, gpu.fill)
        told = troubles_since(() if was is None else was.told_troubles, gpu.told_troubles)
        in_job = in_job_since(None if was is None else was.in_job, gpu.in_job)
        gpus.append(
            replace(
                gpu, totals=totals, verdict=judge(totals), fill=fill, in_job=in_job,
                told_troubles=told,
            )
        )  # fmt: skip
    known = {(run.run, run.pid): run for run in before.runs}
    runs = tuple(run for run in after.runs if not _was_over(known.get((run.run, run.pid)), run))
    return replace(
        after,
        observed_ns=max((gpu.totals.observed_ns for gpu in gpus), default=0),
        gpus=tuple(gpus),
        runs=runs,
        advice=advise(gpus, runs),
    )


def _was_over(before: RunReport | None, after: RunReport) -> bool:
    """Whether a run had ended before: its figures may settle for a while after that."""
    return before is not None and (before.alive is False or before == after)
