"""A wave of known length on the GPU, and what gpumon's own source makes of it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from operator import truediv
from typing import Any, Final

from gpumon.core.clock import Clock, seconds
from gpumon.core.sample import BusySample
from gpumon.sources.nvml.fields.table import nvml_options
from gpumon.sources.nvml.source import NvmlSource
from tests.tools.board_capture.board import looks, mean
from tests.tools.board_capture.load import Load
from tests.tools.board_capture.results import WaveAccuracy
from tests.tools.board_capture.windows import BusyTruth, fit_window

_PERIOD_S: Final = 1.0
_PAUSED: Final = 0.35
UTILISATION_ONLY: Final = nvml_options(
    off=["power", "memory", "temperature", "clocks", "throttle_reasons", "energy", "power_limit",
         "performance_state", "ecc", "persistence_mode", "activity", "processes", "events"]
)  # fmt: skip


class WaveWatcher:
    """Watches one GPU through ``NvmlSource``, as ``gpumon serve`` does: once a second."""

    def __init__(
        self,
        clock: Clock,
        gpu_uuid: str,
        read_clock_ns: Callable[[int], int] = time.clock_gettime_ns,
    ) -> None:
        self._clock, self._uuid, self._read_clock_ns = clock, gpu_uuid, read_clock_ns

    def watch(self, load: Load, command: dict[str, Any]) -> list[WaveAccuracy]:
        """Let the load make its wave, and hold what was seen against each truth it gives.

        Args:
            load: Makes the wave.
            command: ``wave`` or ``profile``, as ``load_program`` takes it.
        """
        source = NvmlSource(
            self._clock, options=UTILISATION_ONLY, read_clock_ns=self._read_clock_ns
        )
        samples: list[BusySample] = []
        with closing(source):
            load.begin(command)
            # What is stamped in the last moments comes a little later.
            for _ in looks(self._clock, command["seconds"] + 2 * _PERIOD_S, _PERIOD_S):
                samples += self._read(source)
            samples += self._read(source)
            said = load.result()
            samples += self._read(source)  # a profiler takes seconds to begin
        by_device_s = mean(said.get("device_s", ()))
        truths = {"kernels": "the profiler's kernels", "spans": "stamps around the kernels"}
        return [
            _held(samples, BusyTruth([(a, b) for a, b in said[key]]), command, truth, by_device_s)
            for key, truth in truths.items()
            if said.get(key)
        ]

    def _read(self, source: NvmlSource) -> Sequence[BusySample]:
        gpus = [gpu for gpu in source.read().gpus if gpu.device.uuid == self._uuid]
        return [sample for gpu in gpus for sample in gpu.busy]


def _held(
    samples: Sequence[BusySample],
    truth: BusyTruth,
    command: dict[str, Any],
    origin: str,
    by_device_s: float | None,
) -> WaveAccuracy:
    """Samples against the truth, within the time that both know."""
    first_ns, last_ns = truth.spans[0][0], truth.spans[-1][1]
    held = [one for one in samples if first_ns <= one.start_ns and one.end_ns <= last_ns]
    if not held:
        raise ValueError("no utilisation sample came while the wave ran")
    lengths_ns = [one.end_ns - one.start_ns for one in held]
    total_ns = sum(lengths_ns)
    true_ns = [truth.busy_ns(one.start_ns, one.end_ns) for one in held]
    seen_ns = [one.busy_ratio * length for one, length in zip(held, lengths_ns, strict=True)]
    apart_ns = [abs(true - seen) for true, seen in zip(true_ns, seen_ns, strict=True)]
    begin_ns, end_ns = held[0].start_ns, held[-1].end_ns
    pauses = [one for one in truth.pauses() if begin_ns <= one[0] and one[1] <= end_ns]
    seen = _pauses(held)
    cadence_s = seconds(sorted(lengths_ns)[len(held) // 2])
    return WaveAccuracy(
        wave=f"{command['busy_s']:g} s busy, {command['idle_s']:g} s idle",
        truth=origin,
        true_busy_ratio=sum(true_ns) / total_ns,
        seen_busy_ratio=sum(seen_ns) / total_ns,
        error_ratio=statistics.mean(map(truediv, apart_ns, lengths_ns)),
        true_pauses=len(pauses),
        seen_pauses=len(seen),
        true_pause_s=mean([seconds(end - start) for start, end in pauses]),
        seen_pause_s=mean(seen),
        fit=fit_window(truth, [(one.end_ns, one.busy_ratio) for one in held], cadence_s),
        span_s=mean([seconds(end - start) for start, end in truth.spans]),
        device_span_s=by_device_s,
    )


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
