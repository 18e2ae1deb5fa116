"""What a source on its thread does while a call hangs, by the machine's own clock.

What a daemon says meanwhile on its port is in ``test_driver_and_time.py``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from gpumon.core.clock import NS_PER_S, nanoseconds
from gpumon.core.ring.events import RingsReading
from gpumon.core.sample import Moment
from gpumon.core.state import GpuState, MonitorState
from gpumon.pipeline.monitor import Monitor, MonitorFacts
from gpumon.pipeline.watch import Sampler, SourceThread
from gpumon.sources.nvml.source import NvmlSource
from gpumon.sources.system_clock import SystemClock
from tests.fakenvml.control import FakeNvml
from tests.faults.faulty_machine import DRAIN
from tests.patience import wait_until

PERIOD_S = 0.1
LIMIT = "nvmlDeviceGetEnforcedPowerLimit"
FOREVER_US = 60_000_000


class Watch:
    """Sampler, source and monitor, ten times a second."""

    def __init__(self, fake: FakeNvml) -> None:
        self.fake = fake
        clock = SystemClock()
        self._source = SourceThread(
            lambda: NvmlSource(clock, period_s=PERIOD_S, slow_period_s=0.3), clock
        )
        self._sampler = Sampler(self._source, clock, period_ns=nanoseconds(PERIOD_S))
        self._monitor = Monitor(
            MonitorFacts(
                source="nvml",
                source_kind="nvml",
                simulated=False,
                period_ns=nanoseconds(PERIOD_S),
                boot_id="boot",
                started_wall_time_s=0.0,
            )
        )
        self.state = self.tick()
        wait_until(lambda: len(self.tick().gpus) == fake.control.gpu_count)

    def tick(self, count: int = 1) -> MonitorState:
        for _ in range(count):
            tick = self._sampler.tick()
            self.state = self._monitor.take(Moment(tick, RingsReading(), 0.0))
        return self.state

    def until_observed(self, slot: int, more_s: float) -> GpuState:
        """Ticks until that GPU is observed for so much longer."""
        wanted_ns = self.gpu(slot).totals.observed_ns + nanoseconds(more_s)
        wait_until(lambda: bool(self.tick()) and self.gpu(slot).totals.observed_ns >= wanted_ns)
        return self.gpu(slot)

    def gpu(self, slot: int) -> GpuState:
        uuid = self.fake.uuid(slot)
        return next(gpu for gpu in self.state.gpus if gpu.device.uuid == uuid)

    def close(self) -> None:
        self._source.stop(5.0)


@pytest.fixture
def watch(fake_nvml: FakeNvml) -> Iterator[Watch]:
    for slot in (0, 1):
        fake_nvml.wave(slot, period_s=0.2, busy_ratio=1.0, window_s=0.02)
    watching = Watch(fake_nvml)
    watching.until_observed(0, 0.1)
    yield watching
    for function in (DRAIN, LIMIT):
        fake_nvml.delay(function, 0)
        fake_nvml.delay(function, 0, gpu=0)
    watching.close()


class TestAGpuThatIsLostWhileACallHangs:
    def test_is_lost_when_the_call_returns_and_the_other_goes_on(self, watch: Watch) -> None:
        fake = watch.fake
        fake.delay(DRAIN, FOREVER_US, gpu=0)
        wait_until(lambda: bool(watch.tick()) and fake.waiting(DRAIN) > 0)
        fake.lose(0)
        watch.tick(5)
        before_ns = watch.gpu(0).totals.observed_ns
        assert not watch.gpu(0).present
        assert not watch.gpu(1).present

        fake.delay(DRAIN, 0, gpu=0)
        watch.until_observed(1, 0.2)

        assert "the GPU is lost" in (watch.gpu(0).error or "")
        assert watch.gpu(0).totals.observed_ns == before_ns
        for slot in (0, 1):
            totals = watch.gpu(slot).totals
            assert totals.observed_ns == totals.busy_ns
        fake.find(0)
        watch.until_observed(0, 0.1)


class TestAFieldThatHangs:
    def test_costs_no_tick_and_no_time_and_starts_no_thread(self, watch: Watch) -> None:
        fake = watch.fake
        fake.delay(LIMIT, FOREVER_US)
        wait_until(lambda: bool(watch.tick()) and fake.waiting(LIMIT) > 0)
        threads = threading.active_count()
        missed, hung_ns = watch.state.missed_total, watch.gpu(1).totals.observed_ns
        watch.tick(8)
        assert watch.state.missed_total - missed <= 1, "a busy machine may be late once"
        assert threading.active_count() <= threads
        assert watch.gpu(1).totals.observed_ns - hung_ns >= 0.6 * NS_PER_S

        fake.delay(LIMIT, 0)
        watch.until_observed(1, 0.2)

        assert watch.gpu(1).totals.observed_ns == watch.gpu(1).totals.busy_ns
        assert fake.waiting(LIMIT) == 0
