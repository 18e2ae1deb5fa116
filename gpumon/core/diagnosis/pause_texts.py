"""Sentences on pauses that nothing explains: what is certain of them, and what is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.core.diagnosis.usable_rows import has_gaps
from gpumon.core.diagnosis.verdict_rules import certain_lost_ns, is_mostly_in_pauses
from gpumon.core.report.report import GpuReport, Sampling
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.verdict import LikelyCause, Verdict
from gpumon.core.wording import counted, in_about, in_percent, in_time

_UNSEEN_FROM_NS: Final = 2 * NS_PER_S
"""A reading covers at most the second before it: from here on, half of the time is unseen."""
_MOSTLY_LOW: Final = DEFAULT_SETTINGS.advice.mostly_low_share


def untagged_text(gpus: Sequence[GpuReport], how_to_tag: str) -> str:
    """What to do about idle time that no tag explains, by the pauses of the GPUs that lose it.

    ``how_to_tag`` is the rest of a sentence. No speed-up and no number of workers is promised:
    pauses alone prove neither.
    """
    worst = max(gpus, key=lambda gpu: (certain_lost_ns(gpu.totals), gpu.totals.lost_ns))
    if is_mostly_in_pauses(worst.totals):
        is_of_requests = (worst.verdict.likely_causes or ())[:1] == (LikelyCause.REQUESTS,)
        what_for = "If it is a training" if is_of_requests else "To prove the cause"
        return f"{_what_to_do(worst)} {what_for}, {how_to_tag}."
    if all(gpu.totals.low_ns > _MOSTLY_LOW * gpu.totals.in_use_ns for gpu in gpus):
        return (
            "For most of its time in use almost nothing ran: its user waits for something else, or "
            f"submits little work at a time. To see for what it waits, {how_to_tag}."
        )
    return f"Utilisation alone cannot tell short waits from small kernels. To know, {how_to_tag}."


def _what_to_do(gpu: GpuReport) -> str:
    causes = gpu.verdict.likely_causes
    if causes is None:
        return (
            "A late loader, checkpoints, evaluations and other machines all look like these "
            "pauses: look at what the job does then, or watch it for longer."
        )
    return _REMEDIES[causes[0]]


_REMEDIES: Final[Mapping[LikelyCause, str]] = {
    LikelyCause.LATE_INPUT: (
        "Before you change the loader, look at what the job does in these pauses."
    ),
    LikelyCause.OPEN: "Look at what the job does in these pauses.",
    LikelyCause.EVERY_N_STEPS: (
        "If they are checkpoints or evaluations: write in the background, or evaluate less often."
    ),
    LikelyCause.OTHER_MACHINES: (
        "If it waits for other machines, level their work; if for checkpoints or evaluations, "
        "write in the background, or evaluate less often."
    ),
    LikelyCause.REQUESTS: (
        "If nobody asks for anything then, let others share the GPU, or end what nobody uses."
    ),
}

_WORDS: Final[Mapping[LikelyCause, str]] = {
    LikelyCause.LATE_INPUT: "waits for late batches",
    LikelyCause.EVERY_N_STEPS: "regular checkpoints or evaluations",
    LikelyCause.OTHER_MACHINES: "waits for other machines",
    LikelyCause.REQUESTS: "requests to a server or a notebook",
}


def likely_text(verdict: Verdict, moments: str = "") -> str:
    """What its pauses can be, with the probability where the shape decides, and what settles it.

    Args:
        verdict: On a GPU that loses time in pauses that nothing explains.
        moments: When the last of them began, with its preposition; empty: unknown.
    """
    causes, probability = verdict.likely_causes, verdict.input_probability
    if causes is None or probability is None:
        return ""
    others = [_WORDS[cause] for cause in causes if cause not in _INPUT_OR_OPEN]
    either, percent = ", or ".join(others) or "something else", _whole_percent(probability)
    late = _WORDS[LikelyCause.LATE_INPUT]
    if probability >= DEFAULT_SETTINGS.suspected_from:
        text = f"By their shape, these pauses are probably {late} ({percent}); else {either}."
    elif causes[0] is LikelyCause.OPEN:
        requests = _WORDS[LikelyCause.REQUESTS]
        each = [late, *(word for word in others if word != requests)]
        text = f"Their pattern does not show what they are: {', '.join(each)}, or {requests}."
    else:
        text = f"These pauses look less like {late} ({percent}) than like {either}."
    return f"{text} {_settled_by(causes, moments)}".rstrip()


_INPUT_OR_OPEN: Final = (LikelyCause.LATE_INPUT, LikelyCause.OPEN)


def _whole_percent(probability: float) -> str:
    """Rounded down, so that no printed figure belongs to another word."""
    percent = int(100 * probability + 1e-9)
    return f"{percent} %" if percent else "below 1 %"


def _settled_by(causes: Sequence[LikelyCause], moments: str) -> str:
    """The look that settles it."""
    if not moments:
        return ""
    if LikelyCause.REQUESTS in causes:
        settles = "If no request came in then, nobody needed the GPU"
    else:
        settles = (
            "If the job wrote a checkpoint, ran an evaluation or waited for other machines "
            "then, that is probably the cause"
        )
    if LikelyCause.LATE_INPUT in causes:
        settles += "; otherwise, batches may be late"
    if LikelyCause.OPEN in causes and LikelyCause.REQUESTS not in causes:
        settles += ", or nobody asked for work"
    return f"The last ones began {moments}. {settles}."


def certain_loss(gpu: GpuReport, sampling: Sampling | None, *limits: float) -> str:
    """How much of its time in use it lost in pauses, of what length, and how often.

    Args:
        gpu: Of which nothing proves why it paused.
        sampling: Of its log: nothing is said more precisely than that can show.
        limits: As of ``in_percent``.
    """
    totals, pauses = gpu.totals, gpu.totals.pauses
    share = in_percent(pauses.total_ns / totals.in_use_ns, *limits)
    said = f"{share} of its time in {counted(pauses.count, 'pause', 'pauses')}"
    if pauses.p50_ns and pauses.p50_ns >= least_visible_ns(sampling):
        said += f" of {in_about(pauses.p50_ns)}"
    if pauses.count < 2 or has_gaps(gpu):
        return said
    # So many pauses have one burst more around them.
    burst_ns = (totals.in_use_ns - pauses.total_ns) // (pauses.count + 1)
    cycle_ns = totals.cycle_ns or pauses.total_ns // pauses.count + burst_ns
    return f"{said}, {_every(cycle_ns, sampling) or f'one every {in_about(cycle_ns)}'}"


def clockwork(gpu: GpuReport, sampling: Sampling | None) -> str:
    """A clause where its pauses come like a clock; else empty."""
    cycle_ns = gpu.totals.cycle_ns
    if cycle_ns is None:
        return ""
    every = _every(cycle_ns, sampling) or f"one every {in_time(cycle_ns)}"
    return f", {every} like a clock"


def _every(cycle_ns: int, sampling: Sampling | None) -> str:
    """How often, in whole readings, where there is time between two that none of them sees."""
    if sampling is None or sampling.period_ns < _UNSEEN_FROM_NS:
        return ""
    period_ns = sampling.period_ns
    return f"about every {in_about(max(1, round(cycle_ns / period_ns)) * period_ns)}"


def least_visible_ns(sampling: Sampling | None) -> int:
    """The shortest pause whose length can be trusted."""
    return sampling.shortest_visible_pause_ns if sampling and sampling.is_coarse else 1
