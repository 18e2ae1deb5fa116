"""Thresholds of what is worth an advice, each with its origin."""

from __future__ import annotations

from dataclasses import dataclass

from gpumon.core.thresholds.threshold import Unit, check_thresholds, threshold
from gpumon.core.units import NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceSettings:
    """Thresholds of what is worth an advice, or a word in it. Shares 0 to 1, times in nanoseconds.

    They choose among things that are true: none of them changes a verdict or a second.
    """

    min_share: float = threshold(
        0.01,
        Unit.SHARE,
        "A cause that costs less of a GPU's time is not worth a change.",
        origin="ours: what it could win at most is one part in a hundred",
    )
    min_start_up_share: float = threshold(
        0.10,
        Unit.SHARE,
        "Start-up, or the wait for the very first batch, is worth an advice from this share of "
        "its time and use on.",
        origin="ours: start-up comes once, so it matters only where it is long beside the work",
    )
    min_callbacks_share: float = threshold(
        0.01,
        Unit.SHARE,
        "Share of a run below which nobody need know which callbacks took it.",
        origin="ours: the same as advice.min_share",
    )
    min_class_share: float = threshold(
        0.05,
        Unit.SHARE,
        "Share of all callbacks' time below which a class is not named.",
        origin="ours: a list of everything names nothing",
    )
    min_reason_share: float = threshold(
        0.50,
        Unit.SHARE,
        "Share of the input wait that one reason must explain before the advice follows it.",
        origin="ours: most of it",
    )
    mostly_low_share: float = threshold(
        0.70,
        Unit.SHARE,
        "More of the time in use than that, nearly idle, and the GPU is not called busy in part.",
        origin="ours: small kernels in a row read as a level, not as nothing most of the time",
    )
    promised_pause_ns: int = threshold(
        30 * NS_PER_S,
        Unit.NANOSECONDS,
        "No speed-up is promised for ending pauses that are longer in the median, where nothing "
        "proves their cause.",
        origin="ours: a loader is late by seconds; what lasts longer is as often a checkpoint, an "
        "evaluation, or other machines",
    )
    level_within: float = threshold(
        0.02,
        Unit.SHARE,
        "Skew between the GPUs of a job below which they count as level.",
        origin="ours: a share cannot be set, nor busy time read, much finer",
    )
    min_step_ns: int = threshold(
        NS_PER_S,
        Unit.NANOSECONDS,
        "Less time in training steps says nothing of a GPU's share of the work.",
        origin="ours: the driver's window is up to a second long",
    )

    def __post_init__(self) -> None:
        check_thresholds(self)
