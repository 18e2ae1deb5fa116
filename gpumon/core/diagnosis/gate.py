"""A report compared with limits: which GPUs are above them, and which have no verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from gpumon.core.clock import seconds
from gpumon.core.diagnosis.messages import WORD_OF_CAUSE, WORD_OF_FIRST_WAIT, Counted
from gpumon.core.phase import OUT_OF_USE, IdleCause
from gpumon.core.report.report import GpuReport, Report
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.wording import gpus_named, in_percent, in_time, label_text, listed, plainly

_TOO_SHORT: Final = f"less than {seconds(DEFAULT_SETTINGS.min_in_use_ns):g} s"
_RUNS_ON_NO_GPU: Final = Counted(
    "the run {runs} used no GPU (set GPUMON_GPUS to name the GPU)",
    "the runs {runs} used no GPU (set GPUMON_GPUS to name the GPU)",
)
_MAX_NAMED: Final = 16
_MAX_ERROR: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The most of the time in use that a GPU may lose, 0 to 1; ``None``: no limit.

    Attributes:
        starved: To waits for input, proved or suspected, without the wait for the first batch.
        lost: To anything, the wait for the first batch included.
    """

    starved: float | None = None
    lost: float | None = None


class GateResult(NamedTuple):
    """The result of comparing a report with limits.

    Attributes:
        failures: A sentence on each limit that a GPU is above.
        notes: What else a reader must know, a sentence each.
        undiagnosed: The GPUs without a verdict, and why; empty where there are none.
        is_any_diagnosed: Whether there is a verdict on at least one GPU. Without one, neither
            "above" nor "below" is known.
    """

    failures: tuple[str, ...]
    notes: tuple[str, ...]
    undiagnosed: str
    is_any_diagnosed: bool


def compared(report: Report, limits: Limits) -> GateResult:
    """Compare every GPU that has a verdict with the limits.

    A GPU that was not in use, or for too short a time, is never compared, because a share of a
    few seconds means nothing. Exactly at a limit is not above it.
    """
    gpus = [gpu for gpu in report.gpus if _is_diagnosed(gpu)]
    undiagnosed = _undiagnosed(report)
    failures: list[str] = []
    notes: list[str] = []
    if gpus and undiagnosed:
        notes.append(f"not checked: {undiagnosed}")
    if limits.starved is not None:
        what = "starved, or suspected to be, for more than {} of the time in use"
        failures += _above(what, limits.starved, [(gpu, _starved(gpu), "") for gpu in gpus])
        notes += [_unknown(gpu) for gpu in gpus if _may_be_starved(gpu, limits.starved)]
    if limits.lost is not None:
        lost = [(gpu, gpu.verdict.lost_ratio or 0.0, _main_cause(gpu)) for gpu in gpus]
        failures += _above("more than {} of the time in use is lost", limits.lost, lost)
    if limits != Limits():
        notes += [
            f"GPU {gpu.label} cannot be read now: its verdict covers the "
            f"{in_time(gpu.totals.observed_ns)} observed earlier"
            for gpu in gpus
            if gpu.error is not None
        ]
    return GateResult(tuple(failures), tuple(notes), undiagnosed, bool(gpus))


def _is_diagnosed(gpu: GpuReport) -> bool:
    is_known = gpu.verdict.name.is_conclusive and gpu.verdict.lost_ratio is not None
    return is_known and gpu.is_diagnosable


def _above(claim: str, limit: float, gpus: Sequence[tuple[GpuReport, float, str]]) -> list[str]:
    above = [
        f"GPU {gpu.label} ({in_percent(ratio, limit)}{why})"
        for gpu, ratio, why in gpus
        if ratio > limit
    ]
    # As it was typed: `in_percent` would round 12.5.
    percent = f"{plainly(round(100.0 * limit, 6))} %"
    return [f"{claim.format(percent)}: {listed(above, most=_MAX_NAMED)}"] if above else []


def _starved(gpu: GpuReport) -> float:
    return gpu.verdict.starved_ratio or 0.0


def _main_cause(gpu: GpuReport) -> str:
    """The cause that took most."""
    totals, idle_ns = gpu.totals, gpu.totals.diagnosed.idle_ns
    parts = {WORD_OF_CAUSE[one]: ns for one, ns in idle_ns.items() if one not in OUT_OF_USE}
    parts[WORD_OF_FIRST_WAIT] = totals.first_input_wait_ns
    cause = max(parts, key=parts.__getitem__)
    if cause != WORD_OF_CAUSE[IdleCause.UNKNOWN]:
        return f", mainly {cause}"
    is_suspected = 2 * totals.suspected_ns > parts[cause]
    return ", suspected to wait for input" if is_suspected else f", {cause}"


def _may_be_starved(gpu: GpuReport, limit: float) -> bool:
    coverage, starved = gpu.verdict.coverage_ratio, _starved(gpu)
    if coverage is None or coverage >= DEFAULT_SETTINGS.min_coverage:
        return False
    return starved <= limit < starved + _unknown_ratio(gpu)


def _unknown_ratio(gpu: GpuReport) -> float:
    """The share of its time in use that has no known cause and is not suspected either."""
    totals = gpu.totals
    unknown_ns = totals.idle_ns.get(IdleCause.UNKNOWN, 0) - totals.suspected_ns
    return unknown_ns / totals.in_use_ns


def _unknown(gpu: GpuReport) -> str:
    return (
        f"{in_percent(_unknown_ratio(gpu))} of the time in use of GPU {gpu.label} has no known "
        "cause and may also be waits for input: tag the phases of its run to find out"
    )


# -- GPUs without a verdict ----------------------------------------------------------


def _undiagnosed(report: Report) -> str:
    parents = {gpu.parent_uuid for gpu in report.gpus}
    groups: dict[str, list[str]] = {}
    for gpu in report.gpus:
        has_instances = gpu.is_partitioned and gpu.uuid in parents
        if not (_is_diagnosed(gpu) or has_instances):
            groups.setdefault(_reason(gpu), []).append(gpu.label)
    reasons = [f"{gpus_named(labels)} ({reason})" for reason, labels in groups.items()]
    reasons += _on_no_gpu(report)
    return ", ".join(reasons) if reasons or report.gpus else "no GPU was observed"


def _on_no_gpu(report: Report) -> list[str]:
    """Runs that used no GPU: no verdict is on them.

    A name is left out if another run with it used one: readers would take it for that.
    """
    runs = report.observed_runs
    used = {run.name for run in runs if run.gpu_uuids}
    nowhere = [run.run for run in runs if not run.gpu_uuids and run.name not in used]
    names = [label_text(label) for label in dict.fromkeys(nowhere)]
    return [_RUNS_ON_NO_GPU.of(len(names), runs=listed(names))] if names else []


def _reason(gpu: GpuReport) -> str:
    """Why there is no verdict on a GPU."""
    totals = gpu.totals
    if gpu.is_partitioned:
        return "MIG-partitioned without an instance"
    if gpu.has_no_utilisation:
        return "does not report how busy it is"
    if gpu.error is not None and not totals.observed_ns:
        return f"cannot be read: {label_text(gpu.error, _MAX_ERROR).rstrip('.')}"
    if not totals.observed_ns:
        return "not observed"
    if totals.hanging_now or totals.hanging_idle_ns:
        return "its run hangs" if totals.hanging_now else "its run hung almost all the time"
    if totals.in_use_ns:
        after = " after the first batch" if totals.first_input_wait_ns else ""
        return f"in use for {_TOO_SHORT}{after}"
    return f"watched for {_TOO_SHORT}" if gpu.is_hardly_observed else "not in use"
