"""The rules of what a finished log tells beside its verdicts."""

from __future__ import annotations

from typing import Final

from gpumon.core.held_memory import HeldMemory
from gpumon.core.rules.rule import Rule, RuleKind
from gpumon.core.sampling import Sampling
from gpumon.core.settings import DetectorSettings
from gpumon.core.together import Together


def is_too_coarse(sampling: Sampling, settings: DetectorSettings) -> bool:
    """Whether samples are too far apart for the pauses of a training."""
    return sampling.period_ns >= settings.log.coarse_from_ns


def all_pause_together(joined: Together, settings: DetectorSettings) -> bool:
    """Whether all GPUs in use pause at once, again and again, and more than by chance."""
    return (
        joined.all_pauses >= settings.min_pauses
        and joined.all_paused_ns >= settings.lost_share * joined.in_use_ns
        and joined.common_share >= settings.log.common_share
    )


def idles_beside_peer(idle_ns: int, observed_ns: int, settings: DetectorSettings) -> bool:
    """Whether a GPU idled for long while another one worked.

    Args:
        idle_ns: How long it did.
        observed_ns: How long it was observed.
        settings: The thresholds.
    """
    return (
        idle_ns >= settings.min_in_use_ns
        and idle_ns >= settings.log.beside_peer_share * observed_ns
    )


def is_memory_held(held: HeldMemory, settings: DetectorSettings) -> bool:
    """Whether memory was held without work for so long that another job could have run."""
    return held.idle_ns >= settings.log.held_told_from_ns


LOG_RULES: Final = (
    Rule(
        id="all_pause_together",
        kind=RuleKind.FINDING,
        says="all GPUs of a log that are in use pause at the same time",
        evidence="The time in which all of them paused, of the time in which two or more were in "
        "use, beside what GPUs that know nothing of each other would pause at once.",
        thresholds=("min_pauses", "lost_share", "log.common_share"),
        measured_with=("active_above", "idle_job_ends_after_ns", "idle_job_ends_after_samples"),
        holds=all_pause_together,
    ),
    Rule(
        id="idle_beside_peer",
        kind=RuleKind.FINDING,
        says="a GPU of a log idles while another one works",
        evidence="The time in which it was idle, in use or not, and another one was not, of the "
        "time it was observed.",
        thresholds=("min_in_use_ns", "log.beside_peer_share"),
        measured_with=("active_above",),
        holds=idles_beside_peer,
    ),
    Rule(
        id="memory_held",
        kind=RuleKind.FINDING,
        says="a GPU of a log held memory and nothing ran for long",
        evidence="The time in stretches without an active sample, each long enough to end a job, "
        "in which that much memory was in use all the time.",
        thresholds=("log.held_told_from_ns",),
        measured_with=(
            "log.held_from_bytes",
            "active_above",
            "idle_job_ends_after_ns",
            "idle_job_ends_after_samples",
        ),
        holds=is_memory_held,
    ),
    Rule(
        id="sampling_too_coarse",
        kind=RuleKind.FINDING,
        says="a log has too few samples to show the pauses of a training",
        evidence="The time between two samples of a GPU, as it was for most of the log.",
        thresholds=("log.coarse_from_ns",),
        holds=is_too_coarse,
    ),
)
