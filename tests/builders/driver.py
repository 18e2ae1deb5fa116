"""A daemon's inside on fake GPUs, with a clock that stands until the test moves it.

What a tick brings goes through the real source and the real monitor; only the
threads between them are left out. After each tick the laws are checked that
no driver may break, whatever it answers.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from gpumon.core.clock import NS_PER_S
from gpumon.core.ring_format.events import RingsReading
from gpumon.core.sample import BusySample, Frame, GpuDetails, GpuSample, Reading, Tick
from gpumon.core.state import GpuState, MonitorState
from gpumon.errors import SourceUnavailableError
from gpumon.pipeline.monitor import Monitor, MonitorFacts
from gpumon.sources.nvml.fields.table import NVML_FIELDS, NvmlOptions, nvml_options
from gpumon.sources.nvml.source import NvmlSource
from tests.fakenvml.control import FakeNvml
from tests.patience import PATIENCE_S

EVERY_FIELD = nvml_options(on=[field.name for field in NVML_FIELDS if field.opt_in])

Device = str | int

_BEGAN_NS = 5_000 * NS_PER_S
_REALTIME_AHEAD_NS = 1_700_000_000 * NS_PER_S
_NO_RINGS = RingsReading()


def holes_ns(samples: Sequence[BusySample]) -> list[int]:
    """How long nothing was known between one sample and the next, where that was so."""
    holes = [late.start_ns - early.end_ns for early, late in pairwise(samples)]
    return [hole for hole in holes if hole]


def busy_ns(samples: Sequence[BusySample]) -> float:
    return sum((end - start) * ratio for start, end, ratio in samples)


def total_ns(samples: Sequence[BusySample]) -> int:
    return sum(end - start for start, end, _ in samples)


def answered(sample: GpuSample) -> set[str]:
    """The fields that have an answer, those of its details among them."""
    details = {} if sample.details is None else sample.details._asdict()
    reported = {**sample._asdict(), **details}
    return {name for name, value in reported.items() if value is not None}


class FakeClock:
    """The driver's own clock, as the fake has it."""

    def __init__(self, fake: FakeNvml) -> None:
        self._fake = fake
        self._realtime_ahead_ns = _REALTIME_AHEAD_NS

    def set_wall_clock(self, by_s: int) -> None:
        """Someone sets it; the driver stamps by it."""
        self._realtime_ahead_ns += by_s * NS_PER_S
        self._fake.stamps_jump(by_s * 1_000_000)

    def monotonic_ns(self) -> int:
        return self._fake.now_ns()

    def wall_time_s(self) -> float:
        return self.read_ns(time.CLOCK_REALTIME) / NS_PER_S

    def sleep_until_ns(self, deadline_ns: int) -> None:
        raise AssertionError(f"no sleep here, and certainly not until {deadline_ns}")

    def read_ns(self, clock_id: int) -> int:
        """A clock of the machine, by its id."""
        ahead_ns = self._realtime_ahead_ns if clock_id == time.CLOCK_REALTIME else 0
        return self._fake.now_ns() + ahead_ns


class DriverStory:
    """One source and one monitor, from tick to tick, on a driver that may do anything.

    Devices are named by their UUID, or whole GPUs by their slot in the fake.

    Attributes:
        fake: The driver.
        source: Reads it.
        frames: What each tick brought that brought anything.
        trouble: Why the newest tick brought nothing; ``None``: it brought a frame.
        state: What the monitor made of it.
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
            period_s=period_s,
            slow_patience_s=slow_patience_s,
            read_clock_ns=self.clock.read_ns,
        )
        self._monitor = Monitor(
            MonitorFacts(
                source="nvml",
                source_kind="nvml",
                simulated=False,
                period_ns=round(period_s * NS_PER_S),
                boot_id="boot",
                started_wall_time_s=0.0,
            )
        )
        self.frames: list[Frame] = []
        self.trouble: SourceUnavailableError | None = None
        self._energy: dict[str, float] = {}
        self._busy_until_ns: dict[str, int] = {}
        self.state = self._read()

    def close(self) -> None:
        """Let go of the driver."""
        self.source.close()

    def tick(self, count: int = 1) -> MonitorState:
        """So many periods pass, with a reading at the end of each."""
        for _ in range(count):
            self.fake.advance(self._period_s)
            before, self.state = self.state, self._read()
            self._obeys_the_laws(before)
        return self.state

    def pass_s(self, seconds: float) -> MonitorState:
        """So many seconds pass, with a reading at the end of each period."""
        return self.tick(round(seconds / self._period_s))

    def ticks_until_read(self, devices: Sequence[Device], *, most: int) -> int | None:
        """How many ticks pass until all of these are observed again; ``None``: more than that."""
        for number in range(1, most + 1):
            if all(gained_s > 0 for gained_s in self.gained_s(*devices, ticks=1)):
                return number
        return None

    def gained_s(self, *devices: Device, ticks: int) -> list[float]:
        """For how many seconds each of these is observed in the next ticks."""
        before_s = [self.observed_s(device) for device in devices]
        self.tick(ticks)
        pairs = zip(devices, before_s, strict=True)
        return [self.observed_s(device) - before for device, before in pairs]

    @property
    def frame(self) -> Frame:
        """What the newest tick brought; it has to have brought something."""
        assert self.trouble is None, self.trouble
        return self.frames[-1]

    @property
    def uuids(self) -> list[str]:
        """Every device of the newest frame, in its order."""
        return [gpu.device.uuid for gpu in self.frame.gpus]

    @property
    def labels(self) -> list[str]:
        """... as people call them."""
        return [gpu.device.label for gpu in self.frame.gpus]

    def uuid(self, device: Device) -> str:
        """The UUID of a device that is named in either way."""
        return device if isinstance(device, str) else self.fake.uuid(device)

    def gpu(self, device: Device) -> GpuState:
        """What is known of this device."""
        return next(gpu for gpu in self.state.gpus if gpu.device.uuid == self.uuid(device))

    def sample(self, device: Device) -> GpuSample:
        """What it reported in the newest tick."""
        return next(gpu for gpu in self.frame.gpus if gpu.device.uuid == self.uuid(device))

    def details(self, device: Device) -> GpuDetails:
        """What it reported then of what changes slowly."""
        details = self.sample(device).details
        assert details is not None
        return details

    def busy(self, device: Device, *, since_ns: int = 0) -> list[BusySample]:
        """How busy it was in the time that began then, piece by piece."""
        uuid = self.uuid(device)
        printed = [
            gpu.busy for frame in self.frames for gpu in frame.gpus if gpu.device.uuid == uuid
        ]
        return [sample for samples in printed for sample in samples if sample.start_ns >= since_ns]

    def observed_s(self, device: Device) -> float:
        """How much of its time is known; 0 also of a GPU that was never read."""
        uuid = self.uuid(device)
        known_ns = [gpu.totals.observed_ns for gpu in self.state.gpus if gpu.device.uuid == uuid]
        return sum(known_ns) / NS_PER_S

    def idle_ns(self, device: Device) -> int:
        """Its idle time, decided or not."""
        totals = self.gpu(device).totals
        return totals.observed_ns - totals.busy_ns

    @property
    def seconds_passed(self) -> float:
        """Since the first reading."""
        return (self.fake.now_ns() - _BEGAN_NS) / NS_PER_S

    @property
    def message(self) -> str | None:
        """What is reported of the driver now; ``None``: it is well."""
        collector = next(one for one in self.state.collectors if one.name == "nvml")
        return None if collector.success else collector.message

    def _read(self) -> MonitorState:
        self.trouble = None
        frames: tuple[Frame, ...] = ()
        try:
            frames = (self.source.read(),)
        except SourceUnavailableError as trouble:
            self.trouble = trouble
        self.frames += frames
        tick = Tick(
            at_ns=self.fake.now_ns(),
            late_ns=0,
            frames=frames,
            missed_count=1 - len(frames),
            error=None if self.trouble is None else str(self.trouble),
            duration_seconds=0.0,
        )
        return self._monitor.ingest(Reading(tick, _NO_RINGS, self.clock.wall_time_s()))

    # -- the laws ---------------------------------------------------------------

    def _obeys_the_laws(self, before: MonitorState) -> None:
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
            # Which refuses what is no number, however deep it lies.
            json.dumps(frame, allow_nan=False, default=repr)
            for sample in frame.gpus:
                self._counts_energy_up(sample)
                self._counts_no_time_twice(sample)
                if sample.error is not None:
                    device, error, xids = sample.device, sample.error, sample.xid_errors
                    assert sample == GpuSample(device=device, error=error, xid_errors=xids)

    def _counts_no_time_twice(self, sample: GpuSample) -> None:
        for busy in sample.busy:
            assert busy.start_ns >= self._busy_until_ns.get(sample.device.uuid, 0)
            self._busy_until_ns[sample.device.uuid] = busy.end_ns
            assert busy.start_ns < busy.end_ns

    def _counts_energy_up(self, sample: GpuSample) -> None:
        if sample.energy_joules is not None:
            uuid = sample.device.uuid
            assert sample.energy_joules >= self._energy.get(uuid, 0.0), sample.device.label
            self._energy[uuid] = sample.energy_joules


class Fake(FakeNvml):
    """Fake GPUs, and the stories that begin on them."""

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
        """A story that goes on for so long, with the default fields, these and without those."""
        story = DriverStory(self, options=nvml_options(on=on, off=off), period_s=period_s)
        self._stories.append(story)
        story.pass_s(after_s)
        return story

    def end_stories(self) -> None:
        """Close them."""
        for story in self._stories:
            story.close()
