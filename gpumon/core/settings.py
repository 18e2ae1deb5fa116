"""Every threshold of the detector, in one place, each with where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gpumon.core.units import NS_PER_S
from gpumon.errors import UsageError

GAP_BUCKETS_SECONDS: Final = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of ``gpumon_gpu_idle_gap_seconds``, in seconds."""

MAX_INTERVALS: Final = 1_000
"""Starved intervals kept for one GPU; then neighbours merge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorSettings:
    """Thresholds of the verdicts. Ratios 0 to 1, times in nanoseconds.

    The values are those of the project's design, found on generated worlds
    with known truth; ``docs/decisions`` says which are ours.

    Attributes:
        active_above: A sample above it shows work: it is *active*.
        burst_above: A sample above it is a burst; a run of samples at or
            below it, between two bursts, is a pause.
        low_below: A sample below it counts as idle in the pattern.
        high_above: A sample above it counts as fully busy in the pattern.
        min_pauses: Pauses that make a pattern.
        min_low_share: Share of in-use samples below ``low_below`` that a
            bursty pattern must exceed.
        lost_share: Share of in-use time that is worth a verdict; also
            "moderate".
        high_share: The share from which on the loss is "high".
        min_in_use_ns: Less in-use time than this is no use at all.
        min_coverage: Share of in-use time that must be busy or have a known
            cause before a cause is named.
        idle_job_ends_after_ns: A job ends this long after its last active
            sample where no process list says better.
        idle_job_ends_after_samples: ... but never before this many samples:
            at 60 s a sample, one idle sample is a pause and not an end.
        flag_window_ns: In-use time over which ``starved_now`` looks back.
        flag_on_share: Share of it at which the flag rises ...
        flag_off_share: ... and below which it falls again.
    """

    active_above: float = 0.05
    burst_above: float = 0.35
    low_below: float = 0.10
    high_above: float = 0.90
    min_pauses: int = 3
    min_low_share: float = 0.05
    lost_share: float = 0.05
    high_share: float = 0.20
    min_in_use_ns: int = 10 * NS_PER_S
    min_coverage: float = 0.90
    idle_job_ends_after_ns: int = 60 * NS_PER_S
    idle_job_ends_after_samples: int = 3
    flag_window_ns: int = 60 * NS_PER_S
    flag_on_share: float = 0.05
    flag_off_share: float = 0.03

    def __post_init__(self) -> None:
        ratios = (
            "active_above", "burst_above", "low_below", "high_above", "min_low_share", "lost_share",
            "high_share", "min_coverage", "flag_on_share", "flag_off_share",
        )  # fmt: skip
        for name in ratios:
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise UsageError(f"{name} must be within 0..1, got {getattr(self, name)!r}")
        for name in ("min_in_use_ns", "idle_job_ends_after_ns", "flag_window_ns", "min_pauses"):
            if getattr(self, name) <= 0:
                raise UsageError(f"{name} must be positive, got {getattr(self, name)!r}")
        if self.active_above > self.burst_above:
            raise UsageError("active_above must not exceed burst_above")


DEFAULT_SETTINGS: Final = DetectorSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class FillSettings:
    """Thresholds of "busy, but under-filled". Ratios 0 to 1, times in nanoseconds.

    All lean to silence: a GPU that is called under-filled wrongly costs its
    user a day, one that is not called so costs nothing new.

    Attributes:
        busy_above: A stretch above it counts as busy all through. It is
            ``DetectorSettings.high_above``: where the GPU also idled, the
            verdicts have their say.
        sm_active_below: Fewer multiprocessors than that at work, on average,
            is little. NVIDIA's guide to DCGM's profiling metrics takes a
            value below 0.5 for a likely sign of ineffective use, and 0.8 as
            necessary for an effective one.
        memory_bound_from: From this share of the memory's bandwidth on the
            memory is the limit, and more multiprocessors would wait for it.
            Ours: copying alone reaches about 0.8 in practice, so
            that half is more than small kernels come to by chance.
        power_below: Less of the power limit than that, at full clock, suggests
            that little works. Ours: kernels that only move data draw half
            of the limit or more on boards for training, a multiplication of
            matrices nearly all of it. Not yet checked on hardware.
        full_clock_from: Share of the highest clock that is a full clock.
            Ours: boards step down by a few percent as they grow warm. Below,
            a full board draws less in a greater part than it slows down
            (voltage falls with the clock), so its draw proves nothing: an
            H100 at 1755 of 1980 MHz is not judged by power, but has GPM.
        min_busy_ns: Busy time that is looked at before anything is said.
        held_share: From this share of the busy time on, clocks held down by
            heat or power are the finding, and nothing is said of filling.
    """

    busy_above: float = 0.90
    sm_active_below: float = 0.50
    memory_bound_from: float = 0.50
    power_below: float = 0.50
    full_clock_from: float = 0.90
    min_busy_ns: int = 60 * NS_PER_S
    held_share: float = 0.50

    def __post_init__(self) -> None:
        ratios = (
            "busy_above", "sm_active_below", "memory_bound_from", "power_below",
            "full_clock_from", "held_share",
        )  # fmt: skip
        for name in ratios:
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise UsageError(f"{name} must be within 0..1, got {getattr(self, name)!r}")
        if self.min_busy_ns <= 0:
            raise UsageError(f"min_busy_ns must be positive, got {self.min_busy_ns!r}")


DEFAULT_FILL_SETTINGS: Final = FillSettings()
