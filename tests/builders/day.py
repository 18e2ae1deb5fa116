"""A daemon's day on a clock that the test moves: source, pipeline and outlets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.core.phase import TrainingMode, TrainingPhase
from gpumon.core.ring_format.events import (
    NO_RECORDS,
    RingEvent,
    RingKind,
    RingReading,
    RingRecords,
    RingsReading,
    RunFacts,
)
from gpumon.core.state import MonitorState
from gpumon.outlets.http.live_state import LiveState
from gpumon.outlets.metrics.prometheus import MetricsExporter
from gpumon.outlets.state_file import StateFile
from gpumon.pipeline.monitor import Monitor, MonitorFacts
from gpumon.pipeline.report_builder import Reports
from gpumon.sources.nvml.source import NvmlSource
from tests.builders.monitor import reading, ring_reading
from tests.builders.nvml import DriverClock
from tests.fakenvml.control import FakeNvml
from tests.serving import new_views

_SCRAPE_EVERY_S: Final = 60.0
_REPORT_EVERY_S: Final = 300.0
_PID: Final = 4000


class Day:
    """What ``gpumon serve`` does in each tick, with a scrape and a report from time to time.

    GPUs with different rhythms work for one training run after the other, each with its ring and
    an error of the driver.
    """

    def __init__(self, fake: FakeNvml, folder: Path, *, period_s: float, run_s: float) -> None:
        self._fake, self._clock = fake, DriverClock(fake)
        self._period_s, self._period_ns = period_s, round(period_s * NS_PER_S)
        for slot in range(fake.control.gpu_count):
            fake.wave(slot, period_s=1.0 + 0.37 * slot, busy_ratio=0.7)
            fake.run(slot, _PID)
        self.source = NvmlSource(self._clock, read_clock_ns=self._clock.read_clock_ns)
        self._monitor = Monitor(
            MonitorFacts(
                source="nvml", source_kind="nvml", simulated=False, period_ns=self._period_ns,
                boot_id="boot", started_wall_time_s=self._clock.wall_time_s(),
            )
        )  # fmt: skip
        self._runs = RunsInTurn(run_s)
        self._reports = Reports()
        self._live = LiveState(self._clock, new_views())
        self._exporter = MetricsExporter(clock=self._clock, version="0")
        self._file = StateFile(folder / "state.json")
        self._every = {
            self._scrape: round(_SCRAPE_EVERY_S / period_s),
            self._report: round(_REPORT_EVERY_S / period_s),
            self._break: round(run_s / period_s),
        }
        self.ticks = 0
        self.state: MonitorState | None = None

    def pass_seconds(self, duration_s: float) -> None:
        for _ in range(round(duration_s / self._period_s)):
            self._fake.advance(self._period_s)
            self._tick()

    def close(self) -> None:
        self.source.close()
        self._file.close()

    def _tick(self) -> None:
        frame, now_ns = self.source.read(), self._clock.monotonic_ns()
        rings = self._runs.read(now_ns, self._period_ns)
        read = reading(now_ns, frame, rings=rings, wall_time_s=self._clock.wall_time_s())
        state = self.state = self._monitor.ingest(read, (self._file.collector_state(),))
        self._reports.follow(state)
        self._file.write(state)
        self._exporter.publish(state)
        self._live.publish(state)
        self.ticks += 1
        for act, every in self._every.items():
            if self.ticks % every == 0:
                act()

    def _scrape(self) -> None:
        assert b"gpumon_gpu_busy_seconds_total" in self._exporter.render().body
        assert self._live.event()
        assert self._live.history.encode()

    def _report(self) -> None:
        assert self._reports.report() is not None
        assert self._reports.report(since_s=600.0) is not None

    def _break(self) -> None:
        """The processes change, and the driver reports an error."""
        for process in self._fake.control.processes[: self._fake.control.process_count]:
            process.pid += 1
        self._fake.report_xid(0, 13 + self.ticks % 300)


class RunsInTurn:
    """The rings of training runs in turn; each stays for a while after its end."""

    def __init__(self, run_s: float) -> None:
        self._run_ns = round(run_s * NS_PER_S)
        self._ring_stays_ns = round(min(15 * 60, 3 * run_s) * NS_PER_S)
        self._number = self._ends_ns = 0
        self._rings: dict[str, RingReading] = {}

    def read(self, now_ns: int, period_ns: int) -> RingsReading:
        """The rings of the last period: half of it waiting, half at work."""
        if now_ns >= self._ends_ns:
            self._begin(now_ns)
        key, since_ns = str(self._number), now_ns - period_ns
        ring = self._rings[key]
        self._rings[key] = ring._replace(
            read_at_ns=now_ns,
            events=RingRecords.of(
                (
                    _enter(since_ns + 1, TrainingPhase.INPUT_WAIT),
                    _enter(since_ns + period_ns // 2, TrainingPhase.TRAIN_STEP),
                )
            ),
            steps=ring.steps + 1,
            samples=ring.samples + 32,
        )
        return RingsReading(rings=tuple(self._rings.values()))

    def _begin(self, now_ns: int) -> None:
        for key, ring in [*self._rings.items()]:
            ended_ns = ring.ended_ns or now_ns
            self._rings[key] = ring._replace(alive=False, ended_ns=ended_ns, events=NO_RECORDS)
            if now_ns - ended_ns > self._ring_stays_ns:
                del self._rings[key]
        self._number += 1
        self._ends_ns = now_ns + self._run_ns
        key = str(self._number)
        facts = RunFacts(
            run=f"run-{key}", job=key, pid=_PID + self._number, boot_id="boot",
            started_ns=now_ns, gpus=("0",),
        )  # fmt: skip
        self._rings[key] = ring_reading(facts, key=key, read_at_ns=now_ns, epoch=0)


@contextmanager
def day(fake: FakeNvml, folder: Path, *, period_s: float, run_s: float) -> Iterator[Day]:
    """A day that is closed at the end of the block; ``run_s``: length of a training run."""
    one = Day(fake, folder, period_s=period_s, run_s=run_s)
    try:
        yield one
    finally:
        one.close()


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def threads() -> int:
    return threading.active_count()


def _enter(at_ns: int, phase: TrainingPhase) -> RingEvent:
    return RingEvent(RingKind.ENTER, at_ns, phase, TrainingMode.TRAIN)
