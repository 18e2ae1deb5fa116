"""The log that nvidia-smi would have written of a workload."""

from __future__ import annotations

import datetime
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tests.truth.workloads.seeing import seen_all
from tests.truth.workloads.spans import Spans, covered_ms
from tests.truth.workloads.truth import GpuTruth, Workload

_HEAD: Final = "timestamp, index, utilization.gpu [%], memory.used [MiB], power.draw [W]"
_BEGIN: Final = datetime.datetime(2026, 3, 2, 9, 0, 0)
_NS_PER_MS: Final = 1_000_000
_IDLE_MIB: Final = 4
"""Memory of an unused GPU."""
_WINDOW_MS: Final = 1_000
_RESTS_W, _WORKS_W, _SPINS_W = 128.0, 690.0, 250.0
"""At rest with a process, at full load, and while a kernel waits for its peers. The first two were
measured on an H200, the third is a guess."""


def as_csv(workload: Workload, period_s: float, rng: np.random.Generator) -> str:
    """What ``nvidia-smi --query-gpu=timestamp,index,... --format=csv -l`` would have written.

    Args:
        workload: What happened.
        period_s: Seconds between two rows of a GPU, above 0.
        rng: For the driver and the logger.
    """
    logs = seen_all(workload, period_s, rng)
    columns = []
    for index, (gpu, log) in enumerate(zip(workload.gpus, logs, strict=True)):
        at_ms = log.stamps_ns // _NS_PER_MS
        used_mib, drawn_w = memory_used_mib(gpu, at_ms), power_watts(gpu, at_ms)
        columns.append(
            [
                f"{_stamp(ms)}, {index}, {percent} %, {mib} MiB, {watts:.2f} W"
                for ms, percent, mib, watts in zip(
                    at_ms.tolist(),
                    log.percents.tolist(),
                    used_mib.tolist(),
                    drawn_w.tolist(),
                    strict=True,
                )
            ]
        )
    rows = [row for tick in zip(*columns, strict=True) for row in tick]
    return "\n".join([_HEAD, *rows, ""])


def memory_used_mib(gpu: GpuTruth, at_ms: NDArray[np.int64]) -> NDArray[np.int64]:
    """Its memory in use at these times, in MiB; shape as ``at_ms``."""
    is_held = np.searchsorted(gpu.held.ravel(), at_ms, side="right") % 2 == 1
    return np.where(is_held, gpu.memory_mib, 0) + _IDLE_MIB


def power_watts(gpu: GpuTruth, at_ms: NDArray[np.int64]) -> NDArray[np.float64]:
    """The mean power in the second before these times; shape as ``at_ms``."""

    def share(spans: Spans) -> NDArray[np.float64]:
        ends_ms = at_ms.astype(np.float64)
        begins_ms = (at_ms - _WINDOW_MS).astype(np.float64)
        covered = covered_ms(spans, ends_ms) - covered_ms(spans, begins_ms)
        return np.asarray(covered / _WINDOW_MS)

    spins = share(gpu.spins)
    works = share(gpu.busy) - spins
    return _RESTS_W + works * (_WORKS_W - _RESTS_W) + spins * (_SPINS_W - _RESTS_W)


def _stamp(at_ms: int) -> str:
    at = _BEGIN + datetime.timedelta(milliseconds=at_ms)
    return f"{at:%Y/%m/%d %H:%M:%S}.{at.microsecond // 1000:03d}"
