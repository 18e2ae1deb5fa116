"""The thresholds of what is said of a finished log beside its verdicts."""

from __future__ import annotations

from dataclasses import dataclass

from gpumon.core.thresholds.threshold import Unit, check_thresholds, threshold
from gpumon.core.units import NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """Thresholds of sampling, of memory held, and of several GPUs together."""

    hole_periods: float = threshold(
        2.5,
        Unit.TIMES,
        "A silence of more of a log's usual periods is not observed, and a note says so.",
        origin="ours: a single row may be lost or late, two in a row are missing, and nobody knows "
        "what the GPU did",
    )
    period_told_from: float = threshold(
        0.01,
        Unit.SHARE,
        "Share of the observed time from which on another period of a log is told.",
        origin="ours: the same as advice.min_share",
    )
    coarse_from_ns: int = threshold(
        5 * NS_PER_S,
        Unit.NANOSECONDS,
        "From this time between two samples on, they are too few for the pauses of a training.",
        origin="ours: a starved training pauses for a fraction of a second to a few seconds; the "
        "driver looks back for at most a second, so from here on four fifths of the time or more "
        "are seen by no sample",
    )
    held_from_bytes: int = threshold(
        2 << 30,
        Unit.BYTES,
        "Memory in use from which on a GPU is held for somebody.",
        origin="ours: a bare CUDA context takes 0.2 to 0.6 GiB, a desktop up to 1.5 GiB; "
        "gpu-usage-audit takes 100 MB, which any context exceeds",
    )
    released_share: float = threshold(
        0.10,
        Unit.SHARE,
        "Memory in use that has fallen to this share of what a job held was given back: it ended.",
        origin="ours: a framework keeps its memory in a pause, and a context alone is more",
    )
    held_told_from_ns: int = threshold(
        300 * NS_PER_S,
        Unit.NANOSECONDS,
        "Time held without work, in stretches that end a job, that is worth a word.",
        origin="ours: nobody starts another job for less",
    )
    common_share: float = threshold(
        0.50,
        Unit.SHARE,
        "Of what GPUs can pause in common beyond chance, the share from which they pause together.",
        origin="ours: most of it",
    )
    beside_peer_share: float = threshold(
        0.20,
        Unit.SHARE,
        "Share of a GPU's time, idle while another one works, that is worth a word.",
        origin="ours: the same as high_share, for whoever starves beside a healthy peer has some",
    )

    def __post_init__(self) -> None:
        check_thresholds(self)
