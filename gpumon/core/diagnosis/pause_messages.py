"""Sentences on pauses that nothing explains: what is certain, what is likely, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.core.diagnosis import messages
from gpumon.core.diagnosis.log_findings import has_gaps
from gpumon.core.diagnosis.verdict_rules import certain_lost_ns, is_mostly_in_pauses
from gpumon.core.report.report import GpuReport, Sampling
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.verdict import LikelyCause, Verdict
from gpumon.core.wording import counted, in_about, in_percent

_UNSEEN_FROM_NS: Final = 2 * NS_PER_S
"""A sample covers at most the second before it: from here on, half of the time is unseen."""
_MOSTLY_LOW: Final = DEFAULT_SETTINGS.advice.mostly_low_share
_INPUT_OR_OPEN: Final = (LikelyCause.LATE_INPUT, LikelyCause.OPEN)


def untagged_text(gpus: Sequence[GpuReport]) -> str:
    """What to do about idle time that no tag explains, by the pauses of the GPUs that lose it.

    No speed-up and no number of workers is promised: pauses alone prove neither.
    """
    worst = max(gpus, key=lambda gpu: (certain_lost_ns(gpu.totals), gpu.totals.lost_ns))
    first = messages.LEVEL
    if is_mostly_in_pauses(worst.totals):
        causes = worst.verdict.likely_causes
        first = messages.FEW_PAUSES if causes is None else messages.AFTER_PAUSES[causes[0]]
    elif all(gpu.totals.low_ns > _MOSTLY_LOW * gpu.totals.in_use_ns for gpu in gpus):
        first = messages.MOSTLY_IDLE
    return f"{first} {messages.TAG_PHASES}"


def likely_text(verdict: Verdict, times: str = "", *, was_seen: bool = False) -> str:
    """What its pauses can be, with the probability where the shape decides, and how to check.

    Args:
        verdict: On a GPU that loses time in pauses that nothing explains.
        times: When the last of them began, with its preposition; empty: unknown.
        was_seen: Whether some of them have stack samples, which the probability includes.
    """
    causes, probability = verdict.likely_causes, verdict.input_probability
    if causes is None or probability is None:
        return ""
    words = messages.LIKELY
    others = ", or ".join(words[cause] for cause in causes if cause not in _INPUT_OR_OPEN)
    fields = {"percent": _whole_percent(probability), "others": others or "something else"}
    if probability >= DEFAULT_SETTINGS.suspected_from:
        row = messages.OTHERS_PROBABLY_INPUT if was_seen else messages.PROBABLY_INPUT
        text = row.format(**fields)
    elif causes[0] is LikelyCause.OPEN:
        known = (*_INPUT_OR_OPEN, LikelyCause.REQUESTS)
        each = [LikelyCause.LATE_INPUT, *(cause for cause in causes if cause not in known)]
        listed = ", ".join(words[cause] for cause in each)
        text = messages.SHAPE_IS_OPEN.format(causes=f"{listed}, or {words[LikelyCause.REQUESTS]}")
    else:
        text = messages.LESS_LIKE_INPUT.format(**fields)
    return f"{text} {_how_to_check(causes, times)}".rstrip()


def _whole_percent(probability: float) -> str:
    """Rounded down, so that no printed figure belongs to another sentence."""
    percent = int(100 * probability + 1e-9)
    return f"{percent} %" if percent else "below 1 %"


def _how_to_check(causes: Sequence[LikelyCause], times: str) -> str:
    if not times:
        return ""
    is_input = LikelyCause.LATE_INPUT in causes
    if LikelyCause.REQUESTS in causes:
        check = messages.LAST_PAUSES_OF_REQUESTS.format(times=times)
        return f"{check} {messages.ELSE_INPUT}" if is_input else check
    check = messages.LAST_PAUSES_OF_A_JOB.format(times=times)
    if LikelyCause.OPEN in causes:
        return f"{check} {messages.ELSE_INPUT_OR_NO_WORK if is_input else messages.ELSE_NO_WORK}"
    return f"{check} {messages.ELSE_INPUT}" if is_input else check


def loss_in_pauses(
    gpu: GpuReport, sampling: Sampling | None, *limits: float, is_past: bool = False
) -> str:
    """How much of its time in use it lost in pauses, of what length, and how often.

    Args:
        gpu: A GPU whose pauses have no proved cause.
        sampling: Of its log: nothing is printed more precisely than that can show.
        limits: As of ``in_percent``.
        is_past: Whether its job is over.
    """
    totals, count, total_ns = gpu.totals, gpu.totals.pauses.count, gpu.totals.pauses.total_ns
    share, pauses = in_percent(total_ns / totals.in_use_ns, *limits), _pauses_of(gpu, sampling)
    if count < 2 or has_gaps(gpu):
        return messages.LOST_IN_PAUSES.of(is_past, gpu=gpu.label, share=share, pauses=pauses)
    # So many pauses have one burst more around them.
    cycle_ns = totals.cycle_ns or total_ns // count + (totals.in_use_ns - total_ns) // (count + 1)
    row = messages.LOST_IN_PAUSES_EVERY
    if _is_unseen_between(sampling):
        row, cycle_ns = messages.LOST_IN_PAUSES_ABOUT, _whole_periods(cycle_ns, sampling)
    return row.of(is_past, gpu=gpu.label, share=share, pauses=pauses, cycle=in_about(cycle_ns))


def _pauses_of(gpu: GpuReport, sampling: Sampling | None) -> str:
    pauses = gpu.totals.pauses
    text = counted(pauses.count, "pause", "pauses")
    if pauses.p50_ns and pauses.p50_ns >= min_visible_ns(sampling):
        return f"{text} of {in_about(pauses.p50_ns)}"
    return text


def clockwork(gpu: GpuReport, sampling: Sampling | None) -> str:
    """The interval of its pauses, where they come like clockwork; else empty."""
    cycle_ns = gpu.totals.cycle_ns
    if cycle_ns is None:
        return ""
    if _is_unseen_between(sampling):
        return f"about every {in_about(_whole_periods(cycle_ns, sampling))}"
    return f"every {in_about(cycle_ns)}"


def _is_unseen_between(sampling: Sampling | None) -> bool:
    """Whether there is time between two samples that neither of them covers."""
    return sampling is not None and sampling.period_ns >= _UNSEEN_FROM_NS


def _whole_periods(cycle_ns: int, sampling: Sampling | None) -> int:
    period_ns = cycle_ns if sampling is None else sampling.period_ns
    return max(1, round(cycle_ns / period_ns)) * period_ns


def min_visible_ns(sampling: Sampling | None) -> int:
    """The shortest pause whose length can be trusted."""
    return sampling.shortest_visible_pause_ns if sampling and sampling.is_coarse else 1
