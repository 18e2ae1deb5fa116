"""A monitor, and minutes of a machine fed to it tick by tick."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from gpumon.core.clock import NS_PER_S
from gpumon.core.phase import TrainingMode, TrainingPhase
from gpumon.core.reading import Reading
from gpumon.core.ring_format.events import (
    NO_RECORDS,
    TRAINING_OVER,
    RingEvent,
    RingKind,
    RingReading,
    RingRecords,
    RingsReading,
    RunFacts,
)
from gpumon.core.sample import BusySample, Device, Frame, GpuSample, ProcessSample, Tick
from gpumon.core.stacks.reading import NO_STACKS
from gpumon.core.state import CollectorState, GpuState, MonitorState
from gpumon.core.waits.evidence import HostEvidence, HostReading, ProcessState
from gpumon.pipeline.monitor import Monitor, MonitorFacts
from tests.builders.time import every, s

NO_RINGS = RingsReading()
HOST_PID = 77


class SeldomDrained(Monitor):
    """A monitor that gets the samples of several ticks together, in the last of these ticks.

    It gets them at once when a run begins or ends.
    """

    def __init__(
        self, facts: MonitorFacts, *, every: int, user_name: Callable[[int], str] | None = None
    ) -> None:
        super().__init__(facts, user_name=user_name)
        self._every, self._ticks = every, 0
        self._living: set[str] = set()
        self._held: dict[str, tuple[BusySample, ...]] = {}

    def ingest(
        self, reading: Reading, more_collectors: tuple[CollectorState, ...] = ()
    ) -> MonitorState:
        self._ticks += 1
        before, self._living = self._living, {one.key for one in reading.rings.rings if one.alive}
        is_drained = self._ticks % self._every == 0 or self._living != before
        frames = tuple(
            frame._replace(gpus=tuple(self._thinned(gpu, is_drained) for gpu in frame.gpus))
            for frame in reading.tick.frames
        )
        tick = reading.tick._replace(frames=frames)
        return super().ingest(reading._replace(tick=tick), more_collectors)

    def _thinned(self, sample: GpuSample, is_drained: bool) -> GpuSample:
        held = (*self._held.get(sample.device.uuid, ()), *sample.busy)
        self._held[sample.device.uuid] = () if is_drained else held
        return sample._replace(busy=held if is_drained else ())


def monitor(
    source: str = "nvml",
    *,
    simulated: bool = False,
    period_ns: int = NS_PER_S,
    drained_every: int = 1,
    user_name: Callable[[int], str] | None = None,
) -> Monitor:
    """A monitor of such a source, whose samples come together after so many ticks."""
    facts = MonitorFacts(
        source=source,
        source_kind=source.partition(":")[0],
        simulated=simulated,
        period_ns=period_ns,
        boot_id="boot",
        started_wall_time_s=0.0,
    )
    if drained_every > 1:
        return SeldomDrained(facts, every=drained_every, user_name=user_name)
    return Monitor(facts, user_name=user_name)


def reading(
    at_ns: int,
    *frames: Frame,
    rings: RingsReading = NO_RINGS,
    wall_time_s: float = 0.0,
    error: str | None = None,
) -> Reading:
    """A punctual tick; without a frame, one was missed."""
    tick = Tick(
        at_ns=at_ns,
        late_ns=0,
        frames=frames,
        missed_count=int(not frames),
        error=error,
        duration_seconds=0.0,
    )
    return Reading(tick, rings, wall_time_s)


def ring_reading(facts: RunFacts, **changes: Any) -> RingReading:
    """The ring of a living run, without new records unless given."""
    known = RingReading(
        key=facts.run,
        facts=facts,
        alive=True,
        host_pid=facts.pid,
        owner_uid=0,
        read_at_ns=0,
        ended_ns=None,
        events=NO_RECORDS,
        lost_events=0,
        phase_ns={},
        steps=0,
        samples=0,
        epoch=None,
    )
    return known._replace(**changes)


def run_reading(**facts: Any) -> RingReading:
    """A run with these facts; the host knows it by another pid than its container."""
    known = RunFacts(run="a", job="a", pid=1, boot_id="", started_ns=0)
    return ring_reading(replace(known, **facts), host_pid=HOST_PID)


BEGAN_NS = s(1000)
WAIT, STEP = TrainingPhase.INPUT_WAIT, TrainingPhase.TRAIN_STEP
SAVE = TrainingPhase.CHECKPOINT

Phases = Sequence[tuple[float, TrainingPhase]]
"""When each begins, in seconds."""


class Story:
    """A monitor on two GPUs, second by second; the wall clock begins at ``began_wall_time_s``."""

    began_wall_time_s = 0.0

    def __init__(
        self,
        *,
        simulated: bool = False,
        drained_every: int = 1,
        user_name: Callable[[int], str] | None = None,
    ) -> None:
        self.second = 0
        self._newest: MonitorState | None = None
        self.rings: dict[str, RingReading] = {}
        self.processes: dict[int, tuple[ProcessSample, ...] | None] = {0: None, 1: None}
        self.processes_at_ns: int | None = None  # when the lists were read; None: just now
        self.errors: dict[int, str] = {}
        self.xid_errors: dict[int, tuple[tuple[int, int], ...]] = {0: (), 1: ()}
        self.host_samples: dict[str, HostEvidence] = {}  # by ring, each second
        self.process_states: dict[str, ProcessState] = {}  # by ring: of its process
        self.stacks = NO_STACKS  # each second
        self.monitor = monitor(
            simulated=simulated, drained_every=drained_every, user_name=user_name
        )

    @property
    def now_ns(self) -> int:
        return BEGAN_NS + s(self.second)

    @property
    def state(self) -> MonitorState:
        assert self._newest is not None
        return self._newest

    def ring(
        self,
        key: str = "train",
        *,
        run: str | None = None,
        gpus: Sequence[str] | None = ("0",),
        pid: int = 42,
        job: str = "job",
        uid: int = 0,
    ) -> None:
        """A training run begins; its name is the key unless given."""
        facts = RunFacts(
            run=run or key, job=job, pid=pid, boot_id="boot", started_ns=self.now_ns,
            gpus=None if gpus is None else tuple(gpus), framework="loop",
        )  # fmt: skip
        self.rings[key] = ring_reading(facts, key=key, owner_uid=uid, read_at_ns=self.now_ns)

    def alter_ring(self, key: str = "train", **changes: Any) -> None:
        """Change that ring from now on."""
        self.rings[key] = self.rings[key]._replace(**changes)

    def alter_facts(self, key: str = "train", **changes: Any) -> None:
        """Change the facts of that ring from now on."""
        self.alter_ring(key, facts=replace(self.rings[key].facts, **changes))

    def stop(self, key: str = "train") -> None:
        self.process_states[key] = ProcessState(is_stopped=True)

    def resume(self, key: str = "train") -> None:
        del self.process_states[key]

    def end_ring(self, key: str = "train", *, after_s: float = 0.0) -> None:
        """The run ends, now or later."""
        self.alter_ring(key, alive=False, ended_ns=self.now_ns + s(after_s))

    def pass_second(
        self,
        *levels: float | None,
        phases: Phases = (),
        key: str = "train",
        amounts: Sequence[tuple[float, TrainingPhase, float]] = (),
        over_at: float | None = None,
        steps: int = 0,
    ) -> MonitorState:
        """One second with a level for each GPU (``None``: no sample) and phases of one run.

        Args:
            levels: Busy ratios.
            phases: Of the run.
            key: Of the run.
            amounts: Times at which a phase reports that it contained so many seconds of another.
            over_at: When it reports that its training is over.
            steps: Number of steps, evenly spread, the last at the second's end.
        """
        events = self._entered(phases)
        events += [
            RingEvent(RingKind.AMOUNT, self.now_ns + s(at), phase, s(length))
            for at, phase, length in amounts
        ]
        if over_at is not None:
            events += self._entered([(over_at, TrainingPhase.OTHER)])
            events.append(events[-1]._replace(kind=RingKind.EVENT, value=TRAINING_OVER))
        if steps:
            events += self._counted(key, steps)
            events.sort(key=attrgetter("at_ns"))
        return self._second(levels, {key: events})

    def pass_seconds(self, count: int, *levels: float | None, **reported: Any) -> MonitorState:
        for _ in range(count):
            state = self.pass_second(*levels, **reported)
        return state

    def pass_second_with(
        self, phases: Mapping[str, Phases], *levels: float, steps: Mapping[str, int] | None = None
    ) -> MonitorState:
        """One second in which several runs enter phases and count steps, by the key of each."""
        events = {key: self._entered(of_run) for key, of_run in phases.items()}
        for key, count in (steps or {}).items():
            events[key] += self._counted(key, count)
            events[key].sort(key=attrgetter("at_ns"))
        return self._second(levels, events)

    def pass_seconds_at_once(
        self, *levels: float, phases: Phases = (), in_frames: bool = False
    ) -> MonitorState:
        """Seconds of GPU 0 that one tick brings, in one frame or in a frame each."""
        events = self._entered(phases)
        busy = every(1.0, levels, start_s=1000 + self.second)
        self.second += len(levels)
        parts = [(one,) for one in busy] if in_frames else [tuple(busy)]
        frames = [Frame(part[-1].end_ns, (self._gpu(0, part),)) for part in parts]
        return self._tick(frames, {"train": events})

    def pass_second_of(self, second: int, *levels: float) -> MonitorState:
        """One second that only brings the samples of an earlier one."""
        return self._second(levels, {}, sampled_from_s=1000 + second)

    def miss(self, error: str = "the driver has not answered") -> MonitorState:
        """One second without a frame."""
        self.second += 1
        return self._advance(error=error)

    def _counted(self, key: str, steps: int) -> list[RingEvent]:
        before = self.rings[key].steps
        self.alter_ring(key, steps=before + steps)
        return [
            RingEvent(
                RingKind.STEP, self.now_ns + s(number / steps), TrainingPhase.OTHER, before + number
            )
            for number in range(1, steps + 1)
        ]

    def _entered(self, phases: Phases) -> list[RingEvent]:
        return [
            RingEvent(RingKind.ENTER, self.now_ns + s(at), phase, TrainingMode.TRAIN)
            for at, phase in phases
        ]

    def _second(
        self,
        levels: Sequence[float | None],
        events: Mapping[str, Sequence[RingEvent]],
        sampled_from_s: int | None = None,
    ) -> MonitorState:
        start_s = 1000 + self.second if sampled_from_s is None else sampled_from_s
        self.second += 1
        gpus = tuple(
            self._gpu(index, () if level is None else tuple(every(1.0, [level], start_s)))
            for index, level in enumerate(levels)
        )
        return self._tick([Frame(self.now_ns, gpus)], events)

    def _tick(
        self, frames: Sequence[Frame], events: Mapping[str, Sequence[RingEvent]]
    ) -> MonitorState:
        for key in self.rings:
            reported = RingRecords.of(events.get(key, ()))
            self.alter_ring(key, read_at_ns=self.now_ns, events=reported)
        return self._advance(*frames)

    def _advance(self, *frames: Frame, error: str | None = None) -> MonitorState:
        rings = RingsReading(rings=tuple(self.rings.values()))
        wall_time_s = self.began_wall_time_s + self.second
        reported = reading(self.now_ns, *frames, rings=rings, wall_time_s=wall_time_s, error=error)
        host_samples = {
            key: replace(look, start_ns=self.now_ns - s(1), end_ns=self.now_ns)
            for key, look in self.host_samples.items()
        }
        host = HostReading(of_run=host_samples, processes=dict(self.process_states))
        self._newest = self.monitor.ingest(reported._replace(host=host, stacks=self.stacks))
        return self._newest

    def _gpu(self, index: int, busy: tuple[BusySample, ...]) -> GpuSample:
        device = Device(uuid=f"GPU-{index}", index=index)
        if index in self.errors:
            return GpuSample(
                device=device, error=self.errors[index], xid_errors=self.xid_errors[index]
            )
        return GpuSample(
            device=device,
            busy=busy,
            utilization_ratio=busy[-1].busy_ratio if busy else None,
            processes=self.processes[index],
            processes_at_ns=self.processes_at_ns,
        )


def gpu(state: MonitorState, index: int = 0) -> GpuState:
    return state.gpus[index]


ADA, OTHER_USER = 1000, 65_534
ADAS_PID, OTHER_USERS_PID = 42, 66

ADAS_PROCESS = ProcessSample(ADAS_PID, None, uid=ADA)


def training(story: Story, key: str = "train", *, uid: int = ADA, pid: int = ADAS_PID) -> None:
    """A training run of that user that names GPU 0."""
    story.ring(key, pid=pid, job=f"job of {key}", uid=uid)


def other_user(story: Story, key: str = "stranger") -> None:
    """A ring of another user, who names GPU 0 and computes nowhere."""
    training(story, key, uid=OTHER_USER, pid=OTHER_USERS_PID)


def starve(story: Story, *levels: float, key: str = "stranger") -> MonitorState:
    """Seconds in which that run reports that it waits for input."""
    states = [story.pass_second(level, phases=[(0.0, WAIT)], key=key) for level in levels]
    return states[-1]
