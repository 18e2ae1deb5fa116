"""What is said of pauses that nothing explains: what is certain of them, and what is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from gpumon.core.judge.verdict_rules import is_mostly_in_pauses
from gpumon.core.report.report import GpuReport
from gpumon.core.settings.detector import DEFAULT_SETTINGS, DetectorSettings
from gpumon.core.settings.rule import RuleKind, rule
from gpumon.core.time.totals import GpuTotals
from gpumon.core.verdict import LikelyCause, Verdict, VerdictName
from gpumon.core.wording import counted, in_about, in_percent, in_time

_MOSTLY_LOW: Final = DEFAULT_SETTINGS.advice.mostly_low_share


def untagged_text(gpus: Sequence[GpuReport], how_to_tag: str) -> str:
    """What to do about idle time that no tag explains, as the pauses of who loses it suggest.

    How to prove the cause goes on a sentence.
    """
    suspected = [gpu for gpu in gpus if gpu.verdict.name is VerdictName.STARVATION_SUSPECTED]
    if any(promises_speed(gpu.totals) for gpu in suspected):
        return (
            "Such pauses mostly mean that batches come too late: try prefetch and more workers. "
            f"To prove the cause, {how_to_tag}."
        )
    if suspected:
        return (
            "Before you change the loader, look at what the training does in these pauses. "
            f"To prove the cause, {how_to_tag}."
        )
    if all(is_mostly_in_pauses(gpu.totals) for gpu in gpus):
        worst = max(gpus, key=lambda gpu: gpu.totals.lost_ns)
        is_of_requests = (worst.verdict.likely_causes or ())[:1] == (LikelyCause.REQUESTS,)
        what_for = "If it is a training" if is_of_requests else "To prove the cause"
        return f"{_what_to_do(worst)} {what_for}, {how_to_tag}."
    if all(gpu.totals.low_ns > _MOSTLY_LOW * gpu.totals.in_use_ns for gpu in gpus):
        return (
            "For most of its time in use next to nothing ran: whoever uses it waits for something "
            f"else, or hands over little at a time. To know for what, {how_to_tag}."
        )
    return f"Utilisation alone cannot tell short waits from small kernels. To know, {how_to_tag}."


@rule(
    "promised_speed",
    RuleKind.ADVICE,
    says="a speed-up is promised at most for ending pauses that nothing proves to be input's",
    evidence="Suspected pauses, and the probability that they wait for input; where none came "
    "with them, how many they are, and how long half of them are at most.",
    thresholds=("promised_from", "enough_pauses", "advice.promised_pause_ns"),
    measured_with=("remembered_cycles", "blip_pause_samples", "blip_burst_samples"),
)
def promises_speed(totals: GpuTotals, settings: DetectorSettings = DEFAULT_SETTINGS) -> bool:
    """Whether suspected pauses wait for input so probably that a speed-up is promised at most."""
    if not totals.suspected_ns:
        return False
    if totals.suspicion is not None:
        return totals.suspicion.input_probability >= settings.promised_from
    median_ns = totals.pauses.p50_ns
    is_short = median_ns is not None and median_ns <= settings.advice.promised_pause_ns
    return is_short and totals.pauses.count >= settings.enough_pauses


def _what_to_do(gpu: GpuReport) -> str:
    """About pauses that are taken for something else than late input, or that are too few."""
    causes = gpu.verdict.likely_causes
    if causes is None:
        return (
            "A late loader, checkpoints, evaluations and other machines all look like these "
            "pauses: look at what the training does then, or watch it for longer."
        )
    return _REMEDIES[causes[0]]


_REMEDIES: Final[Mapping[LikelyCause, str]] = {
    LikelyCause.LATE_INPUT: "Look whether batches come too late then.",
    LikelyCause.OPEN: "Look at what the training does in these pauses, or watch it for longer.",
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
    LikelyCause.EVERY_N_STEPS: "checkpoints or evaluations every so many steps",
    LikelyCause.OTHER_MACHINES: "rounds of other machines",
    LikelyCause.REQUESTS: "requests to a server, or cells of a notebook",
}
"""How what is likely beside late input is said."""

_LIKELY, _PROBABLE = DEFAULT_SETTINGS.suspected_from, DEFAULT_SETTINGS.promised_from
_VERY_PROBABLE: Final = 0.9


def likely_text(verdict: Verdict, moments: str = "") -> str:
    """What its pauses probably are, with the probability, and the look that settles it.

    Args:
        verdict: On a GPU that loses time in pauses that nothing explains.
        moments: When the last of them were; empty: nobody knows.
    """
    causes, probability = verdict.likely_causes, verdict.input_probability
    if causes is None or probability is None:
        return ""
    others = [_WORDS[cause] for cause in causes if cause in _WORDS]
    else_, percent = ", or ".join(others) or "something else", _whole_percent(probability)
    if probability >= _PROBABLE:
        how = "very probably" if probability >= _VERY_PROBABLE else "probably"
        said = f"By their shape, these pauses are {how} waits for late batches ({percent})."
    elif probability >= _LIKELY:
        said = (
            f"By their shape, these pauses are more likely than not waits for late batches "
            f"({percent}); else {else_}."
        )
    elif probability >= 1 - _PROBABLE:
        said = (
            f"By their shape, these pauses may be waits for late batches ({percent}), or {else_}."
        )
    else:
        how = "unlikely" if probability >= 1 - _VERY_PROBABLE else "very unlikely"
        said = f"These pauses look like {else_}; waits for late batches are {how} ({percent})."
    return f"{said} {_settled_by(probability, causes, moments)}".rstrip()


def _whole_percent(probability: float) -> str:
    """Rounded down, so that no figure is one from which on another word is said."""
    percent = int(100 * probability + 1e-9)
    return f"{percent} %" if percent else "below 1 %"


def _settled_by(probability: float, causes: Sequence[LikelyCause], moments: str) -> str:
    """The one look that settles it."""
    if not moments:
        return ""
    if LikelyCause.REQUESTS in causes:
        return f"The last began at {moments}: if nobody asked for anything then, it is that."
    if probability >= _LIKELY:
        return (
            f"The last began at {moments}: if no checkpoint was written and nothing evaluated "
            "then, batches were late."
        )
    return (
        f"The last began at {moments}: if a checkpoint was written, something evaluated or other "
        "machines waited for then, it is that."
    )


def certain_loss(gpu: GpuReport, least_visible_ns: int, *limits: float) -> str:
    """How much of its time in use it lost in pauses, of what length, and how often.

    Args:
        gpu: Of which nothing proves why it paused.
        least_visible_ns: No shorter length is told: so few samples cannot show it.
        limits: As of ``in_percent``.
    """
    totals, pauses = gpu.totals, gpu.totals.pauses
    share = in_percent(pauses.total_ns / totals.in_use_ns, *limits)
    said = f"{share} of its time in {counted(pauses.count, 'pause', 'pauses')}"
    if pauses.p50_ns and pauses.p50_ns >= least_visible_ns:
        said += f" of {in_about(pauses.p50_ns)}"
    if pauses.count < 2:
        return said
    # So many pauses have one burst more around them.
    burst_ns = (totals.in_use_ns - pauses.total_ns) // (pauses.count + 1)
    cycle_ns = totals.cycle_ns or pauses.total_ns // pauses.count + burst_ns
    return f"{said}, one every {in_about(cycle_ns)}"


def clockwork(gpu: GpuReport) -> str:
    """A clause where its pauses come like a clock; else empty."""
    cycle_ns = gpu.totals.cycle_ns
    return "" if cycle_ns is None else f", one every {in_time(cycle_ns)} like a clock"
