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
from tests.tools.board_capture.board import looks
from tests.tools.board_capture.load import Load
from tests.tools.board_capture.results import Row, mean
from tests.tools.board_capture.windows import BusyTruth, fit_window

_PERIOD_S: Final = 1.0
_PAUSED: Final = 0.35
_FITS_WITHIN: Final = 0.1
"""A stretch that leaves samples farther from the truth than that explains nothing."""
UTILISATION_ONLY: Final = nvml_options(
    off=["power", "memory", "temperature", "clocks", "throttle_reasons", "energy", "power_limit",
         "performance_state", "ecc", "persistence_mode", "activity", "processes", "events"]
)  # fmt: skip


def watch_wave(
    clock: Clock,
    gpu_uuid: str,
    load: Load,
    command: dict[str, Any],
    read_clock_ns: Callable[[int], int] = time.clock_gettime_ns,
) -> Row:
    """Let the load make the wave of that command, and hold what gpumon saw against its truth.

    Seen is through ``NvmlSource``, once a second, as ``gpumon serve`` does.
    """
    samples: list[BusySample] = []
    source = NvmlSource(clock, options=UTILISATION_ONLY, read_clock_ns=read_clock_ns)

    def read() -> None:
        for gpu in source.read().gpus:
            samples.extend(gpu.busy if gpu.device.uuid == gpu_uuid else ())

    with closing(source):
        load.begin(command)
        # What is stamped in the last moments comes a little later.
        for _ in looks(clock, command["seconds"] + 2 * _PERIOD_S, _PERIOD_S):
            read()
        said = load.result()
        read()
    wave = f"{command['busy_s']:g} s busy, {command['idle_s']:g} s idle"
    by_device = {"by device events, ms": _ms(mean(said["device_s"]))}
    return {"wave": wave, **by_device, **_held(samples, BusyTruth(said["spans"]))}


def _ms(value_s: float | None) -> float | None:
    return None if value_s is None else 1000 * value_s


def _held(samples: Sequence[BusySample], truth: BusyTruth) -> Row:
    """Samples against the truth, within the time that both know.

    A pause is seen as a run of samples at or below 0.35 between two above it, and takes as long as
    those samples, both edges counted, say that the board was idle.
    """
    first_ns, last_ns = truth.spans[0][0], truth.spans[-1][1]
    held = [one for one in samples if first_ns <= one.start_ns and one.end_ns <= last_ns]
    if not held:
        raise ValueError("no utilisation sample came while the wave ran")
    lengths_ns = [one.end_ns - one.start_ns for one in held]
    true_ns = [truth.busy_ns(one.start_ns, one.end_ns) for one in held]
    seen_ns = [one.busy_ratio * length for one, length in zip(held, lengths_ns, strict=True)]
    apart_ns = [abs(true - seen) for true, seen in zip(true_ns, seen_ns, strict=True)]
    begin_ns, end_ns = held[0].start_ns, held[-1].end_ns
    pauses = [one for one in truth.pauses() if begin_ns <= one[0] and one[1] <= end_ns]
    seen = _pauses(held)
    cadence_s = seconds(sorted(lengths_ns)[len(held) // 2])
    fit = fit_window(truth, [(one.end_ns, one.busy_ratio) for one in held], cadence_s)
    fits = fit is not None and fit.error_ratio <= _FITS_WITHIN
    return {
        "a span, ms": _ms(mean([seconds(end - start) for start, end in truth.spans])),
        "busy, truth, %": 100 * sum(true_ns) / sum(lengths_ns),
        "busy, gpumon, %": 100 * sum(seen_ns) / sum(lengths_ns),
        "error of a sample, %": 100 * statistics.mean(map(truediv, apart_ns, lengths_ns)),
        "pauses, truth": len(pauses),
        "pauses seen": len(seen),
        "pause, truth, ms": _ms(mean([seconds(end - start) for start, end in pauses])),
        "pause seen, ms": _ms(mean(seen)),
        "window, ms": 1000 * fit.window_s if fit and fits else "none fits",
        "ends before its stamp, ms": 1000 * fit.lag_s if fit and fits else None,
        "error then, %": 100 * fit.error_ratio if fit else None,
    }


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
