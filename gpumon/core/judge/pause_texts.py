"""What is said of pauses that nothing explains: what is certain of them, and what is not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpumon.core.judge.verdict_rules import has_rhythm, is_mostly_in_pauses
from gpumon.core.report.report import GpuReport
from gpumon.core.settings.detector import DEFAULT_SETTINGS, DetectorSettings
from gpumon.core.settings.rule import RuleKind, rule
from gpumon.core.time.totals import GpuTotals
from gpumon.core.verdict import VerdictName
from gpumon.core.wording import counted, in_about, in_percent, in_time

_MOSTLY_LOW: Final = DEFAULT_SETTINGS.advice.mostly_low_share


def untagged_text(gpus: Sequence[GpuReport], how_to_tag: str) -> str:
    """What to do about idle time that no tag explains, as the pauses of who loses it suggest.

    How to prove the cause goes on a sentence.
    """
    suspected = [gpu for gpu in gpus if gpu.verdict.name is VerdictName.STARVATION_SUSPECTED]
    if suspected and all(gpu.totals.cycle_ns is not None for gpu in suspected):
        return (
            "Pauses that come like a clock are often checkpoints, evaluations, or workers that "
            "start anew with each epoch: write in the background, evaluate less often, or keep "
            f"the workers. To prove the cause, {how_to_tag}."
        )
    if any(promises_speed(gpu.totals) for gpu in suspected):
        return (
            "Pauses between bursts often mean that batches come too late: try prefetch and more "
            f"workers. Waiting for other machines looks the same. To prove the cause, {how_to_tag}."
        )
    if suspected:
        return f"{_what_to_look_at(suspected)} To prove the cause, {how_to_tag}."
    if any(is_irregular(gpu) for gpu in gpus):
        return (
            "Requests to a server and the cells of a notebook come like this, a training's waits "
            "hardly ever: let others share the GPU, or end what nobody uses. "
            f"If it is a training, {how_to_tag}."
        )
    if all(is_mostly_in_pauses(gpu.totals) for gpu in gpus):
        return f"{_what_to_look_at(gpus)} To prove the cause, {how_to_tag}."
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
    evidence="How many pauses are suspected, and how long half of them are at most.",
    thresholds=("enough_pauses", "advice.promised_pause_ns"),
    measured_with=("blip_pause_samples", "blip_burst_samples"),
)
def promises_speed(totals: GpuTotals, settings: DetectorSettings = DEFAULT_SETTINGS) -> bool:
    """Whether suspected pauses are so many and short that a speed-up is promised for ending them.

    At most: if they wait for input. Few pauses, and long ones, are as often something else.
    """
    median_ns = totals.pauses.p50_ns
    return (
        totals.pauses.count >= settings.enough_pauses
        and median_ns is not None
        and median_ns <= settings.advice.promised_pause_ns
        and totals.suspected_ns > 0
        and has_rhythm(totals)
    )


def _what_to_look_at(gpus: Sequence[GpuReport]) -> str:
    """What pauses may be that are too few or too long to say: those of the GPU that lost most."""
    pauses = max(gpus, key=lambda gpu: gpu.totals.lost_ns).totals.pauses
    settings = DEFAULT_SETTINGS
    if pauses.p50_ns is not None and pauses.p50_ns > settings.advice.promised_pause_ns:
        return (
            f"Pauses of {in_about(pauses.p50_ns)} can be many things: a checkpoint, an evaluation, "
            "a new epoch, other machines, or a loader that reads a whole file. Look at what the "
            "training does then."
        )
    if pauses.count < settings.enough_pauses:
        are = "is" if pauses.count == 1 else "are"
        return (
            f"{counted(pauses.count, 'pause', 'pauses')} {are} too few to tell a late loader from "
            "checkpoints, evaluations or other machines: look at what the training did then, or "
            "watch it for longer."
        )
    return (
        "Late batches, checkpoints, evaluations and other machines all look like these pauses: "
        "look at what the training does then."
    )


def certain_loss(gpu: GpuReport, least_visible_ns: int, *limits: float) -> str:
    """How much of its time in use it lost in pauses, of what length, and how often: a clause.

    Args:
        gpu: Of which nothing proves why it paused.
        least_visible_ns: No shorter length is told: so few samples cannot show it.
        limits: As of ``in_percent``.
    """
    totals, pauses = gpu.totals, gpu.totals.pauses
    share = in_percent(pauses.total_ns / totals.in_use_ns, *limits)
    said = f"loses {share} of its time in {counted(pauses.count, 'pause', 'pauses')}"
    if pauses.p50_ns and pauses.p50_ns >= least_visible_ns:
        said += f" of {in_about(pauses.p50_ns)}"
    if pauses.count < 2:
        return said
    # So many pauses have one burst more around them.
    burst_ns = (totals.in_use_ns - pauses.total_ns) // (pauses.count + 1)
    cycle_ns = totals.cycle_ns or pauses.total_ns // pauses.count + burst_ns
    return f"{said}, one every {in_about(cycle_ns)}"


def is_irregular(gpu: GpuReport) -> bool:
    """Whether most of its pauses come without a rhythm, and so nothing is suspected."""
    totals = gpu.totals
    is_most = totals.irregular_ns > max(totals.suspected_ns, totals.lost_ns // 2)
    return gpu.verdict.name is VerdictName.PARTIAL and is_most


def irregular_reason(gpu: GpuReport) -> str:
    """What it rests on that nothing is suspected: goes on a sentence on the time lost."""
    pauses = counted(gpu.totals.pauses.count, "pause", "pauses")
    return f", in {pauses}; {in_time(gpu.totals.irregular_ns)} of it without a rhythm."


def clockwork(gpu: GpuReport) -> str:
    """A clause where its pauses come like a clock; else empty."""
    cycle_ns = gpu.totals.cycle_ns
    return "" if cycle_ns is None else f", one every {in_time(cycle_ns)} like a clock"
