"""A wave of known length on the GPU, and what gpumon's own source makes of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from gpumon.core.clock import Clock
from gpumon.core.sample import BusySample
from gpumon.sources.nvml.fields.table import nvml_options
from gpumon.sources.nvml.source import NvmlSource
from tests.tools.board_capture.load import Load
from tests.tools.board_capture.results import WaveAccuracy
from tests.tools.board_capture.windows import BusyTruth, fit_window

_NS_PER_S: Final = 1_000_000_000
_PERIOD_NS: Final = _NS_PER_S
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
        try:
            load.begin(command)
            until_ns = self._clock.monotonic_ns() + round(command["seconds"] * _NS_PER_S)
            # What is stamped in the last moments comes a little later.
            while (now_ns := self._clock.monotonic_ns()) < until_ns + 2 * _PERIOD_NS:
                samples += self._read(source)
                self._clock.sleep_until_ns(now_ns + _PERIOD_NS)
            samples += self._read(source)
            said = load.result()
            samples += self._read(source)  # a profiler takes seconds to begin
        finally:
            source.close()
        truths = {"kernels": "the profiler's kernels", "spans": "stamps around the kernels"}
        device_s = [one for one in said.get("device_s", ()) if one is not None]
        return [
            replace(
                _held(samples, BusyTruth([(a, b) for a, b in said[key]]), command, truth),
                device_span_s=_mean(device_s),
            )
            for key, truth in truths.items()
            if said.get(key)
        ]

    def _read(self, source: NvmlSource) -> Sequence[BusySample]:
        return [
            sample
            for gpu in source.read().gpus
            if gpu.device.uuid == self._uuid
            for sample in gpu.busy
        ]


def _held(
    samples: Sequence[BusySample], truth: BusyTruth, command: dict[str, Any], origin: str
) -> WaveAccuracy:
    """Samples against the truth, within the time that both know."""
    first_ns, last_ns = truth.spans[0][0], truth.spans[-1][1]
    held = [one for one in samples if first_ns <= one.start_ns and one.end_ns <= last_ns]
    if not held:
        raise ValueError("no utilisation sample came while the wave ran")
    true_ns = [truth.busy_ns(one.start_ns, one.end_ns) for one in held]
    total_ns = sum(one.end_ns - one.start_ns for one in held)
    wrong = [
        abs(busy_ns / (one.end_ns - one.start_ns) - one.busy_ratio)
        for busy_ns, one in zip(true_ns, held, strict=True)
    ]
    begin_ns, end_ns = held[0].start_ns, held[-1].end_ns
    pauses = [one for one in truth.pauses() if begin_ns <= one[0] and one[1] <= end_ns]
    seen = _pauses(held)
    length_s = sorted((one.end_ns - one.start_ns) / _NS_PER_S for one in held)
    return WaveAccuracy(
        busy_s=command["busy_s"],
        idle_s=command["idle_s"],
        truth=origin,
        true_busy_ratio=sum(true_ns) / total_ns,
        seen_busy_ratio=sum(one.busy_ratio * (one.end_ns - one.start_ns) for one in held)
        / total_ns,
        error_ratio=sum(wrong) / len(wrong),
        true_pauses=len(pauses),
        seen_pauses=len(seen),
        true_pause_s=_mean([(end - start) / _NS_PER_S for start, end in pauses]),
        seen_pause_s=_mean(seen),
        fit=fit_window(
            truth,
            [(one.end_ns, one.busy_ratio) for one in held],
            length_s[len(length_s) // 2],
        ),
        span_s=_mean([(end - start) / _NS_PER_S for start, end in truth.spans]),
        device_span_s=None,
    )


def _pauses(samples: Sequence[BusySample]) -> list[float]:
    """Idle seconds of each run of low samples between two high ones, both edges counted."""
    found: list[float] = []
    idle_s, edge_s = 0.0, None
    for one in samples:
        share_s = (1.0 - one.busy_ratio) * (one.end_ns - one.start_ns) / _NS_PER_S
        if one.busy_ratio <= _PAUSED:
            idle_s += share_s
        else:
            if idle_s and edge_s is not None:
                found.append(edge_s + idle_s + share_s)
            idle_s, edge_s = 0.0, share_s
    return found


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
