"""Thresholds of what is worth an advice, each with its origin.

Thresholds of "busy, but under-filled", each with its origin.

The thresholds of what is said of a finished log beside its verdicts.

Thresholds of a GPU in trouble, each with its origin.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpumon.core.clock import NS_PER_S
from gpumon.core.settings.threshold import Unit, check_thresholds, threshold


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
