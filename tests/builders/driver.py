"""A source and a monitor on fake GPUs, with a clock that the test moves.

After each tick the laws are checked that must hold whatever a driver answers.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from gpumon.core.clock import NS_PER_S
from gpumon.core.sample import BusySample, Frame, GpuDetails, GpuSample
from gpumon.core.state import GpuState, MonitorState
from gpumon.errors import SourceUnavailableError
from gpumon.sources.gpu_source import ReadNow
from gpumon.sources.nvml.fields.table import NVML_FIELDS, NvmlOptions, ReadTimes, nvml_options
from gpumon.sources.nvml.source import NvmlSource
from tests.builders.gpu_time import TimeLaws
from tests.builders.monitor import NO_RINGS, monitor, reading
from tests.fakenvml.control import FakeNvml
from tests.waiting import PATIENCE_S

EVERY_FIELD = nvml_options(on=[field.name for field in NVML_FIELDS if field.opt_in])

Device = str | int

_BEGAN_NS = 5_000 * NS_PER_S
_REALTIME_AHEAD_NS = 1_700_000_000 * NS_PER_S


def holes_ns(samples: Sequence[BusySample]) -> list[int]:
    """Gaps between samples."""
    holes = [late.start_ns - early.end_ns for early, late in pairwise(samples)]
    return [hole for hole in holes if hole]


def busy_ns(samples: Sequence[BusySample]) -> float:
    return sum((end - start) * ratio for start, end, ratio in samples)


def total_ns(samples: Sequence[BusySample]) -> int:
    return sum(end - start for start, end, _ in samples)


def answered(sample: GpuSample) -> set[str]:
    """The fields with an answer, including those of its details.

    The time that power is a mean of is no answer.
    """
    details = {} if sample.details is None else sample.details._asdict()
    reported = {**sample._asdict(), **details}
    return {name for name, value in reported.items() if value is not None} - {"power_over_ns"}


class FakeClock:
    """The clock of the fake driver."""

    def __init__(self, fake: FakeNvml) -> None:
        self._fake = fake
        self._realtime_ahead_ns = _REALTIME_AHEAD_NS

    def set_wall_clock(self, by_s: int) -> None:
        """Set the clock by which the driver stamps."""
        self._realtime_ahead_ns += by_s * NS_PER_S
        self._fake.stamps_jump(by_s * 1_000_000)

    def monotonic_ns(self) -> int:
        return self._fake.now_ns()

    def wall_time_s(self) -> float:
        return self.read_ns(time.CLOCK_REALTIME) / NS_PER_S

    def sleep_until_ns(self, deadline_ns: int) -> None:
        raise AssertionError(f"nothing may sleep here, until {deadline_ns}")

    def read_ns(self, clock_id: int) -> int:
        ahead_ns = self._realtime_ahead_ns if clock_id == time.CLOCK_REALTIME else 0
        return self._fake.now_ns() + ahead_ns


class DriverStory:
    """A source and a monitor, tick by tick, on a driver that may do anything.

    Devices are named by their UUID, or GPUs by their slot in the fake.

    Attributes:
        frames: Of all ticks.
        rings: What each tick reads of rings.
        trouble: Why the newest tick brought no frame.
        state: The newest.
        reads: What each tick reads although it is not due.
    """

    def __init__(
        self,
        fake: FakeNvml,
        *,
        options: NvmlOptions = EVERY_FIELD,
        period_s: float = 1.0,
        slow_patience_s: float = PATIENCE_S,
    ) -> None:
        self.fake = fake
        fake.stop_clock(_BEGAN_NS)
        fake.control.origin_ns = _BEGAN_NS - 30 * NS_PER_S
        fake.stamps_count(_REALTIME_AHEAD_NS // 1000)
        self.clock = FakeClock(fake)
        self._period_s = period_s
        self.source = NvmlSource(
            self.clock,
            options=options,
            times=ReadTimes(period_s),
            slow_patience_s=slow_patience_s,
            read_clock_ns=self.clock.read_ns,
        )
        self.reads = ReadNow.SAMPLES
        self._monitor = monitor(period_ns=round(period_s * NS_PER_S))
        self.frames: list[Frame] = []
        self.rings = NO_RINGS
        self.trouble: SourceUnavailableError | None = None
        self._energy: dict[str, float] = {}
        self._busy_until_ns: dict[str, int] = {}
        self._time_laws = TimeLaws()
        self.state = self._read()

    def close(self) -> None:
        self.source.close()

    def tick(self, count: int = 1) -> MonitorState:
        """Let so many periods pass, with a reading at the end of each."""
        for _ in range(count):
            self.fake.advance(self._period_s)
            before, self.state = self.state, self._read()
            self._check_the_laws(before)
        return self.state

    def tick_at_once(self) -> MonitorState:
        """Read again without letting time pass."""
        self.state = self._read()
        return self.state

    def pass_s(self, seconds: float) -> MonitorState:
        return self.tick(round(seconds / self._period_s))

    def ticks_until_read(self, devices: Sequence[Device], *, most: int) -> int | None:
        """Ticks until all of these are observed again; ``None``: more than ``most``."""
        for number in range(1, most + 1):
            if all(gained_s > 0 for gained_s in self.gained_s(*devices, ticks=1)):
                return number
        return None

    def gained_s(self, *devices: Device, ticks: int) -> list[float]:
        """Seconds of each that are observed in the next ticks."""
        before_s = [self.observed_s(device) for device in devices]
        self.tick(ticks)
        pairs = zip(devices, before_s, strict=True)
        return [self.observed_s(device) - before for device, before in pairs]

    @property
    def frame(self) -> Frame:
        """The newest, which must have come with the newest tick."""
        assert self.trouble is None, self.trouble
        return self.frames[-1]

    @property
    def uuids(self) -> list[str]:
        return [gpu.device.uuid for gpu in self.frame.gpus]

    @property
    def labels(self) -> list[str]:
        return [gpu.device.label for gpu in self.frame.gpus]

    def uuid(self, device: Device) -> str:
        return device if isinstance(device, str) else self.fake.uuid(device)

    def gpu(self, device: Device) -> GpuState:
        return next(gpu for gpu in self.state.gpus if gpu.device.uuid == self.uuid(device))

    def sample(self, device: Device) -> GpuSample:
        return next(gpu for gpu in self.frame.gpus if gpu.device.uuid == self.uuid(device))

    def details(self, device: Device) -> GpuDetails:
        details = self.sample(device).details
        assert details is not None
        return details

    def busy(self, device: Device, *, since_ns: int = 0) -> list[BusySample]:
        """Its samples that begin at ``since_ns`` or later."""
        uuid = self.uuid(device)
        gpus = [gpu for frame in self.frames for gpu in frame.gpus if gpu.device.uuid == uuid]
        return [one for gpu in gpus for one in gpu.busy if one.start_ns >= since_ns]

    def observed_s(self, device: Device) -> float:
        """Its observed time; 0 for a GPU that was never read."""
        uuid = self.uuid(device)
        known_ns = [gpu.totals.observed_ns for gpu in self.state.gpus if gpu.device.uuid == uuid]
        return sum(known_ns) / NS_PER_S

    def idle_ns(self, device: Device) -> int:
        """Its idle time, settled or not."""
        totals = self.gpu(device).totals
        return totals.observed_ns - totals.busy_ns

    @property
    def seconds_passed(self) -> float:
        """Since the first reading."""
        return (self.fake.now_ns() - _BEGAN_NS) / NS_PER_S

    @property
    def message(self) -> str | None:
        """The message of the collector; ``None``: no error."""
        collector = next(one for one in self.state.collectors if one.name == "nvml")
        return None if collector.success else collector.message

    def _read(self) -> MonitorState:
        self.trouble = None
        frames: tuple[Frame, ...] = ()
        try:
            frames = (self.source.read(self.reads),)
        except SourceUnavailableError as trouble:
            self.trouble = trouble
        self.frames += frames
        error = None if self.trouble is None else str(self.trouble)
        wall_time_s = self.clock.wall_time_s()
        tick = reading(
            self.fake.now_ns(), *frames, rings=self.rings, wall_time_s=wall_time_s, error=error
        )
        state = self._monitor.ingest(tick)
        self._time_laws.follow(state)
        return state

    def _check_the_laws(self, before: MonitorState) -> None:
        wall_ns = self.fake.now_ns() - _BEGAN_NS
        totals_before = {gpu.device.uuid: gpu.totals for gpu in before.gpus}
        for gpu in self.state.gpus:
            totals = gpu.totals
            settled_ns = totals.busy_ns + sum(totals.idle_ns.values()) + totals.pending_ns
            assert settled_ns == totals.observed_ns, gpu.device.label
            assert 0 <= totals.busy_ns <= totals.observed_ns <= wall_ns, gpu.device.label
            earlier = totals_before.get(gpu.device.uuid, totals)
            assert totals.busy_ns >= earlier.busy_ns, gpu.device.label
            assert totals.observed_ns >= earlier.observed_ns, gpu.device.label
            for cause, idle_ns in earlier.idle_ns.items():
                assert totals.idle_ns[cause] >= idle_ns, (gpu.device.label, cause)
        assert self.state.samples_total >= before.samples_total
        if self.state.call_seconds is not before.call_seconds:
            for counted in ("call_seconds", "call_counts"):
                newer = dict(getattr(self.state, counted))
                assert all(newer[name] >= older for name, older in getattr(before, counted))
        for frame in self.frames[-1:] if self.trouble is None else ():
            # Fails on a value that is no number, at any depth.
            json.dumps(frame, allow_nan=False, default=repr)
            for sample in frame.gpus:
                self._check_energy_rises(sample)
                self._check_samples_are_disjoint(sample)
                if sample.error is not None:
                    device, error, xids = sample.device, sample.error, sample.xid_errors
                    assert sample == GpuSample(device=device, error=error, xid_errors=xids)

    def _check_samples_are_disjoint(self, sample: GpuSample) -> None:
        for busy in sample.busy:
            assert busy.start_ns >= self._busy_until_ns.get(sample.device.uuid, 0)
            self._busy_until_ns[sample.device.uuid] = busy.end_ns
            assert busy.start_ns < busy.end_ns

    def _check_energy_rises(self, sample: GpuSample) -> None:
        if sample.energy_joules is not None:
            uuid = sample.device.uuid
            assert sample.energy_joules >= self._energy.get(uuid, 0.0), sample.device.label
            self._energy[uuid] = sample.energy_joules


class Fake(FakeNvml):
    """Fake GPUs, and stories on them."""

    def __init__(self, *where: Path, **more: Any) -> None:
        super().__init__(*where, **more)
        self._stories: list[DriverStory] = []

    def story(
        self,
        *,
        on: Sequence[str] = (),
        off: Sequence[str] = (),
        period_s: float = 1.0,
        after_s: float = 0.0,
    ) -> DriverStory:
        """A story of ``after_s`` seconds, with the default fields, plus ``on`` minus ``off``."""
        story = DriverStory(self, options=nvml_options(on=on, off=off), period_s=period_s)
        self._stories.append(story)
        story.pass_s(after_s)
        return story

    def end_stories(self) -> None:
        for story in self._stories:
            story.close()
