"""Runs loops under a monitor, and compares its report with the truth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.clock import NS_PER_S
from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.ring_format.events import RingsReading, RunFacts
from gpumon.core.sample import Device, Frame, GpuSample
from gpumon.core.state import MonitorState
from gpumon.outlets.text.headline import verdict_line
from gpumon.pipeline.state_report import report_of
from tests.builders.monitor import monitor, reading
from tests.truth.daemon_states import ReplayedRing, Windows
from tests.truth.loops.catalog import Job, Loop
from tests.truth.loops.machine import NS_PER_MS, Rank

CAUSES: Final = {
    TrainingPhase.INPUT_WAIT: IdleCause.INPUT_WAIT,
    TrainingPhase.CALLBACKS: IdleCause.CALLBACKS,
    TrainingPhase.CHECKPOINT: IdleCause.CHECKPOINT,
    TrainingPhase.HOST_TO_DEVICE: IdleCause.HOST_TO_DEVICE,
}
"""Causes that a tag names and a user can remove."""
_BEGAN_WALL_S: Final = 14 * 3600.0
_FIRST_WINDOW_NS: Final = 3 * NS_PER_MS


class Reported(NamedTuple):
    """One figure of a report, in percent of the observed time: truth, bounds, best estimate."""

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
        """Whether the range is useful: at most 10 points wide."""
        return self.high - self.low <= 10

    @property
    def is_close(self) -> bool:
        """Whether the range is narrow, or the best estimate near the truth."""
        return self.is_narrow or abs(self.best - self.truth) <= 3


class Measured(NamedTuple):
    """The report on one training run.

    Attributes:
        figures: One for each cause, or for each GPU that waits for a rank.
        sentence: Its first line.
        state: What the report is made from.
    """

    figures: tuple[Reported, ...]
    sentence: str
    state: MonitorState

    @property
    def is_in_use(self) -> bool:
        """Whether the GPU is busy enough to count as in use."""
        return self.state.gpus[0].totals.in_use_ns > self.state.gpus[0].totals.observed_ns / 2


def loop_measured(loop: Loop, seconds: float, seed: int = 0) -> Measured:
    """One training run on one GPU."""
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


def job_measured(job: Job, seconds: float) -> Measured:
    """One training run on several GPUs; the figures are waits that read as busy, by GPU."""
    ranks = [Rank(number, 0.02) for number in range(len(job.loads_ms))]
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
    """The state of a daemon that ticks each second."""
    daemon = monitor(simulated=True)
    gpus, rings = [], []
    for index, rank in enumerate(ranks):
        several: dict[str, Any] = (
            {"rank": index, "world_size": len(ranks), "framework": "torch"} if ranks[1:] else {}
        )
        facts = RunFacts(
            run=f"train-r{index}" if several else "train", job="train", pid=100 + index,
            boot_id="boot", started_ns=0, gpus=(str(index),), **several,
        )  # fmt: skip
        rings.append(ReplayedRing(facts, rank.events, samples))
        first_ns = _FIRST_WINDOW_NS + index * 7 * NS_PER_MS
        device = Device(uuid=f"GPU-{index}", index=index, name="NVIDIA H100")
        gpus.append((device, Windows(rank.windows(grain_ns, first_ns))))
    state: MonitorState | None = None
    for second in range(1, min(rank.now_ns for rank in ranks) // NS_PER_S + 1):
        now_ns = second * NS_PER_S
        sampled = tuple(GpuSample(device=one, busy=busy.until(now_ns)) for one, busy in gpus)
        read = RingsReading(rings=tuple(ring.reading(now_ns) for ring in rings))
        frame, wall_time_s = Frame(taken_at_ns=now_ns, gpus=sampled), _BEGAN_WALL_S + second
        state = daemon.ingest(reading(now_ns, frame, rings=read, wall_time_s=wall_time_s))
    assert state is not None  # it lasted a second at least
    return state


def _figure(cause: IdleCause, truth_ns: int, totals: GpuTotals) -> Reported:
    low_ns, high_ns = totals.bounds_ns(cause)
    best_ns = totals.idle_ns.get(cause, 0)
    return _as_points(cause.value, totals, truth_ns, low_ns, best_ns, high_ns)


def _as_points(name: str, totals: GpuTotals, *parts_ns: int) -> Reported:
    truth, low, best, high = (100 * part_ns / totals.observed_ns for part_ns in parts_ns)
    return Reported(name, truth, low, best, high)


def _measured(figures: Sequence[Reported], state: MonitorState) -> Measured:
    return Measured(tuple(figures), verdict_line(report_of(state)), state)
