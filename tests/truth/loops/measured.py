"""Runs loops under a monitor, and puts what it reports beside the truth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.clock import NS_PER_S
from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.ring_format.events import (
    RingKind,
    RingReading,
    RingRecords,
    RingsReading,
    RunFacts,
)
from gpumon.core.sample import Device, Frame, GpuSample
from gpumon.core.state import MonitorState
from gpumon.outlets.text.headline import verdict_line
from gpumon.pipeline.reports import report_of
from tests.builders.monitor import monitor, reading, ring_reading
from tests.truth.loops.catalog import Job, Loop
from tests.truth.loops.machine import NS_PER_MS, Rank

CAUSES: Final = {
    TrainingPhase.INPUT_WAIT: IdleCause.INPUT_WAIT,
    TrainingPhase.CALLBACKS: IdleCause.CALLBACKS,
    TrainingPhase.CHECKPOINT: IdleCause.CHECKPOINT,
    TrainingPhase.HOST_TO_DEVICE: IdleCause.HOST_TO_DEVICE,
}
"""What a user can remove, and a tag names."""
_BEGAN_WALL_S: Final = 14 * 3600.0
_FIRST_WINDOW_NS: Final = 3 * NS_PER_MS


class Reported(NamedTuple):
    """One figure of a report: all in points of the time that was observed.

    Attributes:
        name: Of the cause.
        truth: What the simulation knows.
        low: What the report calls certain.
        best: What its table shows.
        high: What the report calls possible.
    """

    name: str
    truth: float
    low: float
    best: float
    high: float

    @property
    def is_true(self) -> bool:
        """Whether the truth is within the range, or within 3 points of it."""
        return self.low - 3 <= self.truth <= self.high + 3

    @property
    def is_narrow(self) -> bool:
        """Whether the range says something: it is no wider than 10 points."""
        return self.high - self.low <= 10

    @property
    def is_close(self) -> bool:
        """Whether the range is narrow, or the best estimate is near the truth all the same."""
        return self.is_narrow or abs(self.best - self.truth) <= 3


class Measured(NamedTuple):
    """What a report makes of one training run.

    Attributes:
        figures: One of each cause that it has, or of each GPU that waits for a rank.
        sentence: Its first line.
        state: What it is made from.
    """

    figures: tuple[Reported, ...]
    sentence: str
    state: MonitorState

    @property
    def is_in_use(self) -> bool:
        """Whether the GPU is busy enough to count as in use."""
        return self.state.gpus[0].totals.in_use_ns > self.state.gpus[0].totals.observed_ns / 2


def loop_measured(loop: Loop, seconds: float, seed: int = 0) -> Measured:
    """One training run on one GPU, for so long."""
    rank, number = Rank(seed, loop.jitter), 0
    while rank.now_ns < seconds * NS_PER_S:
        number += 1
        loop.step(rank, number)
    state = _watched([rank], round(loop.grain_ms * NS_PER_MS))
    (gpu,) = state.gpus
    assert gpu.last_sample_at_ns is not None  # it was watched
    idle_ns = rank.idle_ns(_FIRST_WINDOW_NS, gpu.last_sample_at_ns)
    figures = [
        _figure(cause, idle_ns.get(phase, 0), gpu.totals)
        for phase, cause in CAUSES.items()
        if phase in idle_ns
    ]
    return _measured(figures, state)


def job_measured(job: Job, seconds: float, seed: int = 0) -> Measured:
    """One training run on several GPUs; its figures are waits that read as busy, GPU by GPU."""
    ranks = [Rank(seed + number, 0.02) for number in range(len(job.loads_ms))]
    number = 0
    while ranks[0].now_ns < seconds * NS_PER_S:
        number += 1
        _step(job, ranks, number)
    state = _watched(ranks, NS_PER_S // 6, job.samples)
    figures = [
        _as_points(
            f"GPU {gpu.device.index}", gpu.totals,
            rank.spun_ns, gpu.totals.rank_wait_low_ns, 0, gpu.totals.rank_wait_high_ns,
        )
        for rank, gpu in zip(ranks, state.gpus, strict=True)
    ]  # fmt: skip
    return _measured(figures, state)


def _step(job: Job, ranks: Sequence[Rank], number: int) -> None:
    steps = [rank.phase(TrainingPhase.TRAIN_STEP) for rank in ranks]
    for rank, load, compute, step in zip(ranks, job.loads_ms, job.computes_ms, steps, strict=True):
        with rank.phase(TrainingPhase.INPUT_WAIT):
            rank.work(load)
        if job.saves_ms and rank is ranks[0] and number % 5 == 0:
            with rank.phase(TrainingPhase.CHECKPOINT):
                rank.work(job.saves_ms)
        step.__enter__()
        rank.launch(compute)
    ready_ns = max(rank.ready_ns() for rank in ranks)
    for rank, step in zip(ranks, steps, strict=True):
        rank.meet(ready_ns, spins=job.spins)
        rank.launch(1)  # the operation itself
        rank.synchronise()
        step.__exit__(None, None, None)
        rank.step()


def _watched(ranks: Sequence[Rank], grain_ns: int, samples: int = 0) -> MonitorState:
    """What a daemon that ticks each second makes of them."""
    daemon = monitor(simulated=True)
    gpus = [
        _Watched(place, rank, grain_ns, len(ranks), samples) for place, rank in enumerate(ranks)
    ]
    state: MonitorState | None = None
    for tick in range(1, min(rank.now_ns for rank in ranks) // NS_PER_S + 1):
        now_ns = tick * NS_PER_S
        frame = Frame(taken_at_ns=now_ns, gpus=tuple(gpu.sample(now_ns) for gpu in gpus))
        rings = RingsReading(rings=tuple(gpu.reading(now_ns) for gpu in gpus))
        state = daemon.ingest(reading(now_ns, frame, rings=rings, wall_time_s=_BEGAN_WALL_S + tick))
    assert state is not None  # it lasted a second at least
    return state


class _Watched:
    """One GPU and the ring of its process, read tick by tick."""

    def __init__(self, place: int, rank: Rank, grain_ns: int, ranks: int, samples: int) -> None:
        self._samples = samples
        self._device = Device(uuid=f"GPU-{place}", index=place, name="NVIDIA H100")
        self._windows = rank.windows(grain_ns, _FIRST_WINDOW_NS + place * 7 * NS_PER_MS)
        self._events = rank.events
        several: dict[str, Any] = (
            {"rank": place, "world_size": ranks, "framework": "torch"} if ranks > 1 else {}
        )
        self._facts = RunFacts(
            run=f"train-r{place}" if several else "train", job="train", pid=100 + place,
            boot_id="boot", started_ns=0, gpus=(str(place),), **several,
        )  # fmt: skip
        self._window = self._event = self._steps = 0
        self._phase_ns: dict[TrainingPhase, int] = {}
        self._phase, self._entered_ns = TrainingPhase.START_UP, 0

    def sample(self, now_ns: int) -> GpuSample:
        first = self._window
        while self._window < len(self._windows) and self._windows[self._window].end_ns <= now_ns:
            self._window += 1
        return GpuSample(device=self._device, busy=tuple(self._windows[first : self._window]))

    def reading(self, now_ns: int) -> RingReading:
        first = self._event
        while self._event < len(self._events) and self._events[self._event].at_ns <= now_ns:
            event = self._events[self._event]
            if event.kind is RingKind.STEP:
                self._steps = event.value
            else:
                self._enter(event.phase, event.at_ns)
            self._event += 1
        events = RingRecords.of(self._events[first : self._event])
        return ring_reading(
            self._facts,
            read_at_ns=now_ns + NS_PER_MS,
            events=events,
            steps=self._steps,
            samples=self._samples * self._steps,
            phase_ns=dict(self._phase_ns),
        )

    def _enter(self, phase: TrainingPhase, at_ns: int) -> None:
        spent_ns = self._phase_ns.get(self._phase, 0) + at_ns - self._entered_ns
        self._phase_ns[self._phase] = spent_ns
        self._phase, self._entered_ns = phase, at_ns


def _figure(cause: IdleCause, truth_ns: int, totals: GpuTotals) -> Reported:
    low_ns, high_ns = totals.bounds_ns(cause)
    best_ns = totals.idle_ns.get(cause, 0)
    return _as_points(cause.value, totals, truth_ns, low_ns, best_ns, high_ns)


def _as_points(name: str, totals: GpuTotals, *parts_ns: int) -> Reported:
    truth, low, best, high = (100 * part_ns / totals.observed_ns for part_ns in parts_ns)
    return Reported(name, truth, low, best, high)


def _measured(figures: Sequence[Reported], state: MonitorState) -> Measured:
    return Measured(tuple(figures), verdict_line(report_of(state)), state)
