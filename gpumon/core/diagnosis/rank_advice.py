"""GPUs that wait for a late rank of their job while they read as busy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from gpumon.core.accounting.rank_wait import RankWait
from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.clock import seconds
from gpumon.core.diagnosis import messages
from gpumon.core.diagnosis.loss_range import speedup_upper_bound
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


def rank_named(wait: RankWait) -> str:
    """The late rank and why it is late: ``rank 2 (train-r2), whose input is late``."""
    return f"{_rank(wait)}, {messages.LATE_BECAUSE.get(wait.cause, messages.LATE)}"


def _rank(wait: RankWait) -> str:
    return f"rank {wait.rank} ({label_text(wait.run)})"


def waits_much(gpu: GpuReport) -> bool:
    """Whether such waits are worth a verdict, or a verdict that stands rests on them."""
    if gpu.waits_for is None:
        return False
    stands = gpu.verdict.name in (VerdictName.STALLED, VerdictName.PARTIAL)
    return may_wait_for_rank(gpu.totals.diagnosed, _UNTIL_OFF if stands else DEFAULT_SETTINGS)


def wait_in_percent(totals: GpuTotals, *limits: float) -> str:
    """The share of its time in use that it waited; a range where that is not known better."""
    in_use_ns = totals.in_use_ns
    low, high = totals.rank_wait_low_ns / in_use_ns, totals.rank_wait_high_ns / in_use_ns
    return percent_range(low, high, *limits) if _is_wide(totals) else in_percent(low, *limits)


def wait_in_time(totals: GpuTotals) -> str:
    """The same as a time."""
    low_ns, high_ns = totals.rank_wait_low_ns, totals.rank_wait_high_ns
    return time_range(low_ns, high_ns) if _is_wide(totals) else in_time(low_ns)


def _is_wide(totals: GpuTotals) -> bool:
    """Whether one figure would mislead, or hide that the verdict rests on the higher one."""
    low_ns, high_ns = totals.rank_wait_low_ns, totals.rank_wait_high_ns
    limit_ns = DEFAULT_SETTINGS.lost_share * totals.in_use_ns
    range_ns = DEFAULT_SETTINGS.wide_range * totals.in_use_ns
    return high_ns - low_ns > range_ns or low_ns < limit_ns <= high_ns


def late_rank_text(
    waiting: Sequence[GpuReport], gpus: Sequence[GpuReport], runs: Sequence[RunReport]
) -> str:
    """What to do about the rank that most of these wait for; empty where none is known."""
    waits = [gpu.waits_for for gpu in waiting if gpu.waits_for is not None]
    if not waits:
        return ""
    wait = max(waits, key=waits.count)
    those = [gpu for gpu in waiting if gpu.waits_for == wait]
    run = next((run for run in runs if (run.run, run.rank) == (wait.run, wait.rank)), None)
    on = [gpu.label for gpu in gpus if run is not None and gpu.uuid in run.gpu_uuids]
    rank = f"{_rank(wait)} on {gpus_named(on)}" if on else _rank(wait)
    remedy = messages.SPEED_UP_RANK.get(wait.cause, messages.CHECK_RANK).format(rank=rank)
    names = gpus_named(gpu.label for gpu in those)
    idle = IdleCause.IMBALANCE
    if any(gpu.totals.rank_wait_low_ns or gpu.totals.idle_ns.get(idle) for gpu in those):
        return f"{remedy} {messages.WAITS_FOR_RANK.of(len(those), gpus=names)}"
    return f"{remedy} {messages.MAY_WAIT_FOR_RANK.format(gpus=names)}"


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
    shares = [
        f"GPU {gpu.label} for {wait_in_time(gpu.totals)} of {in_time(gpu.totals.in_use_ns)} in use"
        for gpu in hit
    ]
    row = messages.RANK_EVIDENCE if low_ns else messages.RANK_EVIDENCE_OPEN
    return Advice(
        cause=LATE_RANK,
        lost_seconds=seconds(sum(gpu.totals.rank_wait_low_ns for gpu in hit)),
        speedup_upper_bound=speedup_upper_bound(worst.in_use_ns, low_ns) if low_ns else None,
        evidence=row.format(rank=rank_named(wait), shares=listed(shares, most=3)),
        text=late_rank_text(hit, gpus, runs),
        gpus=tuple(gpu.label for gpu in hit),
    )
