"""What a log covers: GPUs with too few samples for a verdict, and rows without a utilisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.core.diagnosis import messages
from gpumon.core.report.report import TOO_FEW_SAMPLES, Advice, GpuReport, diagnosed
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.verdict import VerdictName
from gpumon.core.wording import counted, gpus_named, in_percent, in_time

_LIMITS: Final = DEFAULT_SETTINGS.log
_MAX_GROUPS: Final = 3
"""How many groups of GPUs with the same number of samples are reported apart."""


def is_few(gpu: GpuReport) -> bool:
    """Whether its verdict is that there are too few samples of it."""
    return gpu.verdict.name is VerdictName.TOO_FEW_SAMPLES


def samples_of(gpu: GpuReport) -> str:
    """How many samples there are of it, and how far apart."""
    totals = gpu.totals
    if not totals.samples:
        return "no sample with a utilisation"
    samples = counted(totals.samples, "sample", "samples")
    if totals.sample_distance_ns and totals.samples > 1:
        return f"{samples}, one every {in_time(totals.sample_distance_ns)}"
    return samples


def few_samples_sentences(gpus: Sequence[GpuReport]) -> str:
    """That there are too few samples of each of these."""
    groups: dict[str, list[GpuReport]] = {}
    for gpu in gpus:
        groups.setdefault(samples_of(gpu), []).append(gpu)
    sentences = []
    for samples, alike in [*groups.items()][:_MAX_GROUPS]:
        row = messages.FEW_SAMPLES if alike[0].totals.samples else messages.NO_SAMPLES
        names = gpus_named(gpu.label for gpu in alike)
        sentences.append(row.of(len(alike), gpus=names, samples=samples))
    more = sum(map(len, [*groups.values()][_MAX_GROUPS:]))
    sentences += [messages.MORE_WITH_FEW_SAMPLES.of(more)] if more else []
    return " ".join(sentences)


def few_samples_reason(gpu: GpuReport) -> str:
    """How many samples a verdict needs, and what so few of them leave unknown."""
    needed = messages.SAMPLES_NEEDED.format(
        samples=_LIMITS.min_samples, time=in_time(_LIMITS.longest_distance_ns)
    )
    is_dense = (gpu.totals.sample_distance_ns or 0) < 2 * NS_PER_S
    return needed if is_dense else f"{needed} {messages.SAMPLES_APART}"


def few_samples_advice(gpus: Sequence[GpuReport]) -> Advice | None:
    """What to log, where there is a GPU with too few samples."""
    few = [gpu for gpu in diagnosed(gpus) if is_few(gpu)]
    if not few:
        return None
    without = [gpu.label for gpu in few if not gpu.totals.samples]
    texts = [messages.LOG_A_SECOND] if len(without) < len(few) else []
    if without:
        texts.append(messages.NO_UTILISATION.format(gpus=gpus_named(without)))
    return Advice(
        cause=TOO_FEW_SAMPLES,
        lost_seconds=0.0,
        speedup_upper_bound=None,
        evidence=few_samples_sentences(few),
        text=" ".join(texts),
        gpus=tuple(gpu.label for gpu in few),
    )


def has_gaps(gpu: GpuReport) -> bool:
    """Whether so many of its rows have no utilisation that each sentence on it must say so."""
    return gpu.totals.usable_share < _LIMITS.usable_enough and not is_few(gpu)


def is_mostly_unseen(gpu: GpuReport) -> bool:
    """Whether most of its rows have none: then a loss is not one of the whole log."""
    return gpu.totals.usable_share < _LIMITS.usable_least and not is_few(gpu)


def usable_share(gpu: GpuReport) -> str:
    """The share of its rows that have a utilisation."""
    return in_percent(gpu.totals.usable_share, _LIMITS.usable_enough, _LIMITS.usable_least)


def have_one_share(gpus: Sequence[GpuReport]) -> bool:
    """Whether these are several, and the same share of the rows of each can be used."""
    return len(gpus) > 1 and len({usable_share(gpu) for gpu in gpus}) == 1


def rows_used_sentence(gpus: Sequence[GpuReport]) -> str:
    """Which share of the rows the verdicts rest on; empty where that is enough of them."""
    with_gaps = [gpu for gpu in gpus if has_gaps(gpu)]
    if not with_gaps:
        return ""
    least = usable_share(min(with_gaps, key=lambda gpu: gpu.totals.usable_share))
    names = gpus_named(gpu.label for gpu in with_gaps)
    return messages.ROWS_USED.of(len(with_gaps), gpus=names, share=least)
