"""Jobs of several ranks that end each step together, as a driver and phase rings show them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from gpumon.core.host.evidence import HostReading, ProcessState
from gpumon.core.phase import TrainingMode, TrainingPhase
from gpumon.core.ring_format.events import (
    RingEvent,
    RingKind,
    RingReading,
    RingRecords,
    RingsReading,
    RunFacts,
)
from gpumon.core.sample import BusySample, Device, Frame, GpuSample
from gpumon.core.state import MonitorState
from tests.builders_monitor import moment, monitor, ring_reading
from tests.builders_time import s

WAIT, STEP = TrainingPhase.INPUT_WAIT, TrainingPhase.TRAIN_STEP
_BEGAN_NS: Final = s(1000)
_WINDOW_S: Final = 0.25


@dataclass
class Rank:
    """One rank of a job, on the GPU of its number.

    Attributes:
        wait_s: How long it takes before each of its steps, on average.
        wait_in: The phase in which it does.
        step_s: What its GPU works in each step.
        jitter: By what part of its wait that varies.
        board: Model of its GPU.
        samples: How many it counts in each step; 0: it counts none.
        job: Whose ranks it meets at the end of each step.
        named: The job that its tags name; ``None``: that one.
        is_stopped: Whether its process is stopped.
        left_s: When its process ended; ``None``: it lives.
        spun_s: How long it has waited in its steps for another rank so far.
    """

    number: int
    wait_s: float = 0.0
    wait_in: TrainingPhase = WAIT
    step_s: float = 0.1
    jitter: float = 0.5
    board: str = "NVIDIA A40"
    samples: int = 32
    job: str = "job"
    named: str | None = None
    is_stopped: bool = False
    left_s: int | None = None
    spun_s: float = 0.0
    steps: int = 0
    events: list[RingEvent] = field(default_factory=list)
    busy: list[tuple[float, float]] = field(default_factory=list)

    @property
    def key(self) -> str:
        return f"train-r{self.number}"

    def enter(self, phase: TrainingPhase, at_s: float) -> None:
        self.events.append(RingEvent(RingKind.ENTER, _at(at_s), phase, TrainingMode.TRAIN))

    def end_step(self, at_s: float) -> None:
        self.steps += 1
        self.events.append(RingEvent(RingKind.STEP, _at(at_s), STEP, self.steps))

    def sample(self, second: int) -> GpuSample:
        """What the driver says of its GPU in the second that ends now."""
        samples = []
        for part in range(round(1 / _WINDOW_S)):
            from_s = second - 1 + part * _WINDOW_S
            until_s = from_s + _WINDOW_S
            busy_s = sum(max(0.0, min(until_s, b) - max(from_s, a)) for a, b in self.busy)
            samples.append(BusySample(_at(from_s), _at(until_s), min(1.0, busy_s / _WINDOW_S)))
        self.busy = [span for span in self.busy if span[1] > second]
        device = Device(uuid=f"GPU-{self.number}", index=self.number, name=self.board)
        return GpuSample(device=device, busy=tuple(samples))

    def read(self, second: int, world_size: int) -> RingReading:
        """What its ring says then."""
        facts = RunFacts(
            run=self.key, job=self.named or self.job, pid=42 + self.number, rank=self.number,
            boot_id="boot", started_ns=_BEGAN_NS, gpus=(str(self.number),), framework="loop",
            world_size=world_size,
        )  # fmt: skip
        now_ns = _at(second)
        new = [event for event in self.events if event.at_ns <= now_ns]
        self.events = [event for event in self.events if event.at_ns > now_ns]
        steps = self.steps - sum(event.kind is RingKind.STEP for event in self.events)
        reading = ring_reading(
            facts, key=self.key, read_at_ns=now_ns, events=RingRecords.of(new), steps=steps,
            samples=steps * self.samples,
        )  # fmt: skip
        if self.left_s is None:
            return reading
        return replace(reading, alive=False, ended_ns=_at(self.left_s))


class RanksAtWork:
    """A monitor on the ranks of some jobs.

    Each rank begins a step once it is ready, and all of a job end it together. A rank that has
    done its part before the last one waits; its GPU reads as busy meanwhile if ``spins``.
    """

    def __init__(self, *ranks: Rank, spins: bool = True) -> None:
        self.ranks = list(ranks)
        self.spins, self.second = spins, 0
        self._random = random.Random(38)
        self._monitor = monitor()
        self._now_s: dict[str, float] = {}

    def train(self, seconds: int) -> MonitorState:
        """Go on for so many seconds, and give the state after the last of them."""
        for _ in range(seconds):
            state = self.tick()
        return state

    def tick(self) -> MonitorState:
        self.second += 1
        jobs = {rank.job for rank in self.ranks if rank.left_s is None}
        for job in sorted(jobs):
            ranks = [one for one in self.ranks if one.job == job and one.left_s is None]
            now_s = max(self._now_s.get(job, 0.0), self.second - 1.0)
            while now_s < self.second:
                now_s = self._step(ranks, now_s)
            self._now_s[job] = now_s
        return self._take()

    def leave(self, rank: Rank) -> None:
        """End its process now."""
        rank.left_s, rank.events, rank.busy = self.second, [], []

    def _step(self, ranks: Sequence[Rank], now_s: float) -> float:
        if any(rank.is_stopped for rank in ranks):
            return self._stand_still(ranks, now_s)
        waits_s = [one.wait_s * (1 + one.jitter * self._random.uniform(-1, 1)) for one in ranks]
        done_s = [now_s + wait_s + one.step_s for one, wait_s in zip(ranks, waits_s, strict=True)]
        ends_s = max(done_s)
        for rank, wait_s, own_end_s in zip(ranks, waits_s, done_s, strict=True):
            rank.enter(rank.wait_in, now_s)
            rank.enter(STEP, now_s + wait_s)
            rank.busy.append((now_s + wait_s, ends_s if self.spins else own_end_s))
            rank.spun_s += ends_s - own_end_s
            rank.end_step(ends_s)
        return ends_s

    def _stand_still(self, ranks: Sequence[Rank], now_s: float) -> float:
        for rank in ranks:
            if not rank.is_stopped:
                rank.enter(STEP, now_s)
                rank.busy.append((now_s, self.second))
                rank.spun_s += self.second - now_s
        return float(self.second)

    def _take(self) -> MonitorState:
        frame = Frame(_at(self.second), tuple(rank.sample(self.second) for rank in self.ranks))
        rings = tuple(rank.read(self.second, len(self.ranks)) for rank in self.ranks)
        new = moment(
            frame.taken_at_ns, frame, rings=RingsReading(rings=rings), wall_time_s=self.second
        )
        stopped = {one.key: ProcessState(is_stopped=True) for one in self.ranks if one.is_stopped}
        return self._monitor.take(new._replace(host=HostReading(processes=stopped)))


def _at(seconds: float) -> int:
    return _BEGAN_NS + s(seconds)
