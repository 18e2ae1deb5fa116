"""NVML sources on the fake library."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from gpumon.core.clock import seconds
from gpumon.core.sample import BusySample, Frame
from gpumon.sources.nvml.fields.table import DEFAULT_OPTIONS, SLOW_PERIOD_S, NvmlOptions, ReadTimes
from gpumon.sources.nvml.source import NvmlSource
from gpumon.sources.system_clock import SystemClock
from tests.fakenvml.control import FakeNvml
from tests.waiting import PATIENCE_S

MS = 1_000_000
UNUSED_PID = (1 << 22) + 1
"""No kernel gives it to a process."""

Open = Callable[..., NvmlSource]
"""Opens a source that uses the machine's clock: ``open_source(slow_period_s=...)``."""


class Refusals:
    """Counts impossible values that are refused."""

    count = 0

    def __call__(self) -> None:
        self.count += 1


def read_for(source: NvmlSource, duration_s: float, every_s: float) -> list[Frame]:
    """Frames at regular times, by the machine's clock."""
    frames, until_s = [], time.monotonic() + duration_s
    while time.monotonic() < until_s:
        time.sleep(every_s)
        frames.append(source.read())
    return frames


def samples_of(frames: Sequence[Frame], index: int = 0) -> list[BusySample]:
    return [sample for frame in frames for sample in frame.gpus[index].busy]


class DriverClock(SystemClock):
    """A fake driver's clock: it only moves by sleeping or by ``advance``."""

    def __init__(self, fake: FakeNvml) -> None:
        super().__init__()
        self._fake = fake
        fake.stop_clock()

    def monotonic_ns(self) -> int:
        return self._fake.now_ns()

    def wall_time_s(self) -> float:
        return seconds(self.read_clock_ns(time.CLOCK_REALTIME))

    def sleep_until_ns(self, deadline_ns: int) -> None:
        self._fake.advance(seconds(max(0, deadline_ns - self._fake.now_ns())))

    def read_clock_ns(self, clock_id: int) -> int:
        return time.clock_gettime_ns(clock_id) - time.monotonic_ns() + self._fake.now_ns()


def open_at_a_standstill(
    fake: FakeNvml, options: NvmlOptions = DEFAULT_OPTIONS, *, slow_period_s: float = SLOW_PERIOD_S
) -> NvmlSource:
    """A source whose time passes only by ``fake.advance(seconds)``."""
    clock = DriverClock(fake)
    return NvmlSource(
        clock,
        options=options,
        times=ReadTimes(slow_s=slow_period_s),
        slow_patience_s=PATIENCE_S,
        read_clock_ns=clock.read_clock_ns,
    )
