"""What a capture measures, part by part; ``None`` and empty where nothing was."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from gpumon.sources.nvml.probe.probed import ProbedDriver, ProbedGpu

Span = tuple[int, int]
"""A stretch of time, in CLOCK_MONOTONIC nanoseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How values are distributed."""

    median: float
    p05: float
    p95: float
    worst: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        """The spread of these; ``None`` of none."""
        if not values:
            return None
        order = sorted(values)
        last = len(order) - 1
        return cls(
            median=statistics.median(order),
            p05=order[round(0.05 * last)],
            p95=order[round(0.95 * last)],
            worst=order[-1],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RingWatch:
    """One kind of sample, watched for a while.

    Attributes:
        name: The kind.
        load: What the GPU did meanwhile.
        depth: Entries in the ring when it was read whole.
        arrived: Entries that came while it was watched.
        cadence_s: Distance of neighbouring stamps.
        update_s: Time between two looks that brought something.
        batch: Median number of entries that came at once.
        delay_s: From a stamp to the first look that brought it, of the newest entry each.
        values: What they said, in NVML's unit.
        clock: Which clock the stamps count.
        value_type: How values come.
    """

    name: str
    load: str
    depth: int
    arrived: int
    cadence_s: Spread | None
    update_s: Spread | None
    batch: float | None
    delay_s: Spread | None
    values: Spread | None
    clock: str | None
    value_type: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowFit:
    """Which stretch a utilisation sample speaks for, found by holding it against the truth.

    Attributes:
        window_s: How long the stretch is.
        lag_s: How long before its stamp the stretch ends.
        error_ratio: Mean distance of sample and truth with these two.
        samples: How many samples were held against it.
    """

    window_s: float
    lag_s: float
    error_ratio: float
    samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveAccuracy:
    """A known wave, and what gpumon made of it.

    Attributes:
        busy_s: Busy part of each round, as ordered.
        idle_s: The pause, as ordered.
        truth: Where the truth comes from.
        true_busy_ratio: Over the time that gpumon observed.
        seen_busy_ratio: What gpumon says of the same time.
        error_ratio: Mean distance of one sample from the truth of its own stretch.
        true_pauses: Whole pauses in that time.
        seen_pauses: Runs of samples at or below 0.35 between two above it.
        true_pause_s: Their mean length.
        seen_pause_s: Their mean idle time as samples tell it, both edges counted.
        fit: Which stretch the samples speak for.
        span_s: Mean length of a busy span of the truth.
        device_span_s: The same by the device's own events; ``None`` where it has none.
    """

    busy_s: float
    idle_s: float
    truth: str
    true_busy_ratio: float
    seen_busy_ratio: float
    error_ratio: float
    true_pauses: int
    seen_pauses: int
    true_pause_s: float | None
    seen_pause_s: float | None
    fit: WindowFit | None
    span_s: float | None
    device_span_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityRow:
    """GPM beside utilisation, with one kind of kernel; means over some seconds."""

    load: str
    utilisation_ratio: float | None
    sm_active_ratio: float | None
    sm_occupancy_ratio: float | None
    tensor_active_ratio: float | None
    memory_bandwidth_ratio: float | None
    power_watts: float | None
    power_limit_watts: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StallRow:
    """Steps of a training with a sampler beside it, or without one.

    Attributes:
        of_bare_ratio: Steps of a turn by those without a sampler in the same round, the median.
        middle_half: Between which the middle half of those ratios lies.
    """

    sampler: str
    rounds: int
    steps_per_second: float
    of_bare_ratio: float
    middle_half: tuple[float, float]
    median_ms: float
    p99_ms: float
    worst_ms: float
    nvml_seconds_per_second: float


@dataclass(slots=True, kw_only=True)
class Results:
    """All that was measured so far."""

    board: str
    driver: ProbedDriver
    gpu: ProbedGpu
    command: str
    date: str
    python: str
    load: str | None = None
    rings: list[RingWatch] = field(default_factory=list)
    costs: dict[str, ProbedGpu] = field(default_factory=dict)
    waves: list[WaveAccuracy] = field(default_factory=list)
    activity: list[ActivityRow] = field(default_factory=list)
    stalls: list[StallRow] = field(default_factory=list)
    recording: str | None = None
    missing: dict[str, str] = field(default_factory=dict)
    """Parts that were not measured, and why."""
