"""Workloads and GPUs of known truth, in few words."""

from __future__ import annotations

import zlib
from functools import cache

import numpy as np

from tests.truth.workloads import GpuTruth, Workload, workload
from tests.truth.workloads.spans import spans_of


@cache
def half_an_hour(kind: str, seed: int = 1) -> Workload:
    return workload(kind, seed, hours=0.5)


def chance(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def crc(made: Workload) -> int:
    """Of all that happened, to the millisecond."""
    arrays = [
        column
        for gpu in made.gpus
        for column in (gpu.busy, gpu.starved, gpu.jobs, gpu.held, *gpu.marks)
    ]
    return zlib.crc32(b"".join(array.astype("<i8").tobytes() for array in arrays))


def gpu_busy(*spans: tuple[int, int]) -> GpuTruth:
    return GpuTruth(busy=spans_of(spans), starved=spans_of([]), jobs=spans_of(spans))
