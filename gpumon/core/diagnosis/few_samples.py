"""Sentences on GPUs with too few samples in a log for a verdict, and what to log instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.core.report.report import TOO_FEW_SAMPLES, Advice, GpuReport, judged
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.verdict import VerdictName
from gpumon.core.wording import counted, gpus_named, in_time

LOG_A_SECOND: Final = (
    "Log one row a second for ten minutes while it works: "
    "`timeout 600 nvidia-smi --query-gpu=timestamp,index,utilization.gpu --format=csv -l 1 > "
    "gpu.csv`, then `gpumon analyze gpu.csv`."
)
_NO_VALUE: Final = (
    "The log holds no utilisation of {gpus}: `gpumon doctor`, on that machine, says whether its "
    "driver reports one. With MIG on, the driver reports none of the whole GPU."
)


_MOST_TOLD: Final = 3
"""So many groups of GPUs with as many samples are told apart."""


def is_few(gpu: GpuReport) -> bool:
    """Whether its verdict is that there are too few samples of it."""
    return gpu.verdict.name is VerdictName.TOO_FEW_SAMPLES


def samples_told(gpu: GpuReport) -> str:
    """How many samples there are of it, and how far apart; a clause without a verb."""
    totals = gpu.totals
    if not totals.samples:
        return "no sample with a utilisation"
    return f"{counted(totals.samples, 'sample', 'samples')} in the log{_every(gpu)}"


def _every(gpu: GpuReport) -> str:
    distance_ns, samples = gpu.totals.sample_distance_ns, gpu.totals.samples or 0
    return f", one every {in_time(distance_ns)}" if distance_ns and samples > 1 else ""


def few_claim(gpus: Sequence[GpuReport]) -> str:
    """That there are too few samples of each of these."""
    alike: dict[tuple[int, str], list[str]] = {}
    for gpu in gpus:
        alike.setdefault((gpu.totals.samples or 0, _every(gpu)), []).append(gpu.label)
    said = []
    for (samples, every), labels in [*alike.items()][:_MOST_TOLD]:
        have = "has" if len(labels) == 1 else "have"
        count = counted(samples, "sample", "samples") if samples else "no sample with a utilisation"
        each = " each" if samples and len(labels) > 1 else ""
        said.append(f"{gpus_named(labels)} {have} {count}{each}{every}")
    more = sum(map(len, [*alike.values()][_MOST_TOLD:]))
    said += [f"{counted(more, 'more GPU has', 'more GPUs have')} too few, too"] if more else []
    return f"{'; '.join(said)}: too few to say where the time went."


def few_reason(gpu: GpuReport) -> str:
    """What a verdict takes, and what so few samples leave open; sentences."""
    limits = DEFAULT_SETTINGS.log
    takes = (
        f"a verdict takes at least {limits.min_samples} samples, in the median at most "
        f"{in_time(limits.longest_distance_ns)} apart."
    )
    if (gpu.totals.sample_distance_ns or 0) < 2 * NS_PER_S:
        return takes
    return f"{takes} Each of these may cover only the second before it: the rest is unknown."


def few_advice(gpus: Sequence[GpuReport]) -> Advice | None:
    """What to log, where there is a GPU with too few samples; ``None``: there is none."""
    few = [gpu for gpu in judged(gpus) if is_few(gpu)]
    if not few:
        return None
    mute = [gpu.label for gpu in few if not gpu.totals.samples]
    texts = [LOG_A_SECOND] if len(mute) < len(few) else []
    if mute:
        texts.append(_NO_VALUE.format(gpus=gpus_named(mute)))
    return Advice(
        cause=TOO_FEW_SAMPLES,
        lost_seconds=0.0,
        speedup_upper_bound=None,
        evidence=few_claim(few),
        text=" ".join(texts),
        gpus=tuple(gpu.label for gpu in few),
    )
