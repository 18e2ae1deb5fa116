"""Training runs on unequal GPUs of known speed, as a driver and phase rings show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from gpumon.core.attribution.batch_shares import shares_of
from gpumon.core.phase import TrainingMode, TrainingPhase
from gpumon.core.ring_format.events import (
    RingEvent,
    RingKind,
    RingReading,
    RingRecords,
    RingsReading,
    RunFacts,
)
from gpumon.core.sample import (
    ActivitySample,
    BusySample,
    Device,
    Frame,
    GpuDetails,
    GpuSample,
    ProcessSample,
)
from gpumon.core.state import MonitorState
from gpumon.pipeline.monitor import Monitor
from tests.builders.monitor import monitor, reading, ring_reading
from tests.builders.time import s

BEGAN_NS = s(1000)
WAIT, STEP = TrainingPhase.INPUT_WAIT, TrainingPhase.TRAIN_STEP


_FULL_CLOCK_HERTZ: Final = 1.98e9


class Board(NamedTuple):
    """What a GPU reports besides utilisation; ``None``: not reported.

    Attributes:
        clock: As a ratio of the highest, 0 to 1.
        held_by: Its throttle reasons.
        sm_active: Share of active multiprocessors.
    """

    name: str = "NVIDIA A40"
    clock: float = 1.0
    held_by: tuple[str, ...] = ()
    watts: float | None = None
    sm_active: float | None = None
    processes: tuple[ProcessSample, ...] | None = None

    def added_to(self, gpu: GpuSample, now_ns: int) -> GpuSample:
        return gpu._replace(
            device=replace(gpu.device, name=self.name),
            power_watts=self.watts,
            sm_clock_hertz=self.clock * _FULL_CLOCK_HERTZ,
            processes=self.processes,
            details=GpuDetails(
                now_ns, sm_clock_max_hertz=_FULL_CLOCK_HERTZ, throttle_reasons=self.held_by
            ),
            activity=ActivitySample(now_ns - s(1), now_ns, 1.0, self.sm_active),
        )


@dataclass(kw_only=True)
class UnequalGpus:
    """One process that trains on several GPUs, each step as long as its slowest GPU.

    Attributes:
        speeds: Samples a second of each GPU.
        ratios: How each batch is split.
        batch: Samples in a batch.
        reduce_s: Idle end of each step, seconds.
        input_s: Wait for input between two steps, seconds.
        is_hidden: Whether that wait is over before the slowest GPU has done its step.
        gross_s: Wait for the next batch inside the call that trains on this one, seconds.
        resolutions_s: Length of the driver's samples, of each GPU.
        idle_gpus: More GPUs that the run names and never uses.
        ranks: Whether each GPU has a process, and a ring, of its own.
        world_size: Ranks of the job; 0: those that are here.
        waits_busy: Whether a GPU that waits for another one reads as busy, as in NCCL.
        boards: What each GPU reports besides utilisation.
    """

    speeds: Sequence[float]
    ratios: Sequence[float]
    batch: int = 100
    reduce_s: float = 0.0
    input_s: float = 0.0
    is_hidden: bool = False
    gross_s: float = 0.0
    resolutions_s: Sequence[float] = (1 / 6, 1 / 6, 1 / 6)
    idle_gpus: int = 0
    framework: str = "keras/tensorflow"
    ranks: bool = False
    world_size: int = 0
    waits_busy: bool = False
    boards: Sequence[Board] = ()
    now_s: float = 0.0
    changes: int = 0
    _busy: list[list[tuple[int, int]]] = field(default_factory=list)
    _events: list[RingEvent] = field(default_factory=list)
    _monitor: Monitor = field(default_factory=lambda: monitor("simulated:test", simulated=True))
    _sampled_s: list[float] = field(default_factory=list)
    _second: int = 0

    def __post_init__(self) -> None:
        self._busy = [[] for _ in self.speeds]
        # No two GPUs are sampled at the same instants.
        self._sampled_s = [0.037 * (1 + 3 * at) for at in range(len(self.speeds))]

    def split(self, ratios: Sequence[float]) -> None:
        """Split batches so from now on, and mark the change."""
        self.ratios, self.changes = ratios, self.changes + 1
        at_ns = BEGAN_NS + s(self.now_s)
        self._events.append(RingEvent(RingKind.EVENT, at_ns, STEP, self.changes))

    def train(self, seconds: float) -> MonitorState:
        """Go on for whole seconds; the state after the last tick."""
        state = None
        for _ in range(round(seconds)):
            self._second += 1
            while self.now_s < self._second:
                self._step()
            state = self._tick()
        assert state is not None
        return state

    def _step(self) -> None:
        begins_s = self.now_s
        times_s = [
            self.batch * share / speed
            for share, speed in zip(shares_of(self.ratios), self.speeds, strict=True)
        ]
        for spans, time_s in zip(self._busy, times_s, strict=True):
            busy_s = max(times_s) if self.waits_busy else time_s
            spans.append((s(begins_s), s(begins_s + busy_s)))
        ends_s = begins_s + max(times_s) + self.reduce_s
        self._enter(STEP, begins_s)
        if self.gross_s:
            reported_ns = BEGAN_NS + s(begins_s + self.gross_s)
            self._events.append(RingEvent(RingKind.AMOUNT, reported_ns, WAIT, s(self.gross_s)))
        if self.is_hidden:
            self._enter(WAIT, begins_s + 0.1 * (ends_s - begins_s))
        elif self.input_s:
            self._enter(WAIT, ends_s)
            ends_s += self.input_s
        self.now_s = ends_s

    def _enter(self, phase: TrainingPhase, at_s: float) -> None:
        at_ns = BEGAN_NS + s(at_s)
        self._events.append(RingEvent(RingKind.ENTER, at_ns, phase, TrainingMode.TRAIN))

    def _tick(self) -> MonitorState:
        now_ns = BEGAN_NS + s(self._second)
        gpus = [self._sampled(at) for at in range(len(self.speeds))]
        if self.boards:
            gpus = [one.added_to(gpu, now_ns) for one, gpu in zip(self.boards, gpus, strict=True)]
        for at in range(len(self.speeds), len(self.speeds) + self.idle_gpus):
            idle = BusySample(now_ns - s(1), now_ns, 0.0)
            gpus.append(GpuSample(device=Device(uuid=f"GPU-{at}", index=at), busy=(idle,)))
        frame = Frame(taken_at_ns=now_ns, gpus=tuple(gpus))
        rings = RingsReading(rings=self._rings(now_ns))
        return self._monitor.ingest(reading(now_ns, frame, rings=rings))

    def _sampled(self, at: int) -> GpuSample:
        length_s, samples = self.resolutions_s[at], []
        while self._sampled_s[at] + length_s <= self._second:
            start_ns = s(self._sampled_s[at])
            end_ns = s(self._sampled_s[at] + length_s)
            self._sampled_s[at] += length_s
            spans = self._busy[at]
            while spans and spans[0][1] <= start_ns:
                spans.pop(0)
            busy_ns = sum(max(0, min(end_ns, b) - max(start_ns, a)) for a, b in spans)
            ratio = min(1.0, busy_ns / (end_ns - start_ns))
            samples.append(BusySample(BEGAN_NS + start_ns, BEGAN_NS + end_ns, ratio))
        return GpuSample(device=Device(uuid=f"GPU-{at}", index=at), busy=tuple(samples))

    def _rings(self, now_ns: int) -> tuple[RingReading, ...]:
        events = [event for event in self._events if event.at_ns <= now_ns]
        self._events = [event for event in self._events if event.at_ns > now_ns]
        every = range(len(self.speeds))
        shares = dict(zip(map(str, every), shares_of(self.ratios), strict=True))
        facts = RunFacts(
            run="unequal",
            job="job",
            pid=42,
            framework=self.framework,
            boot_id="boot",
            started_ns=BEGAN_NS,
            gpus=tuple(str(at) for at in range(len(self.speeds) + self.idle_gpus)),
            shares=shares,
            ratio_changes=self.changes,
        )
        reported = [facts]
        if self.ranks:
            reported = [
                replace(
                    facts, run=f"unequal-r{at}", pid=42 + at, rank=at,
                    world_size=self.world_size or len(self.speeds),
                    gpus=(str(at),), shares={str(at): shares[str(at)]},
                )
                for at in every
            ]  # fmt: skip
        return tuple(
            ring_reading(one, key=f"{one.pid}", read_at_ns=now_ns, events=RingRecords.of(events))
            for one in reported
        )
