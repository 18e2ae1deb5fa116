"""Kinds with a late loader, in which the lost time is starved."""

from __future__ import annotations

from dataclasses import replace

from tests.truth.workloads.draws import Draws
from tests.truth.workloads.recipes import (
    Shards,
    Warming,
    equal_shares,
    healthy,
    one_run,
    seldom_slow,
    skewed,
    steady,
    wave_of,
    waves,
)
from tests.truth.workloads.training import TrainingPlan, Validation
from tests.truth.workloads.truth import GpuTruth


def worker_waves(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """Workers finish together, and the device consumes batches faster than they load."""
    return one_run(draws, _waving(draws, (1_500, 30_000), (1_500, 20_000)), duration_ms)


def _waving(
    draws: Draws, burst_ms: tuple[float, float], pause_ms: tuple[float, float]
) -> TrainingPlan:
    """Workers in step, with burst and pause in these ranges."""
    wave = wave_of(draws, draws.log_uniform(*burst_ms), draws.log_uniform(*pause_ms))
    return waves(draws, wave, spread=draws.log_uniform(0.002, 0.05))


def slow_storage(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """Some reads take seconds to a minute: irregular, heavy-tailed pauses."""
    return one_run(draws, seldom_slow(draws), duration_ms)


def cold_cache(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """Starved during the first read of the data, then the cache is warm."""
    wave = wave_of(draws, draws.log_uniform(1_500, 15_000), draws.log_uniform(2_000, 15_000))
    plan = waves(draws, wave, spread=0.005)
    batches = int(draws.log_uniform(300_000, 2_400_000) / (wave.cost_ms / wave.workers))
    costs = Warming(
        cold_ms=wave.cost_ms,
        warm_ms=wave.burst_ms * draws.uniform(0.2, 0.7),
        batches=max(wave.workers, batches),
        in_order=draws.chance(0.7),
        kept=draws.uniform(0.9, 1.0),
        spread=0.005,
    )
    return one_run(draws, replace(plan, costs_ms=costs), duration_ms)


def short_stalls(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """Each step waits some ten milliseconds: a flat level without visible pauses."""
    step_ms, stall_ms = draws.log_uniform(60, 400), draws.uniform(20, 80)
    plan = replace(
        healthy(draws),
        step_ms=step_ms,
        costs_ms=steady(step_ms + stall_ms, draws.uniform(0.005, 0.03)),
        workers=1,
        depth=draws.integer(1, 4),
        runs_ahead=True,
    )
    return one_run(draws, plan, duration_ms)


def loader_in_training(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """No workers: the run loads each batch itself while the device is idle."""
    plan = replace(
        healthy(draws),
        step_ms=draws.log_uniform(60, 600),
        costs_ms=skewed(draws.log_uniform(60, 500), draws.uniform(0.05, 0.4)),
        workers=1,
        depth=0,
        runs_ahead=False,
    )
    return one_run(draws, plan, duration_ms)


def epoch_restart(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """Each epoch restarts its workers, and the device waits for their first batch."""
    plan = healthy(draws)
    plan = replace(
        plan,
        steps_per_epoch=max(2, int(draws.log_uniform(30_000, 600_000) / plan.step_ms)),
        restarts_workers=True,
        workers_start_ms=int(draws.log_uniform(1_500, 20_000)),
        workers_start_spread=draws.log_uniform(0.02, 0.6),
    )
    return one_run(draws, plan, duration_ms)


def late_validation(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """Each epoch ends with a validation whose loader restarts and is always late."""
    plan = healthy(draws)
    step_ms, workers = plan.step_ms * draws.uniform(0.2, 0.6), draws.integer(1, 4)
    late = draws.log_uniform(1.2, 12)
    steps = draws.log_uniform(5_000, 60_000) / (step_ms * late)
    plan = replace(
        plan,
        steps_per_epoch=max(2, int(draws.log_uniform(30_000, 600_000) / plan.step_ms)),
        validation=Validation(
            steps=max(2, int(steps)),
            step_ms=step_ms,
            host_ms=draws.uniform(1, 4),
            costs_ms=skewed(step_ms * late * workers, draws.uniform(0.01, 0.3)),
            workers=workers,
            workers_start_ms=int(draws.log_uniform(100, 8_000)),
        ),
    )
    return one_run(draws, plan, duration_ms)


def late_on_many_gpus(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """Four to eight GPUs of one job whose loaders are late together, so that all pause."""
    plan = _waving(draws, (1_500, 20_000), (1_500, 20_000))
    return one_run(draws, replace(plan, shares=equal_shares(draws)), duration_ms)


def late_rank(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """Four to eight GPUs under NCCL; one rank's loader is late, the others spin, reading busy."""
    plan = _waving(draws, (1_500, 20_000), (1_500, 20_000))
    plan = replace(plan, shares=equal_shares(draws), peers_spin=True)
    return one_run(draws, plan, duration_ms)


def augmentation(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """Heavy augmentation on too few cores: 10 to 30 % starved, in varying waves."""
    starved, pause_ms = draws.uniform(0.10, 0.30), draws.log_uniform(2_000, 10_000)
    wave = wave_of(draws, pause_ms * (1 - starved) / starved, pause_ms)
    return one_run(draws, waves(draws, wave, spread=draws.uniform(0.01, 0.04)), duration_ms)


def shard_fetch(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """One reader fetches a file, yields its batches, and fetches the next."""
    plan = healthy(draws)
    depth = draws.integer(2, 8)
    costs = Shards(
        batches=max(depth + 1, int(draws.log_uniform(10_000, 120_000) / plan.step_ms)),
        fetch_ms=draws.log_uniform(1_500, 20_000) + depth * plan.step_ms,
        fetch_spread=draws.uniform(0.05, 0.6),
        decode_ms=plan.step_ms * draws.uniform(0.1, 0.6),
    )
    return one_run(draws, replace(plan, costs_ms=costs, workers=1, depth=depth), duration_ms)


def shared_loader(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """Two GPUs of one job share a loader and pause together."""
    plan = _waving(draws, (1_500, 20_000), (1_500, 15_000))
    plan = replace(plan, shares=(1.0, draws.uniform(0.92, 1.0)))
    return one_run(draws, plan, duration_ms)


def two_strangers(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """Two GPUs with a job each; only the first one's loader is late."""
    late = one_run(draws, _waving(draws, (2_000, 20_000), (1_500, 15_000)), duration_ms)
    return late + one_run(draws, healthy(draws), duration_ms)


def noisy_neighbour(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """A loader that keeps up, except while others use its storage."""
    wave = wave_of(draws, draws.log_uniform(2_000, 15_000), draws.log_uniform(2_000, 10_000))
    usual_ms = wave.burst_ms * draws.uniform(0.4, 0.8)
    plan = replace(
        waves(draws, wave, spread=0.005),
        costs_ms=steady(usual_ms, draws.uniform(0.005, 0.03)),
        slowdown_per_minute=_slowdown_per_minute(draws, wave.cost_ms / usual_ms, duration_ms),
    )
    return one_run(draws, plan, duration_ms)


def starved_with_checkpoints(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """Worker waves and checkpoints: two kinds of pauses in one job."""
    wave = wave_of(draws, draws.log_uniform(2_000, 15_000), draws.log_uniform(1_500, 12_000))
    every = draws.log_uniform(180_000, 900_000) / (wave.cost_ms / wave.workers)
    plan = replace(
        waves(draws, wave, spread=draws.log_uniform(0.002, 0.05)),
        hold_every=max(1, int(every)),
        hold_ms=draws.log_uniform(5_000, 40_000),
        hold_spread=draws.log_uniform(0.02, 0.6),
    )
    return one_run(draws, plan, duration_ms)


def _slowdown_per_minute(draws: Draws, factor: float, duration_ms: int) -> tuple[float, ...]:
    """A factor for each minute: 1, or ``factor`` for 3 to 20 minutes."""
    bad_share = draws.log_uniform(0.02, 0.5)
    minutes: list[float] = []
    while len(minutes) <= duration_ms // 60_000:
        bad = draws.integer(3, 20)
        good = bad * (1 - bad_share) / bad_share
        minutes += [1.0] * round(draws.uniform(0.2, 1.8) * good) + [factor] * bad
    return tuple(minutes)
