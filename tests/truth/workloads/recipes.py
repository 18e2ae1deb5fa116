"""Common set-ups of training runs, drawn from wide ranges."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from tests.truth.workloads.draws import Draws, Millis
from tests.truth.workloads.training import Costs, TrainingPlan, TrainingRun
from tests.truth.workloads.truth import GpuTruth

_LONGEST_STEP_MS: Final = 2_000


def one_run(draws: Draws, plan: TrainingPlan, duration_ms: int) -> tuple[GpuTruth, ...]:
    """It starts within the first 3 minutes; 3 of 10 end in the log's last third."""
    start_ms = int(draws.uniform(0, min(180_000, 0.05 * duration_ms)))
    share = draws.uniform(0.67, 1.0) if draws.chance(0.3) else 1.0
    return TrainingRun(draws, plan, start_ms, int(share * duration_ms)).truths()


def steady(mean_ms: float, spread: float) -> Costs:
    """Each batch costs about the same."""
    return lambda draws, _epoch, count: draws.around(mean_ms, spread, count)


def skewed(mean_ms: float, spread: float) -> Costs:
    """Some batches cost much more than most."""
    return lambda draws, _epoch, count: draws.skewed(mean_ms, spread, count)


def start_up_ms(draws: Draws) -> int:
    """Imports, data sets, compilation: 3 to 40 s."""
    return int(draws.log_uniform(3_000, 40_000))


def memory_mib(draws: Draws) -> int:
    """Memory of a run: 2 to 76 GiB."""
    return int(draws.log_uniform(2_000, 78_000))


def pause_within_step(draws: Draws) -> float:
    """Idle share within a step, not due to the loader: nothing, or 0.5 to 15 %."""
    return 0.0 if draws.chance(0.4) else draws.log_uniform(0.005, 0.15)


def equal_shares(draws: Draws) -> tuple[float, ...]:
    """Of four to eight GPUs in step: each takes 96 to 100 % of the slowest one's time."""
    return (1.0, *(draws.uniform(0.96, 1.0) for _ in range(draws.integer(3, 7))))


def healthy(draws: Draws) -> TrainingPlan:
    """A loader that is always ahead."""
    step_ms, workers = draws.log_uniform(60, 1_200), draws.integer(2, 16)
    cost_ms = step_ms * workers * draws.uniform(0.3, 0.8)
    return TrainingPlan(
        step_ms=step_ms,
        step_spread=draws.log_uniform(0.005, 0.2),
        costs_ms=skewed(cost_ms, draws.uniform(0.05, 0.3)),
        workers=workers,
        depth=workers * draws.integer(2, 4),
        host_ms=draws.uniform(1, 4),
        runs_ahead=draws.chance(0.9),
        steps_per_epoch=int(draws.log_uniform(200, 5_000)),
        pause_within_step=pause_within_step(draws),
        start_up_ms=start_up_ms(draws),
        memory_mib=memory_mib(draws),
    )


@dataclass(frozen=True)
class Wave:
    """Workers that finish together: a burst of a step for each, then a pause."""

    burst_ms: float
    pause_ms: float
    workers: int

    @property
    def step_ms(self) -> float:
        return self.burst_ms / self.workers

    @property
    def cost_ms(self) -> float:
        """Time of a worker for a batch: a burst and a pause."""
        return self.burst_ms + self.pause_ms


def wave_of(draws: Draws, burst_ms: float, pause_ms: float) -> Wave:
    """2 to 16 workers, or more so that no step exceeds 2 s."""
    workers = max(draws.integer(2, 16), math.ceil(burst_ms / _LONGEST_STEP_MS))
    return Wave(burst_ms, pause_ms, workers)


def waves(draws: Draws, wave: Wave, *, spread: float) -> TrainingPlan:
    """Too few workers, all in step."""
    steps = draws.uniform(300_000, 1_200_000) / (wave.cost_ms / wave.workers)
    return TrainingPlan(
        step_ms=wave.step_ms,
        step_spread=draws.uniform(0.005, 0.03),
        costs_ms=steady(wave.cost_ms, spread),
        workers=wave.workers,
        depth=wave.workers * draws.integer(1, 3),
        host_ms=draws.uniform(1, 4),
        steps_per_epoch=max(wave.workers, int(steps)),
        restarts_workers=True,
        workers_start_ms=draws.integer(5, 300),
        workers_start_spread=draws.log_uniform(0.02, 0.5),
        pause_within_step=pause_within_step(draws),
        start_up_ms=start_up_ms(draws),
        memory_mib=memory_mib(draws),
    )


@dataclass
class Warming:
    """Costs that fall as data that was read once is read from memory.

    Attributes:
        cold_ms: What a batch costs that was never read.
        warm_ms: What one costs that was.
        batches: So many batches are all there is to read.
        in_order: Whether each is read once an epoch, or drawn again each time.
        kept: Share of them that memory can hold.
        spread: Relative deviation of the cost.
    """

    cold_ms: float
    warm_ms: float
    batches: int
    in_order: bool
    kept: float
    spread: float
    loaded: int = 0

    def __call__(self, draws: Draws, _epoch: int, count: int) -> Millis:
        before = self.loaded + np.arange(count)
        self.loaded += count
        known = (
            (before >= self.batches).astype(float)
            if self.in_order
            else 1.0 - np.exp(-before / self.batches)
        )
        missed = 1.0 - known * self.kept
        mean_ms = self.warm_ms + (self.cold_ms - self.warm_ms) * missed
        return draws.about(mean_ms, self.spread)


@dataclass(frozen=True)
class SeldomSlow:
    """Most batches cost about the same; some wait long for their storage."""

    mean_ms: float
    spread: float
    slow_share: float
    least_ms: float
    tail: float
    most_ms: float

    def __call__(self, draws: Draws, _epoch: int, count: int) -> Millis:
        slow_ms = draws.heavy_tailed(self.least_ms, self.tail, self.most_ms, count)
        is_slow = draws.happens(self.slow_share, count)
        return draws.around(self.mean_ms, self.spread, count) + np.where(is_slow, slow_ms, 0)


@dataclass
class Shards:
    """Batches from files; the first of each waits until its file is fetched."""

    batches: int
    fetch_ms: float
    fetch_spread: float
    decode_ms: float
    loaded: int = 0

    def __call__(self, draws: Draws, _epoch: int, count: int) -> Millis:
        is_first = (self.loaded + np.arange(count)) % self.batches == 0
        self.loaded += count
        fetch_ms = draws.skewed(self.fetch_ms, self.fetch_spread, count)
        return draws.around(self.decode_ms, 0.1, count) + np.where(is_first, fetch_ms, 0)


def seldom_slow(draws: Draws) -> TrainingPlan:
    """A loader that keeps up except for some reads that take seconds."""
    plan = healthy(draws)
    workers = draws.integer(2, 8)
    least_ms = draws.uniform(2_000, 6_000) + workers * plan.step_ms
    costs = SeldomSlow(
        mean_ms=plan.step_ms * workers * draws.uniform(0.3, 0.8),
        spread=draws.uniform(0.05, 0.3),
        slow_share=min(0.5, plan.step_ms / draws.log_uniform(15_000, 400_000)),
        least_ms=least_ms,
        tail=draws.uniform(1.1, 2.5),
        most_ms=45_000,
    )
    depth = draws.integer(1, 2) * workers
    return replace(plan, costs_ms=costs, workers=workers, depth=depth)
