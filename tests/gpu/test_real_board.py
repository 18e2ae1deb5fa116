"""What a real board says; runs only where there is one (``make gpu``)."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from gpumon.core.sample import Frame
from gpumon.errors import SourceUnavailableError
from gpumon.sources.nvml import NvmlSource
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


class TestARealBoard:
    def test_has_a_name_a_uuid_and_memory(self, frames: list[Frame]) -> None:
        assert frames[-1].gpus
        for gpu in frames[-1].gpus:
            assert gpu.device.name
            assert gpu.device.uuid.startswith("GPU-")
            assert gpu.memory_used_bytes is not None

    def test_is_observed_nearly_all_the_time_without_an_overlap(self, frames: list[Frame]) -> None:
        uuids = {gpu.device.uuid for gpu in frames[-1].gpus}

        assert uuids
        for uuid in uuids:
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
