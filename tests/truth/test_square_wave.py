"""One reading a second recovers a known rhythm, through the real NVML binding."""

from __future__ import annotations

import pynvml
import pytest

from benchmarks.bench_square_wave import Recovered, watch
from gpumon.sources.nvml.source import NvmlSource
from tests.builders.nvml import DriverClock
from tests.fakenvml.control import FakeNvml

SECONDS = 25


@pytest.fixture
def recovered(fake_nvml: FakeNvml) -> Recovered:
    """A GPU in a rhythm of one second, as observed."""
    clock = DriverClock(fake_nvml)
    source = NvmlSource(clock, read_clock_ns=clock.read_clock_ns)
    pynvml.nvmlInit()
    return watch(fake_nvml, ((1.0, 0.7), (3.0, 0.8)), SECONDS, clock, source)[0]


class TestOneReadingASecond:
    def test_finds_the_busy_time_within_one_percent(self, recovered: Recovered) -> None:
        assert recovered.drained_ratio == pytest.approx(recovered.true_ratio, abs=0.01)

    def test_misses_at_most_one_pause(self, recovered: Recovered) -> None:
        assert recovered.true_gaps >= 23
        assert recovered.drained_gaps >= recovered.true_gaps - 1

    def test_finds_more_than_polling_the_rate(self, recovered: Recovered) -> None:
        assert abs(recovered.polled_ratio - recovered.true_ratio) > 0.2
