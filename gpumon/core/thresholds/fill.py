"""Thresholds of "busy, but under-filled", each with its origin."""

from __future__ import annotations

from dataclasses import dataclass

from gpumon.core.thresholds.threshold import Unit, check_thresholds, threshold
from gpumon.core.units import NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class FillSettings:
    """Thresholds of "busy, but under-filled". Shares 0 to 1, times in nanoseconds.

    All lean to silence: a GPU that is called under-filled wrongly costs its
    user a day, one that is not called so costs nothing new.
    """

    busy_above: float = threshold(
        0.90,
        Unit.SHARE,
        "A stretch above it counts as busy all through.",
        origin="ours: the same as high_above; where the GPU also idled, the verdicts have their "
        "say",
    )
    sm_active_below: float = threshold(
        0.50,
        Unit.SHARE,
        "Fewer multiprocessors at work than that, on average, is little.",
        origin="NVIDIA's guide to DCGM's profiling metrics: below 0.5 is a likely sign of "
        "ineffective use, 0.8 is necessary for an effective one",
    )
    memory_bound_from: float = threshold(
        0.50,
        Unit.SHARE,
        "From this share of the memory's bandwidth on, the memory is the limit, "
        "and more multiprocessors would wait for it.",
        origin="ours: copying alone reaches about 0.8 in practice, so half is more than small "
        "kernels come to by chance",
    )
    power_below: float = threshold(
        0.50,
        Unit.SHARE,
        "Less of the power limit than that, at full clock, suggests that little works.",
        origin="ours: kernels that only move data draw half of the limit or more on boards for "
        "training, a multiplication of matrices nearly all of it; not yet checked on hardware",
    )
    full_clock_from: float = threshold(
        0.90,
        Unit.SHARE,
        "This share of the highest clock is a full clock; below it, the draw proves nothing.",
        origin="ours: boards step down by a few percent as they grow warm, and further down the "
        "draw falls faster than the speed, because the voltage falls too",
    )
    min_busy_ns: int = threshold(
        60 * NS_PER_S,
        Unit.NANOSECONDS,
        "Busy time that is looked at before anything is said.",
        origin="ours: in doubt nothing is said",
    )
    held_share: float = threshold(
        0.50,
        Unit.SHARE,
        "From this share of the busy time on, clocks held down by heat or power "
        "are the finding, and nothing is said of filling.",
        origin="ours: most of the time",
    )
    held_told_from: float = threshold(
        0.01,
        Unit.SHARE,
        "Clocks held down for less of the busy time are not spoken of.",
        origin="ours: a moment of it is not worth a word",
    )
    tensors_in_use_from: float = threshold(
        0.10,
        Unit.SHARE,
        "From this share of the time on, the tensor cores work, and mixed "
        "precision is not advised.",
        origin="ours: where they work for a tenth of the time, mixed precision is there already",
    )
    min_cover: float = threshold(
        0.50,
        Unit.SHARE,
        "Utilisation must be known for this share of a stretch to say how busy it was.",
        origin="ours: most of it",
    )

    def __post_init__(self) -> None:
        check_thresholds(self)
