"""Thresholds of a GPU in trouble, each with its origin."""

from __future__ import annotations

from dataclasses import dataclass

from gpumon.core.thresholds.threshold import Unit, check_thresholds, threshold
from gpumon.core.units import NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class TroubleSettings:
    """Thresholds of what is told of a GPU in trouble. Shares 0 to 1, times in nanoseconds.

    An error that the driver reports needs none: it is told.
    """

    recent_ns: int = threshold(
        24 * 3600 * NS_PER_S,
        Unit.NANOSECONDS,
        "An error that came last before that is told of the GPU, and not in the first line.",
        origin="ours: who is on call hears of it for a day; a daemon lives for months",
    )
    throttled_share: float = threshold(
        0.10,
        Unit.SHARE,
        "From this share of the busy time on, heat, the board's protection or the power supply "
        "that hold its clocks down are a trouble.",
        origin="ours: a warm board steps down for moments, one that is badly cooled for long",
    )
    min_busy_ns: int = threshold(
        10 * NS_PER_S,
        Unit.NANOSECONDS,
        "Busy time that is looked at before a GPU is called throttled.",
        origin="ours: the same as min_in_use_ns; the board itself says so, and it is read every "
        "5 s",
    )

    def __post_init__(self) -> None:
        check_thresholds(self)
