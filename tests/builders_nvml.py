"""NVML sources on the fake library, and what their frames add up to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from gpumon.core.sample import BusySample, Frame
from gpumon.sources.nvml.fields.table import DEFAULT_OPTIONS, SLOW_PERIOD_S, NvmlOptions
from gpumon.sources.nvml.source import NvmlSource
from gpumon.sources.system_clock import SystemClock
from tests.fakenvml.control import FakeNvml
from tests.patience import PATIENCE_S

DRAIN = "nvmlDeviceGetSamples"
RATES = "nvmlDeviceGetUtilizationRates"
MS = 1_000_000
STEP_US = 100_000


class Clock(SystemClock):
    """The system's clock, which a test can put forward; the stamps of the fake stay behind."""

    ahead_ns = 0

    def monotonic_ns(self) -> int:
        return time.monotonic_ns() + self.ahead_ns


Open = Callable[[], NvmlSource]


class Refusals:
    """Counts the values that are refused because no device can have meant them."""

    count = 0

    def __call__(self) -> None:
        self.count += 1


def recent(fake: FakeNvml, *percents: float) -> list[tuple[int, float]]:
    """Entries of an explicit ring, 100 ms apart, the last one just now."""
    now_us = fake.stamp_us(time.monotonic_ns())
    return [(now_us - STEP_US * k, p) for k, p in enumerate(reversed(percents))][::-1]


def following(fake: FakeNvml, slot: int, *percents: float) -> list[tuple[int, float]]:
    """Entries that come after the ring of that GPU, 1 ms apart, the last one just now.

    However long the test was held up before it first read the source: what is
    stamped earlier than that read is not observed.
    """
    gpu = fake.gpu(slot)
    first_us = fake.stamp_us(time.monotonic_ns()) - 1000 * (len(percents) - 1)
    assert first_us > gpu.ring[gpu.ring_count - 1].stamp_us
    return [(first_us + number * 1000, percent) for number, percent in enumerate(percents)]


def read_for(source: NvmlSource, duration_s: float, every_s: float) -> Iterator[Frame]:
    """Frames at regular times."""
    until_s = time.monotonic() + duration_s
    while time.monotonic() < until_s:
        time.sleep(every_s)
        yield source.read()


def samples_of(frames: Iterator[Frame], index: int = 0) -> list[BusySample]:
    return [sample for frame in frames for sample in frame.gpus[index].busy]


def busy_ns(samples: list[BusySample]) -> float:
    return sum((end - start) * ratio for start, end, ratio in samples)


def total_ns(samples: list[BusySample]) -> int:
    return sum(end - start for start, end, _ in samples)


class DriverClock(SystemClock):
    """The clock of a fake driver, which stands still until its ``advance`` moves it."""

    def __init__(self, fake: FakeNvml) -> None:
        super().__init__()
        self._fake = fake
        fake.stop_clock()

    def monotonic_ns(self) -> int:
        return self._fake.now_ns()

    def read_clock_ns(self, clock_id: int) -> int:
        return time.clock_gettime_ns(clock_id) - time.monotonic_ns() + self._fake.now_ns()


def open_at_a_standstill(
    fake: FakeNvml, options: NvmlOptions = DEFAULT_OPTIONS, *, slow_period_s: float = SLOW_PERIOD_S
) -> NvmlSource:
    """A source whose time passes only where a test says ``fake.advance(seconds)``."""
    clock = DriverClock(fake)
    return NvmlSource(
        clock,
        options=options,
        slow_period_s=slow_period_s,
        slow_patience_s=PATIENCE_S,
        read_clock_ns=clock.read_clock_ns,
    )
