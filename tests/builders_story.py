"""A monitor on two GPUs, told one second at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpumon.core.phase import TrainingMode, TrainingPhase
from gpumon.core.ring.events import (
    NO_RECORDS,
    TRAINING_OVER,
    RingEvent,
    RingKind,
    RingReading,
    RingRecords,
    RingsReading,
    RunFacts,
)
from gpumon.core.sample import BusySample, Device, Frame, GpuSample, Moment, ProcessSample, Tick
from gpumon.core.state import GpuState, MonitorState
from gpumon.pipeline.monitor import Monitor, MonitorFacts
from tests.builders_time import s

BEGAN_NS = s(1000)


class Story:
    """A monitor on two GPUs, told one second at a time."""

    def __init__(self, *, simulated: bool = False) -> None:
        self.second = 0
        self.state: MonitorState | None = None
        self.rings: dict[str, RingReading] = {}
        self.processes: dict[int, tuple[ProcessSample, ...] | None] = {0: None, 1: None}
        self.processes_at_ns: int | None = None  # when the lists were read; None: just now
        self.errors: dict[int, str] = {}
        self.xid_errors: dict[int, tuple[tuple[int, int], ...]] = {0: (), 1: ()}
        self._monitor = Monitor(
            MonitorFacts(
                source="nvml",
                source_kind="nvml",
                simulated=simulated,
                period_ns=s(1),
                boot_id="boot",
                started_wall_time_s=0.0,
            )
        )

    @property
    def now_ns(self) -> int:
        return BEGAN_NS + s(self.second)

    def ring(
        self,
        key: str = "train",
        *,
        gpus: Sequence[str] | None = ("0",),
        pid: int = 42,
        job: str = "job",
    ) -> None:
        """A training begins."""
        facts = RunFacts(
            run=key, job=job, pid=pid, boot_id="boot", started_ns=self.now_ns,
            gpus=None if gpus is None else tuple(gpus), framework="loop",
        )  # fmt: skip
        self.rings[key] = RingReading(
            key=key, facts=facts, alive=True, host_pid=pid, owner_uid=0, read_at_ns=self.now_ns,
            ended_ns=None, events=NO_RECORDS, lost_events=0, phase_ns={}, steps=0, samples=0,
            epoch=None,
        )  # fmt: skip

    def end_ring(self, key: str = "train") -> None:
        """The training is gone."""
        self.rings[key] = replace(self.rings[key], alive=False, ended_ns=self.now_ns)

    def pass_second(
        self,
        *levels: float | None,
        phases: Sequence[tuple[float, TrainingPhase]] = (),
        key: str = "train",
        amounts: Sequence[tuple[float, TrainingPhase, float]] = (),
        over_at: float | None = None,
    ) -> MonitorState:
        """One second with a level for each GPU (``None``: no sample) and phases of one run.

        Args:
            levels: Busy ratios.
            phases: When each begins, in seconds.
            key: Of the run.
            amounts: When a phase tells that it held so many seconds of another one.
            over_at: When it says that its training is over.
        """
        start_ns, self.second = self.now_ns, self.second + 1
        gpus = tuple(self._gpu(index, level, start_ns) for index, level in enumerate(levels))
        frame = Frame(taken_at_ns=self.now_ns, gpus=gpus)
        events = tuple(
            RingEvent(RingKind.ENTER, start_ns + s(at), phase, TrainingMode.TRAIN)
            for at, phase in phases
        )
        events += tuple(
            RingEvent(RingKind.AMOUNT, start_ns + s(at), phase, s(length))
            for at, phase, length in amounts
        )
        if over_at is not None:
            at_ns, other = start_ns + s(over_at), TrainingPhase.OTHER
            events += (
                RingEvent(RingKind.ENTER, at_ns, other, TrainingMode.TRAIN),
                RingEvent(RingKind.EVENT, at_ns, other, TRAINING_OVER),
            )
        for name, ring in self.rings.items():
            self.rings[name] = replace(
                ring, read_at_ns=self.now_ns, events=RingRecords.of(events if name == key else ())
            )
        return self._advance((frame,), missed=0)

    def pass_second_with(
        self, phases: Mapping[str, Sequence[tuple[float, TrainingPhase]]], *levels: float
    ) -> MonitorState:
        """One second in which several runs enter phases, by the key of each."""
        start_ns, self.second = self.now_ns, self.second + 1
        gpus = tuple(self._gpu(index, level, start_ns) for index, level in enumerate(levels))
        for name, ring in self.rings.items():
            events = tuple(
                RingEvent(RingKind.ENTER, start_ns + s(at), phase, TrainingMode.TRAIN)
                for at, phase in phases.get(name, ())
            )
            self.rings[name] = replace(ring, read_at_ns=self.now_ns, events=RingRecords.of(events))
        return self._advance((Frame(taken_at_ns=self.now_ns, gpus=gpus),), missed=0)

    def pass_seconds_at_once(self, *levels: float) -> MonitorState:
        """So many seconds of GPU 0 that a tick brings together, after one that came late."""
        first_ns, self.second = self.now_ns, self.second + len(levels)
        sample = self._gpu(0, None, first_ns)
        busy = tuple(
            BusySample(first_ns + s(at), first_ns + s(at + 1), level)
            for at, level in enumerate(levels)
        )
        for name, ring in self.rings.items():
            self.rings[name] = replace(ring, read_at_ns=self.now_ns, events=NO_RECORDS)
        frame = Frame(taken_at_ns=self.now_ns, gpus=(sample._replace(busy=busy),))
        return self._advance((frame,), missed=0)

    def pass_second_of(self, second: int, *levels: float) -> MonitorState:
        """One second in which the levels of an earlier one are told, and nothing else."""
        start_ns, self.second = BEGAN_NS + s(second), self.second + 1
        gpus = tuple(
            self._gpu(index, level, start_ns, start_ns + s(1)) for index, level in enumerate(levels)
        )
        for name, ring in self.rings.items():
            self.rings[name] = replace(ring, read_at_ns=self.now_ns, events=NO_RECORDS)
        return self._advance((Frame(taken_at_ns=self.now_ns, gpus=gpus),), missed=0)

    def miss(self, error: str = "the driver has not answered") -> MonitorState:
        """One second in which the source brings nothing."""
        self.second += 1
        return self._advance((), missed=1, error=error)

    def _advance(
        self, frames: tuple[Frame, ...], *, missed: int, error: str | None = None
    ) -> MonitorState:
        tick = Tick(
            at_ns=self.now_ns, late_ns=0, frames=frames, missed_count=missed, error=error,
            duration_seconds=0.0,
        )  # fmt: skip
        rings = RingsReading(rings=tuple(self.rings.values()))
        self.state = self._monitor.take(Moment(tick, rings, float(self.second)))
        return self.state

    def _gpu(
        self, index: int, level: float | None, start_ns: int, end_ns: int | None = None
    ) -> GpuSample:
        device = Device(uuid=f"GPU-{index}", index=index)
        if index in self.errors:
            return GpuSample(
                device=device, error=self.errors[index], xid_errors=self.xid_errors[index]
            )
        end_ns = self.now_ns if end_ns is None else end_ns
        busy = () if level is None else (BusySample(start_ns, end_ns, level),)
        return GpuSample(
            device=device, busy=busy, utilization_ratio=level, processes=self.processes[index],
            processes_at_ns=self.processes_at_ns,
        )  # fmt: skip


def gpu(state: MonitorState, index: int = 0) -> GpuState:
    return state.gpus[index]


WAIT, STEP = TrainingPhase.INPUT_WAIT, TrainingPhase.TRAIN_STEP
SAVE = TrainingPhase.CHECKPOINT
