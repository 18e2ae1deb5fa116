"""A wave of known length on the GPU, compared with the samples of gpumon's own source."""

from __future__ import annotations

import statistics
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import accumulate, pairwise
from typing import Any, Final

from gpumon.core.clock import Clock, seconds
from gpumon.core.sample import BusySample
from gpumon.sources.nvml.fields.table import nvml_options
from gpumon.sources.nvml.source import NvmlSource
from tests.tools.board_capture.load import Load
from tests.tools.board_capture.measurements import Row, mean, ticks

_PERIOD_S: Final = 1.0
_PAUSED: Final = 0.35
UTILISATION_ONLY: Final = nvml_options(
    off=["power", "memory", "temperature", "clocks", "throttle_reasons", "energy", "power_limit",
         "performance_state", "ecc", "persistence_mode", "activity", "processes", "events"]
)  # fmt: skip


Span = tuple[int, int]
"""A stretch of time, in CLOCK_MONOTONIC nanoseconds."""


class BusyTruth:
    """When the device really worked: disjoint spans, in order."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self.spans = tuple(spans)
        self.pauses = [(before[1], after[0]) for before, after in pairwise(spans)]
        self._starts = [start_ns for start_ns, _ in spans]
        self._sums = [*accumulate((end_ns - start_ns for start_ns, end_ns in spans), initial=0)]

    def busy_ns(self, start_ns: int, end_ns: int) -> int:
        """Busy time of a stretch."""
        return self._until(end_ns) - self._until(start_ns)

    def _until(self, at_ns: int) -> int:
        place = bisect_right(self._starts, at_ns)
        if place == 0:
            return 0
        start_ns, end_ns = self.spans[place - 1]
        return self._sums[place - 1] + min(at_ns, end_ns) - start_ns


def watch_wave(
    clock: Clock,
    gpu_uuid: str,
    load: Load,
    command: dict[str, Any],
    read_clock_ns: Callable[[int], int] = time.clock_gettime_ns,
) -> Row:
    """Run that wave, read ``NvmlSource`` once a second, and compare the samples with the truth."""
    samples: list[BusySample] = []
    source = NvmlSource(clock, options=UTILISATION_ONLY, read_clock_ns=read_clock_ns)

    def read() -> None:
        for gpu in source.read().gpus:
            samples.extend(gpu.busy if gpu.device.uuid == gpu_uuid else ())

    with closing(source):
        load.begin(command)
        # The last samples arrive a little later.
        for _ in ticks(clock, command["seconds"] + 2 * _PERIOD_S, _PERIOD_S):
            read()
        printed = load.result()
        read()
    wave = f"{command['busy_s']:g} s busy, {command['idle_s']:g} s idle"
    by_device_s = mean(printed["device_s"])
    by_device = {"by device events, ms": None if by_device_s is None else 1000 * by_device_s}
    return {"wave": wave, **by_device, **_compared(samples, BusyTruth(printed["spans"]))}


def _compared(samples: Sequence[BusySample], truth: BusyTruth) -> Row:
    """Compare the samples with the truth, within the time that both cover.

    A pause is a run of samples at or below 0.35 between two above it; its length is the idle time
    of those samples and of both edges.
    """
    first_ns, last_ns = truth.spans[0][0], truth.spans[-1][1]
    covered = [one for one in samples if first_ns <= one.start_ns and one.end_ns <= last_ns]
    if not covered:
        raise ValueError("no utilisation sample came while the wave ran")
    true_ns = [truth.busy_ns(one.start_ns, one.end_ns) for one in covered]
    true_ratios = [
        ns / (one.end_ns - one.start_ns) for ns, one in zip(true_ns, covered, strict=True)
    ]
    total_ns = sum(one.end_ns - one.start_ns for one in covered)
    seen_ns = sum(one.busy_ratio * (one.end_ns - one.start_ns) for one in covered)
    apart = [abs(true - one.busy_ratio) for true, one in zip(true_ratios, covered, strict=True)]
    begin_ns, end_ns = covered[0].start_ns, covered[-1].end_ns
    pauses = [one for one in truth.pauses if begin_ns <= one[0] and one[1] <= end_ns]
    seen = _pauses(covered)
    return {
        "a span, ms": _mean_ms(truth.spans),
        "busy, truth, %": 100 * sum(true_ns) / total_ns,
        "busy, gpumon, %": 100 * seen_ns / total_ns,
        "a sample, ms": _mean_ms([(one.start_ns, one.end_ns) for one in covered]),
        "error of a sample, %": 100 * statistics.mean(apart),
        "pauses, truth": len(pauses),
        "pauses seen": len(seen),
        "pause, truth, ms": _mean_ms(pauses),
        "pause seen, ms": 1000 * statistics.mean(seen) if seen else None,
    }


def _mean_ms(spans: Sequence[Span]) -> float | None:
    return mean([(end_ns - start_ns) / 1e6 for start_ns, end_ns in spans])


def _pauses(samples: Sequence[BusySample]) -> list[float]:
    """Idle seconds of each run of low samples between two high ones, both edges counted."""
    found: list[float] = []
    idle_s, edge_s = 0.0, None
    for one in samples:
        share_s = (1.0 - one.busy_ratio) * seconds(one.end_ns - one.start_ns)
        if one.busy_ratio <= _PAUSED:
            idle_s += share_s
        else:
            if idle_s and edge_s is not None:
                found.append(edge_s + idle_s + share_s)
            idle_s, edge_s = 0.0, share_s
    return found
