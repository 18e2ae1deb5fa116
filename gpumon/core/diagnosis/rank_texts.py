"""Texts on GPUs that wait for another rank of their job while they read as busy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from gpumon.core.accounting.rank_wait import ITS_STEP, SUSPENDED, RankWait
from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.clock import seconds
from gpumon.core.diagnosis.speedup import speedup_upper_bound
from gpumon.core.diagnosis.verdict_rules import may_wait_for_rank
from gpumon.core.phase import IdleCause
from gpumon.core.report.report import LATE_RANK, Advice, GpuReport, RunReport
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.verdict import VerdictName
from gpumon.core.wording import (
    gpus_named,
    in_percent,
    in_time,
    label_text,
    listed,
    percent_range,
    time_range,
)

_UNTIL_OFF: Final = replace(DEFAULT_SETTINGS, lost_share=DEFAULT_SETTINGS.flag_off_share)
_IS_LATE: Final[Mapping[str, str]] = {
    IdleCause.INPUT_WAIT.value: "whose input is late",
    IdleCause.HOST_TO_DEVICE.value: "which copies to its GPU meanwhile",
    IdleCause.CALLBACKS.value: "which is in its callbacks meanwhile",
    IdleCause.CHECKPOINT.value: "which saves a checkpoint meanwhile",
    IdleCause.VALIDATION.value: "which validates meanwhile",
    IdleCause.BETWEEN_EPOCHS.value: "which takes longer between its epochs",
    SUSPENDED: "which was suspended",
    ITS_STEP: "whose steps take longer",
}
_REMEDY: Final[Mapping[str, str]] = {
    IdleCause.INPUT_WAIT.value: "Speed up the input of {} first",
    IdleCause.HOST_TO_DEVICE.value: "Hide the copies of {} first",
    IdleCause.CALLBACKS.value: "Take work out of the callbacks of {} first",
    IdleCause.CHECKPOINT.value: "Save checkpoints on {} less often, or in the background",
    IdleCause.VALIDATION.value: "Validate on all ranks, or less often, and not on {} alone",
    IdleCause.BETWEEN_EPOCHS.value: "Look at what {} does between its epochs",
    SUSPENDED: "Resume {} if it still is suspended",
    ITS_STEP: "Give {} a smaller share of each batch, or see why its steps take longer",
}


def rank_named(wait: RankWait) -> str:
    """Whom it waits for, and why that one is late: ``rank 2 (train-r2), whose input is late``."""
    return f"{_rank(wait)}, {_IS_LATE.get(wait.cause, 'which is late')}"


def _rank(wait: RankWait) -> str:
    return f"rank {wait.rank} ({label_text(wait.run)})"


def waits_much(gpu: GpuReport) -> bool:
    """Whether such waits are worth a verdict, or a verdict that stands rests on them."""
    if gpu.waits_for is None:
        return False
    stands = gpu.verdict.name in (VerdictName.STALLED, VerdictName.PARTIAL)
    return may_wait_for_rank(gpu.totals.judged, _UNTIL_OFF if stands else DEFAULT_SETTINGS)


def wait_in_percent(totals: GpuTotals, *limits: float) -> str:
    """For which share of its time in use it waited: between two, where that is not known better."""
    low, high = (ns / totals.in_use_ns for ns in _bounds_ns(totals))
    return percent_range(low, high, *limits) if _is_wide(totals) else in_percent(low, *limits)


def wait_in_time(totals: GpuTotals) -> str:
    """The same as a time."""
    low_ns, high_ns = _bounds_ns(totals)
    if _is_wide(totals):
        return time_range(low_ns, high_ns)
    return in_time(low_ns)


def _is_wide(totals: GpuTotals) -> bool:
    """Whether one figure would mislead, or hide that the verdict rests on the higher one."""
    low_ns, high_ns = _bounds_ns(totals)
    limit_ns = DEFAULT_SETTINGS.lost_share * totals.in_use_ns
    range_ns = DEFAULT_SETTINGS.wide_range * totals.in_use_ns
    return high_ns - low_ns > range_ns or low_ns < limit_ns <= high_ns


def _of_its_use(totals: GpuTotals) -> str:
    return f"{wait_in_time(totals)} of {in_time(totals.in_use_ns)} in use"


def _bounds_ns(totals: GpuTotals) -> tuple[int, int]:
    return totals.rank_wait_low_ns, totals.rank_wait_high_ns


def late_rank_text(
    waiting: Sequence[GpuReport], gpus: Sequence[GpuReport], runs: Sequence[RunReport]
) -> str:
    """What to do about the rank that most of these wait for; empty where none is known."""
    waits = [gpu.waits_for for gpu in waiting if gpu.waits_for is not None]
    if not waits:
        return ""
    wait = max(waits, key=waits.count)
    those = [gpu for gpu in waiting if gpu.waits_for == wait]
    named, one = gpus_named(gpu.label for gpu in those), len(those) == 1
    run = next((run for run in runs if (run.run, run.rank) == (wait.run, wait.rank)), None)
    on = [gpu.label for gpu in gpus if run is not None and gpu.uuid in run.gpu_uuids]
    whom = f"{_rank(wait)}{f' on {gpus_named(on)}' if on else ''}"
    remedy = _REMEDY.get(wait.cause, "Look at {} first").format(whom)
    if not any(gpu.totals.rank_wait_low_ns or _waits_idle(gpu) for gpu in those):
        return f"{remedy}: {named} may wait for it."
    return f"{remedy}: {named} {'waits' if one else 'wait'} for it."


def _waits_idle(gpu: GpuReport) -> bool:
    return gpu.totals.idle_ns.get(IdleCause.IMBALANCE, 0) > 0


def late_rank_advice(gpus: Sequence[GpuReport], runs: Sequence[RunReport]) -> Advice | None:
    """What to do about the rank that GPUs wait for while they read as busy; ``None``: none does."""
    hit = [gpu for gpu in gpus if waits_much(gpu)]
    ranks = [gpu.waits_for for gpu in hit if gpu.waits_for is not None]
    if not ranks:
        return None
    wait = max(ranks, key=ranks.count)
    hit = [gpu for gpu in hit if gpu.waits_for == wait]
    worst = max((gpu.totals for gpu in hit), key=lambda totals: totals.rank_wait_low_ns)
    low_ns = worst.rank_wait_low_ns
    waits = "but waiting" if low_ns else "and perhaps waiting"
    each = [f"GPU {gpu.label} for {_of_its_use(gpu.totals)}" for gpu in hit]
    return Advice(
        cause=LATE_RANK,
        lost_seconds=seconds(sum(gpu.totals.rank_wait_low_ns for gpu in hit)),
        speedup_upper_bound=speedup_upper_bound(worst.in_use_ns, low_ns) if low_ns else None,
        evidence=f"Busy by the driver, {waits} for {rank_named(wait)}: {listed(each, most=3)}.",
        text=late_rank_text(hit, gpus, runs),
        gpus=tuple(gpu.label for gpu in hit),
    )
