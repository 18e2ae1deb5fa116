"""What a capture measures, part by part: each row says what stands in its table on the page."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

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


def ms(seconds: float) -> str:
    return f"{seconds * 1000:.4g}"


def percent(ratio: float) -> str:
    return f"{100 * ratio:.2f} %"


def _percents(ratios: tuple[float, float]) -> str:
    return " to ".join(map(percent, ratios))


def _spread_ms(spread: Spread) -> str:
    return f"{ms(spread.median)} ({ms(spread.p05)} to {ms(spread.p95)})"


def _ends(spread: Spread) -> str:
    return f"{spread.p05:g} to {spread.worst:g}"


def column(head: str, text: Callable[[Any], str] = str) -> dict[str, Any]:
    """What stands under that head; without an answer, ``None``, a dash does."""
    return {"head": head, "text": text}


@dataclass(frozen=True, slots=True, kw_only=True)
class RingWatch:
    """One kind of sample, watched for a while; the newest entry of a look has its delay."""

    name: str = field(metadata=column("samples"))
    load: str = field(metadata=column("load"))
    depth: int = field(metadata=column("depth"))
    arrived: int = field(metadata=column("came"))
    cadence_s: Spread | None = field(metadata=column("apart, ms", _spread_ms))
    update_s: Spread | None = field(metadata=column("update, ms", _spread_ms))
    batch: float | None = field(metadata=column("at once", "{:g}".format))
    delay_s: Spread | None = field(metadata=column("delay, ms", _spread_ms))
    values: Spread | None = field(metadata=column("values", _ends))
    value_type: str | None = field(metadata=column("type"))
    clock: str | None = field(metadata=column("clock"))


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowFit:
    """Which stretch a utilisation sample speaks for: how long, and how long before its stamp.

    ``error_ratio`` is the mean distance of so many samples and the truth then.
    """

    window_s: float
    lag_s: float
    error_ratio: float
    samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveAccuracy:
    """A known wave, and what gpumon made of it in the time that it observed.

    A pause is seen as a run of samples at or below 0.35 between two above it, and takes as long as
    those samples, both edges counted, say that the board was idle.
    """

    fit: WindowFit | None
    wave: str = field(metadata=column("wave"))
    truth: str = field(metadata=column("truth"))
    span_s: float | None = field(metadata=column("a span, ms", ms))
    device_span_s: float | None = field(metadata=column("by device events, ms", ms))
    true_busy_ratio: float = field(metadata=column("busy, truth", percent))
    seen_busy_ratio: float = field(metadata=column("busy, gpumon", percent))
    error_ratio: float = field(metadata=column("error of a sample", percent))
    true_pauses: int = field(metadata=column("pauses, truth"))
    seen_pauses: int = field(metadata=column("pauses seen"))
    true_pause_s: float | None = field(metadata=column("pause, truth, ms", ms))
    seen_pause_s: float | None = field(metadata=column("pause seen, ms", ms))


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityRow:
    """GPM beside utilisation, with one kind of kernel; means over some seconds."""

    load: str = field(metadata=column("load"))
    utilisation_ratio: float | None = field(metadata=column("utilisation", percent))
    sm_active_ratio: float | None = field(metadata=column("SM active", percent))
    sm_occupancy_ratio: float | None = field(metadata=column("occupancy", percent))
    tensor_active_ratio: float | None = field(metadata=column("tensor", percent))
    memory_bandwidth_ratio: float | None = field(metadata=column("DRAM", percent))
    power_watts: float | None = field(metadata=column("power, W", "{:.1f}".format))
    power_limit_watts: float | None = field(metadata=column("limit, W", "{:.1f}".format))


@dataclass(frozen=True, slots=True, kw_only=True)
class StallRow:
    """Steps of a training with a sampler beside it, or without one.

    Each turn is held against the one without a sampler in its round: told are the median, and
    between which the middle half lies.
    """

    sampler: str = field(metadata=column("sampler"))
    rounds: int = field(metadata=column("turns"))
    steps_per_second: float = field(metadata=column("steps/s", "{:.1f}".format))
    of_bare_ratio: float = field(metadata=column("of those without", percent))
    middle_half: tuple[float, float] = field(metadata=column("middle half", _percents))
    median_ms: float = field(metadata=column("step, ms", "{:.3f}".format))
    p99_ms: float = field(metadata=column("99 %, ms", "{:.3f}".format))
    worst_ms: float = field(metadata=column("worst, ms", "{:.3f}".format))
    nvml_seconds_per_second: float = field(metadata=column("in NVML", percent))


@dataclass(slots=True, kw_only=True)
class Results:
    """All that was measured so far; ``missing`` says which parts were not, and why."""

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
