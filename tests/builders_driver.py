"""A daemon's inside on fake GPUs, with a clock that stands until the test moves it.

What a tick brings goes through the real source and the real monitor; only the
threads between them are left out. After each tick the laws are checked that
no driver may break, whatever it answers.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from gpumon.core.clock import NS_PER_S
from gpumon.core.ring.events import RingsReading
from gpumon.core.sample import Frame, GpuSample, Moment, Tick
from gpumon.core.state import GpuState, MonitorState
from gpumon.errors import SourceUnavailableError
from gpumon.pipeline.monitor import Monitor, MonitorFacts
from gpumon.sources.nvml.fields.table import NVML_FIELDS, NvmlOptions, nvml_options
from gpumon.sources.nvml.source import NvmlSource
from tests.fakenvml.control import FakeNvml
from tests.patience import PATIENCE_S

EVERY_FIELD = nvml_options(on=[field.name for field in NVML_FIELDS if field.opt_in])

_BEGAN_NS = 5_000 * NS_PER_S
_REALTIME_AHEAD_NS = 1_700_000_000 * NS_PER_S
_NO_RINGS = RingsReading()


class FakeClock:
    """The driver's own clock, as the fake has it."""

    def __init__(self, fake: FakeNvml) -> None:
        self._fake = fake
        self._realtime_ahead_ns = _REALTIME_AHEAD_NS

    def set_wall_clock(self, by_s: int) -> None:
        """Somebody sets it; the driver stamps by it."""
        self._realtime_ahead_ns += by_s * NS_PER_S
        self._fake.stamps_jump(by_s * 1_000_000)

    def monotonic_ns(self) -> int:
        return self._fake.now_ns()

    def wall_time_s(self) -> float:
        return self.read_ns(time.CLOCK_REALTIME) / NS_PER_S

    def sleep_until_ns(self, deadline_ns: int) -> None:
        raise AssertionError(f"nobody sleeps here, and certainly not until {deadline_ns}")

    def read_ns(self, clock_id: int) -> int:
        """A clock of the machine, by its id."""
        ahead_ns = self._realtime_ahead_ns if clock_id == time.CLOCK_REALTIME else 0
        return self._fake.now_ns() + ahead_ns


class DriverStory:
    """One source and one monitor, from tick to tick, on a driver that may do anything.

    Attributes:
        fake: The driver.
        source: Reads it.
        frame: What the newest tick brought; ``None``: nothing.
        trouble: Why it brought nothing; ``None``: it brought a frame.
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
        self.frame: Frame | None = None
        self.trouble: SourceUnavailableError | None = None
        self._energy: dict[str, float] = {}
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

    def ticks_until_read(self, uuids: Sequence[str], *, most: int) -> int | None:
        """How many ticks pass until all of these are observed again; ``None``: more than that."""
        for number in range(1, most + 1):
            before_ns = [self.observed_ns(uuid) for uuid in uuids]
            self.tick()
            after_ns = [self.observed_ns(uuid) for uuid in uuids]
            if all(after > before for before, after in zip(before_ns, after_ns, strict=True)):
                return number
        return None

    def gpu(self, uuid: str) -> GpuState:
        """What is known of this GPU."""
        return next(gpu for gpu in self.state.gpus if gpu.device.uuid == uuid)

    def sample(self, uuid: str) -> GpuSample:
        """What this GPU said in the newest tick, which has to have brought a frame."""
        assert self.frame is not None, self.trouble
        return next(gpu for gpu in self.frame.gpus if gpu.device.uuid == uuid)

    def observed_ns(self, uuid: str) -> int:
        """How much of its time is known; 0 also of a GPU of which nobody ever heard."""
        return sum(gpu.totals.observed_ns for gpu in self.state.gpus if gpu.device.uuid == uuid)

    def idle_ns(self, uuid: str) -> int:
        """Its idle time, decided or not."""
        totals = self.gpu(uuid).totals
        return totals.observed_ns - totals.busy_ns

    @property
    def seconds_passed(self) -> float:
        """Since the first reading."""
        return (self.fake.now_ns() - _BEGAN_NS) / NS_PER_S

    @property
    def message(self) -> str | None:
        """What is said of the driver now; ``None``: it is well."""
        collector = next(one for one in self.state.collectors if one.name == "nvml")
        return None if collector.success else collector.message

    def _read(self) -> MonitorState:
        self.frame = self.trouble = None
        try:
            self.frame = self.source.read()
        except SourceUnavailableError as trouble:
            self.trouble = trouble
        frames = () if self.frame is None else (self.frame,)
        tick = Tick(
            at_ns=self.fake.now_ns(),
            late_ns=0,
            frames=frames,
            missed_count=1 - len(frames),
            error=None if self.trouble is None else str(self.trouble),
            duration_seconds=0.0,
        )
        return self._monitor.take(Moment(tick, _NO_RINGS, self.clock.wall_time_s()))

    # -- the laws ---------------------------------------------------------------

    def _obeys_the_laws(self, before: MonitorState) -> None:
        # Which refuses what is no number, however deep it lies.
        json.dumps(self.frame, allow_nan=False, default=repr)
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
            spent_s = dict(self.state.call_seconds)
            assert all(spent_s[name] >= before_s for name, before_s in before.call_seconds)
        for sample in self.frame.gpus if self.frame else ():
            self._counts_energy_up(sample)
            assert sample.error is None or (sample.busy == () and sample.utilization_ratio is None)

    def _counts_energy_up(self, sample: GpuSample) -> None:
        if sample.energy_joules is not None:
            uuid = sample.device.uuid
            assert sample.energy_joules >= self._energy.get(uuid, 0.0), sample.device.label
            self._energy[uuid] = sample.energy_joules
