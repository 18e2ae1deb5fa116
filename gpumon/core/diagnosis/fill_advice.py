"""Low SM utilisation: busy GPUs with few multiprocessors at work, and what to try."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpumon.core.device.driver_codes import SLOWDOWNS
from gpumon.core.device.sm_utilisation import (
    NO_FILL,
    Evidence,
    GpuFill,
    are_clocks_reduced,
    is_under_filled,
)
from gpumon.core.diagnosis import messages
from gpumon.core.report.report import UNDER_FILLED, Advice, GpuReport, RunReport, runs_on
from gpumon.core.settings.detector import DEFAULT_FILL_SETTINGS
from gpumon.core.wording import in_percent, in_time, listed

_LIMITS: Final = DEFAULT_FILL_SETTINGS
HELD_BY: Final = {name: one.meaning for name, one in SLOWDOWNS.items()} | {
    "sw_power_cap": "its power limit"
}
"""What holds clocks down, by NVML's name."""
_MAX_NAMED: Final = 3


def low_fill_sentence(gpu: GpuReport) -> str:
    """That a GPU was busy, and little of it worked.

    The share is a mean over multiprocessors and time: it may be a quarter of them all the time,
    or all of them a quarter of the time.
    """
    fill = gpu.fill or NO_FILL
    busy = in_percent(1.0 - (gpu.verdict.lost_ratio or 0.0))
    if fill.evidence is Evidence.POWER:
        return messages.LOW_POWER.format(gpu=gpu.label, busy=busy, watts=_watts(fill))
    share = in_percent(fill.sm_active.ratio, _LIMITS.sm_active_below)
    return messages.LOW_FILL.format(gpu=gpu.label, busy=busy, share=share)


def fill_figures(fill: GpuFill) -> str:
    """What is known of a GPU's busy time; empty where that is nothing."""
    figures = []
    if fill.evidence is Evidence.GPM:
        figures.append(f"{in_percent(fill.sm_active.ratio)} of the multiprocessors had work")
    for mean, what in (
        (fill.sm_occupancy, "occupancy"),
        (fill.tensor_active, "tensor cores"),
        (fill.memory_bandwidth, "memory bandwidth"),
    ):
        if mean.ratio is not None:
            figures.append(f"{what} {in_percent(mean.ratio)}")
    if fill.power_ns:
        figures.append(f"power {_watts(fill)}")
    if fill.sm_clock.ratio is not None:
        figures.append(f"clock {in_percent(fill.sm_clock.ratio)} of its maximum")
    return ", ".join(figures)


def clocks_held_sentence(fill: GpuFill | None) -> str:
    """What held its clocks down; empty where that was for hardly any of its busy time."""
    ratio = None if fill is None else fill.throttled_ratio
    if fill is None or ratio is None or ratio < _LIMITS.held_told_from:
        return ""
    by_time = sorted(fill.throttled_by_ns, key=lambda reason: -fill.throttled_by_ns[reason])
    what = listed(list(dict.fromkeys(HELD_BY.get(reason, reason) for reason in by_time)))
    return messages.CLOCKS_HELD.format(
        share=in_percent(ratio), what=what, reasons=", ".join(by_time)
    )


def fill_reason(gpu: GpuReport) -> str:
    """The evidence of low SM utilisation, or of clocks reduced; else empty."""
    fill = gpu.fill
    if fill is None:
        return ""
    if not is_under_filled(fill):
        return clocks_held_sentence(fill) if are_clocks_reduced(fill) else ""
    busy, time = in_percent(_LIMITS.busy_above), in_time(fill.observed_ns)
    if fill.evidence is Evidence.GPM:
        return messages.FILL_FIGURES.format(busy=busy, time=time, figures=fill_figures(fill))
    return messages.FILL_HINT.format(busy=busy, time=time, watts=_watts(fill))


def low_fill_advice(gpus: Sequence[GpuReport], runs: Sequence[RunReport]) -> Advice | None:
    """What to try for GPUs with low SM utilisation; ``None`` where there is none."""
    found = [gpu for gpu in gpus if is_under_filled(gpu.fill) and not gpu.is_partitioned]
    if not found:
        return None
    found.sort(key=_fullness)
    evidence = [low_fill_sentence(gpu) for gpu in found[:_MAX_NAMED]]
    evidence.insert(1, fill_reason(found[0]))
    return Advice(
        cause=UNDER_FILLED,
        lost_seconds=0.0,
        speedup_upper_bound=1.0,
        evidence=" ".join(evidence),
        text=_what_to_try(found, runs),
        gpus=tuple(gpu.label for gpu in found),
    )


def _what_to_try(gpus: Sequence[GpuReport], runs: Sequence[RunReport]) -> str:
    frameworks = {run.framework for run in runs_on(gpus, runs)}
    is_keras = bool(frameworks) and all(name.startswith("keras/") for name in frameworks)
    row = messages.MORE_WORK_BY_KERAS if is_keras else messages.MORE_WORK_AT_A_TIME
    ways = {messages.WAYS_OF_FRAMEWORK.get(name, messages.ANY_WAYS) for name in frameworks}
    sentences = [row.format(way=ways.pop() if len(ways) == 1 else messages.ANY_WAYS)]
    tensors = [gpu.fill.tensor_active.ratio for gpu in gpus if gpu.fill is not None]
    if any(ratio is None or ratio < _LIMITS.tensors_in_use_from for ratio in tensors):
        sentences.append(messages.MIXED_PRECISION)
    return " ".join([*sentences, messages.GAIN_IN_SAMPLES])


def _fullness(gpu: GpuReport) -> float:
    fill = gpu.fill or NO_FILL
    ratio = fill.power_ratio if fill.sm_active.ratio is None else fill.sm_active.ratio
    return 1.0 if ratio is None else ratio


def _watts(fill: GpuFill) -> str:
    if fill.power_watts is None or fill.power_limit_watts is None:
        return "unknown"
    return f"{fill.power_watts:,.0f} of {fill.power_limit_watts:,.0f} W"
