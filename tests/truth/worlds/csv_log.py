"""The log that nvidia-smi would have written of a world."""

from __future__ import annotations

import datetime
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tests.truth.worlds.seeing import seen_all
from tests.truth.worlds.truth import GpuTruth, World

_HEAD: Final = "timestamp, index, utilization.gpu [%], memory.used [MiB]"
_BEGIN: Final = datetime.datetime(2026, 3, 2, 9, 0, 0)
_NS_PER_MS: Final = 1_000_000
_NOBODY_MIB: Final = 4
"""What a GPU holds that nobody uses."""


def as_csv(world: World, period_s: float, rng: np.random.Generator) -> str:
    """What ``nvidia-smi --query-gpu=timestamp,index,... --format=csv -l`` would have written.

    Args:
        world: What happened.
        period_s: Seconds between two rows of a GPU, above 0.
        rng: Where the chance in driver and logger comes from.

    Returns:
        A header and a row per GPU and tick, local time in milliseconds,
        the last line ended.
    """
    logs = seen_all(world, period_s, rng)
    columns = []
    for index, (gpu, log) in enumerate(zip(world.gpus, logs, strict=True)):
        at_ms = log.stamps_ns // _NS_PER_MS
        used_mib = memory_used_mib(gpu, at_ms)
        columns.append(
            [
                f"{_stamp(ms)}, {index}, {percent} %, {mib} MiB"
                for ms, percent, mib in zip(
                    at_ms.tolist(), log.percents.tolist(), used_mib.tolist(), strict=True
                )
            ]
        )
    rows = [row for tick in zip(*columns, strict=True) for row in tick]
    return "\n".join([_HEAD, *rows, ""])


def memory_used_mib(gpu: GpuTruth, at_ms: NDArray[np.int64]) -> NDArray[np.int64]:
    """What of its memory is taken at these times, in MiB; shape as ``at_ms``."""
    is_held = np.searchsorted(gpu.held.ravel(), at_ms, side="right") % 2 == 1
    return np.where(is_held, gpu.memory_mib, 0) + _NOBODY_MIB


def _stamp(at_ms: int) -> str:
    at = _BEGIN + datetime.timedelta(milliseconds=at_ms)
    return f"{at:%Y/%m/%d %H:%M:%S}.{at.microsecond // 1000:03d}"
