"""What is said of pauses that come without a rhythm, or like a clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpumon.core.figures import counted, in_seconds
from gpumon.core.report import GpuReport
from gpumon.core.settings import DEFAULT_SETTINGS
from gpumon.core.verdict import VerdictName

_MOSTLY_LOW: Final = DEFAULT_SETTINGS.advice.mostly_low_share


def untagged_text(gpus: Sequence[GpuReport], how_to_tag: str) -> str:
    """What to do about idle time that no tag explains, as its pauses suggest.

    Args:
        gpus: Those that lose it.
        how_to_tag: How to prove the cause; goes on a sentence.
    """
    suspected = [gpu for gpu in gpus if gpu.verdict.name is VerdictName.STARVATION_SUSPECTED]
    if suspected and all(gpu.totals.cycle_ns is not None for gpu in suspected):
        return (
            "Pauses that come like a clock are often checkpoints, evaluations, or workers that "
            "start anew with each epoch: write in the background, evaluate less often, or keep "
            f"the workers. To prove the cause, {how_to_tag}."
        )
    if suspected:
        return (
            "Pauses between bursts often mean that batches come too late: try prefetch and more "
            f"workers. Waiting for other machines looks the same. To prove the cause, {how_to_tag}."
        )
    if any(is_irregular(gpu) for gpu in gpus):
        return (
            "Requests to a server and the cells of a notebook come like this, a training's waits "
            "hardly ever: let others share the GPU, or end what nobody uses. "
            f"If it is a training, {how_to_tag}."
        )
    if all(gpu.totals.low_ns > _MOSTLY_LOW * gpu.totals.in_use_ns for gpu in gpus):
        return (
            "For most of its time in use next to nothing ran: whoever uses it waits for something "
            f"else, or hands over little at a time. To know for what, {how_to_tag}."
        )
    return f"Utilisation alone cannot tell short waits from small kernels. To know, {how_to_tag}."


def is_irregular(gpu: GpuReport) -> bool:
    """Whether most of its pauses come without a rhythm, and so nothing is suspected."""
    totals = gpu.totals
    is_most = totals.irregular_ns > max(totals.suspected_ns, totals.lost_ns // 2)
    return gpu.verdict.name is VerdictName.PARTIAL and is_most


def irregular_reason(gpu: GpuReport) -> str:
    """What it rests on that nothing is suspected: goes on a sentence on the time lost."""
    pauses = counted(gpu.totals.gaps.count, "pause", "pauses")
    return f", in {pauses}; {in_seconds(gpu.totals.irregular_ns)} of it without a rhythm."


def clockwork(gpu: GpuReport) -> str:
    """A clause where its pauses come like a clock; else empty."""
    cycle_ns = gpu.totals.cycle_ns
    return "" if cycle_ns is None else f", one every {in_seconds(cycle_ns)} like a clock"
