"""What is said of a GPU of which little works while it is busy: the claim, the figures, the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpumon.core.device.driver_codes import SLOWDOWNS
from gpumon.core.device.fill import NO_FILL, Evidence, GpuFill, is_held_down, is_under_filled
from gpumon.core.diagnosis.advice_texts import WAYS_OF_FRAMEWORK
from gpumon.core.report.report import UNDER_FILLED, Advice, GpuReport, RunReport, runs_on
from gpumon.core.settings.detector import DEFAULT_FILL_SETTINGS
from gpumon.core.wording import in_percent, in_time, listed

_BUSY: Final = in_percent(DEFAULT_FILL_SETTINGS.busy_above)
HELD_BY: Final = {name: one.meaning for name, one in SLOWDOWNS.items()} | {
    "sw_power_cap": "its power limit"
}
"""What holds clocks down, in words, by NVML's name."""
_FEWER_KERNELS: Final = WAYS_OF_FRAMEWORK | {
    "keras/tensorflow": "compile the step (jit_compile=True)"
}
_ANY_FEWER_KERNELS: Final = "compile the step (jit, torch.compile), or use CUDA graphs"


def under_filled(gpus: Sequence[GpuReport]) -> list[GpuReport]:
    """Those that were busy while little of them worked, the emptiest first."""
    found = [gpu for gpu in gpus if is_under_filled(gpu.fill) and not gpu.is_cut]
    return sorted(found, key=_fullness)


def fill_claim(gpu: GpuReport) -> str:
    """What is so, without the GPU's name.

    Returns:
        Such as ``busy 97 %, but on average 24 % of its multiprocessors have work``:
        a mean over multiprocessors and time, so it may be a quarter of them all
        the time, or all of them a quarter of the time.
    """
    fill = gpu.fill
    busy = "busy"
    if gpu.verdict.lost_ratio is not None:
        busy += f" {in_percent(1.0 - gpu.verdict.lost_ratio)}"
    if fill is None or fill.evidence is Evidence.POWER:
        return f"{busy}, but power {_watts(fill)} suggests that little of it works"
    share = in_percent(fill.sm_active.ratio, DEFAULT_FILL_SETTINGS.sm_active_below)
    return f"{busy}, but on average {share} of its multiprocessors have work"


def fill_figures(fill: GpuFill) -> str:
    """What is known of a GPU's busy time; empty where that is nothing."""
    told = []
    if fill.evidence is Evidence.GPM:
        told.append(f"{in_percent(fill.sm_active.ratio)} of the multiprocessors had work")
    for mean, what in (
        (fill.sm_occupancy, "occupancy"),
        (fill.tensor_active, "tensor cores"),
        (fill.memory_bandwidth, "memory bandwidth"),
    ):
        if mean.ratio is not None:
            told.append(f"{what} {in_percent(mean.ratio)}")
    if fill.power_ns:
        told.append(f"power {_watts(fill)}")
    if fill.sm_clock.ratio is not None:
        told.append(f"clock {in_percent(fill.sm_clock.ratio)} of the highest")
    return ", ".join(told)


def held_sentence(fill: GpuFill | None) -> str:
    """What held its clocks down, where that was more than a moment; else empty."""
    ratio = None if fill is None else fill.held_ratio
    if fill is None or ratio is None or ratio < DEFAULT_FILL_SETTINGS.held_told_from:
        return ""
    by_time = sorted(fill.held_by_ns, key=lambda reason: -fill.held_by_ns[reason])
    words = list(dict.fromkeys(HELD_BY.get(reason, reason) for reason in by_time))
    return (
        f"Its clocks were held down {in_percent(ratio)} of its busy time by "
        f"{listed(words)} ({', '.join(by_time)})."
    )


def fill_reason(gpu: GpuReport) -> str:
    """Evidence on one GPU in a sentence or two; empty where there is nothing to say."""
    fill = gpu.fill
    if fill is None:
        return ""
    if not is_under_filled(fill):
        return held_sentence(fill) if is_held_down(fill) else ""
    over = f"Over {in_time(fill.observed_ns)} in which it was busy more than {_BUSY}"
    if fill.evidence is Evidence.GPM:
        return f"{over}: {fill_figures(fill)}."
    return (
        f"{over}, at full clock, it drew {_watts(fill)} on average; this board "
        "does not tell how many of its multiprocessors work, so that is a hint and no proof."
    )


def under_filled_advice(gpus: Sequence[GpuReport], runs: Sequence[RunReport]) -> Advice | None:
    """What to try for GPUs that are busy and under-filled; ``None`` where there is none."""
    found = under_filled(gpus)
    if not found:
        return None
    claims = [f"GPU {gpu.label} is {fill_claim(gpu)}" for gpu in found]
    emptiest = found[0]
    where = f"GPU {emptiest.label}: " if len(found) > 1 else ""
    reason = fill_reason(emptiest)
    return Advice(
        cause=UNDER_FILLED,
        lost_seconds=0.0,
        speedup_upper_bound=1.0,
        evidence=f"{listed(claims, most=3)}. {where}{reason}",
        text=_what_to_try(found, runs),
        gpus=tuple(gpu.label for gpu in found),
    )


def _what_to_try(gpus: Sequence[GpuReport], runs: Sequence[RunReport]) -> str:
    frameworks = {run.framework for run in runs_on(gpus, runs)}
    batch = "Give the GPU more to do at a time: first a larger batch"
    if frameworks and all(name.startswith("keras/") for name in frameworks):
        batch += " (`trainer-bench --find-batch` finds the largest that fits)"
    ways = {_FEWER_KERNELS.get(name, _ANY_FEWER_KERNELS) for name in frameworks}
    way = ways.pop() if len(ways) == 1 else _ANY_FEWER_KERNELS
    sentences = [f"{batch}; then fewer and larger kernels: {way}."]
    tensors = [gpu.fill.tensor_active.ratio for gpu in gpus if gpu.fill is not None]
    in_use_from = DEFAULT_FILL_SETTINGS.tensors_in_use_from
    if any(ratio is None or ratio < in_use_from for ratio in tensors):
        sentences.append("Mixed precision puts the tensor cores to work.")
    sentences.append("What it gains shows in samples a second, not in utilisation.")
    return " ".join(sentences)


def _fullness(gpu: GpuReport) -> float:
    fill = gpu.fill or NO_FILL
    ratio = fill.power_ratio if fill.sm_active.ratio is None else fill.sm_active.ratio
    return 1.0 if ratio is None else ratio


def _watts(fill: GpuFill | None) -> str:
    if fill is None or fill.power_watts is None or fill.power_limit_watts is None:
        return "unknown"
    return f"{fill.power_watts:,.0f} of {fill.power_limit_watts:,.0f} W"
