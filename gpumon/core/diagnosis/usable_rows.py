"""What a log can tell of a GPU where many of its rows do not say how busy it was."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.core.diagnosis.few_samples import LOG_A_SECOND, is_few
from gpumon.core.report.report import GpuReport
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.wording import gpus_named, in_percent

_LIMITS = DEFAULT_SETTINGS.log


def has_gaps(gpu: GpuReport) -> bool:
    """Whether so many of its rows say nothing that each sentence on it must say so."""
    return gpu.totals.usable_share < _LIMITS.usable_enough and not is_few(gpu)


def is_mostly_unseen(gpu: GpuReport) -> bool:
    """Whether that is most of them: then no loss is one of the whole log."""
    return gpu.totals.usable_share < _LIMITS.usable_least and not is_few(gpu)


def usable_share(gpu: GpuReport) -> str:
    """The share of its rows that say how busy it was."""
    return in_percent(gpu.totals.usable_share, _LIMITS.usable_enough, _LIMITS.usable_least)


def are_alike(gpus: Sequence[GpuReport]) -> bool:
    """Whether these are several, and the same share of the rows of each can be used."""
    return len(gpus) > 1 and len({usable_share(gpu) for gpu in gpus}) == 1


def rests_on(gpus: Sequence[GpuReport]) -> str:
    """A sentence on what the verdicts on these rest on; empty where that is all of their rows."""
    with_gaps = [gpu for gpu in gpus if has_gaps(gpu)]
    if not with_gaps:
        return ""
    names = gpus_named(gpu.label for gpu in with_gaps)
    least = usable_share(min(with_gaps, key=lambda gpu: gpu.totals.usable_share))
    if len(with_gaps) == 1:
        return f"Of {names}, {least} of the rows can be used."
    return f"Of {names}, as little as {least} of the rows can be used."


def text_for_gaps(gpus: Sequence[GpuReport]) -> str:
    """What to do about GPUs that did nothing in the rows that can be used."""
    names = gpus_named(gpu.label for gpu in gpus)
    return f"What {names} did in the other rows is not known. {LOG_A_SECOND}"
