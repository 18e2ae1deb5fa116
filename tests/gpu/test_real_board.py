"""The samples of a real board (``make gpu``)."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from gpumon.core.sample import Frame, GpuSample
from gpumon.errors import SourceUnavailableError
from gpumon.sources.nvml.source import NvmlSource
from gpumon.sources.system_clock import SystemClock

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def frames() -> list[Frame]:
    """Ten seconds of a real machine, once a second."""
    try:
        source = NvmlSource(SystemClock())
    except SourceUnavailableError as error:
        pytest.skip(f"no GPU here: {error}")
    read = []
    for _ in range(10):
        read.append(source.read())
        time.sleep(1.0)
    source.close()
    return read


def whole_gpus(frame: Frame) -> list[GpuSample]:
    """The readable GPUs, without MIG-partitioned ones and instances."""
    found = [
        gpu
        for gpu in frame.gpus
        if gpu.error is None and gpu.device.parent_uuid is None and not gpu.device.mig_enabled
    ]
    if not found:
        pytest.skip("no GPU here can be read without MIG")
    return found


class TestARealBoard:
    def test_has_a_name_a_uuid_and_memory(self, frames: list[Frame]) -> None:
        for gpu in whole_gpus(frames[-1]):
            assert gpu.device.name
            assert gpu.device.uuid.startswith("GPU-")
            assert gpu.memory_used_bytes is not None

    def test_is_observed_nearly_all_the_time_without_an_overlap(self, frames: list[Frame]) -> None:
        for uuid in {gpu.device.uuid for gpu in whole_gpus(frames[-1])}:
            samples = [
                sample
                for frame in frames
                for gpu in frame.gpus
                if gpu.device.uuid == uuid
                for sample in gpu.busy
            ]
            observed_ns = sum(sample.end_ns - sample.start_ns for sample in samples)

            assert all(a.end_ns <= b.start_ns for a, b in pairwise(samples))
            assert observed_ns > 6_000_000_000
