"""Kinds without a late loader: idle in a job for another reason, or not at all."""

from __future__ import annotations

from dataclasses import replace

from gpumon.core.phase import TrainingPhase
from tests.truth.workloads.draws import Draws
from tests.truth.workloads.recipes import equal_shares, healthy, one_run
from tests.truth.workloads.training import TrainingPlan, TrainingRun, Validation
from tests.truth.workloads.truth import GpuTruth


def healthy_prefetch(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """A loader that is always ahead: only milliseconds within steps are lost."""
    return one_run(draws, healthy(draws), duration_ms)


def checkpoints(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """A healthy run that writes checkpoints."""
    plan = _copying(draws, _holding(draws, (60_000, 1_200_000), (3_000, 60_000)))
    return one_run(draws, plan, duration_ms)


def asynchronous_checkpoints(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """A healthy run that copies its state and writes it in the background: short stops."""
    plan = _copying(draws, _holding(draws, (20_000, 600_000), (300, 6_000)))
    return one_run(draws, plan, duration_ms)


def frequent_checkpoints(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """A healthy run of a small model that saves whenever it improves: often and briefly."""
    plan = _copying(draws, _holding(draws, (5_000, 90_000), (500, 10_000)))
    spread = 0.0 if draws.chance(0.5) else draws.log_uniform(0.01, 0.6)
    return one_run(draws, replace(plan, hold_every_spread=spread), duration_ms)


def scores_on_the_host(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """Every so many steps the host scores some batches: partly busy, with batches ready."""
    plan = replace(
        _holding(draws, (5_000, 120_000), (1_000, 20_000)),
        hold_busy=draws.log_uniform(0.05, 0.5),
        hold_piece_ms=draws.log_uniform(10, 500),
        hold_phase=TrainingPhase.VALIDATION,
    )
    return one_run(draws, plan, duration_ms)


def blips(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """Long stops in which the device works briefly: a norm for the log, a heartbeat."""
    piece_ms = draws.log_uniform(50, 900)
    plan = replace(
        _holding(draws, (60_000, 900_000), (15_000, 120_000)),
        hold_busy=piece_ms / draws.log_uniform(5_000, 60_000),
        hold_piece_ms=piece_ms,
    )
    return one_run(draws, plan, duration_ms)


def roll_outs(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """A game is played, with the device answering each move; then the run trains on it."""
    plan = replace(
        _holding(draws, (5_000, 120_000), (2_000, 90_000), spread=(0.05, 0.6)),
        hold_busy=draws.log_uniform(0.005, 0.4),
        hold_piece_ms=draws.log_uniform(3, 100),
        hold_phase=TrainingPhase.OTHER,
    )
    return one_run(draws, plan, duration_ms)


def generation(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """The model sometimes writes texts that the host scores: partly busy, with batches ready."""
    plan = replace(
        _holding(draws, (120_000, 1_200_000), (10_000, 180_000)),
        hold_busy=draws.uniform(0.1, 0.6),
        hold_piece_ms=draws.log_uniform(10, 3_000),
        hold_phase=TrainingPhase.VALIDATION,
    )
    return one_run(draws, plan, duration_ms)


def lives_on(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """A healthy run has ended and its process stays: a notebook, an upload."""
    plan = _holding(draws, (120_000, 1_200_000), (3_000, 60_000))
    plan = replace(plan, lives_on_ms=duration_ms)
    start_ms = int(draws.uniform(0, 0.05 * duration_ms))
    until_ms = int(draws.uniform(0.15, 0.6) * duration_ms)
    return TrainingRun(draws, plan, start_ms, until_ms, duration_ms).truths()


def many_gpus(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """Four to eight equal GPUs in step, which all pause at each checkpoint."""
    plan = replace(
        _holding(draws, (60_000, 900_000), (3_000, 45_000)),
        shares=equal_shares(draws),
    )
    return one_run(draws, plan, duration_ms)


def many_gpus_that_spin(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """Four to eight GPUs under NCCL; while the first one's host writes, the others read as busy."""
    plan = replace(
        _holding(draws, (60_000, 900_000), (3_000, 45_000)),
        shares=equal_shares(draws),
        peers_spin=True,
    )
    return one_run(draws, plan, duration_ms)


def validation(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """Each epoch ends with a validation whose metrics the host computes: idle, batches ready."""
    plan = healthy(draws)
    step_ms = plan.step_ms * draws.uniform(0.2, 0.5)
    host_ms = step_ms * (1 / draws.uniform(0.2, 0.9) - 1)
    count = draws.log_uniform(5_000, 90_000) / (step_ms + host_ms)
    plan = replace(
        plan,
        steps_per_epoch=max(1, int(draws.log_uniform(120_000, 1_200_000) / plan.step_ms)),
        validation=Validation(steps=max(1, int(count)), step_ms=step_ms, host_ms=host_ms),
        epoch_end_ms=draws.log_uniform(50, 3_000),
    )
    return one_run(draws, plan, duration_ms)


def host_bound(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """A small model on data in memory: the host cannot launch its steps fast enough."""
    plan = replace(
        healthy(draws),
        step_ms=draws.log_uniform(3, 25),
        step_spread=0.1,
        host_ms=draws.log_uniform(3, 40),
        costs_ms=None,
        runs_ahead=False,
        steps_per_epoch=int(draws.log_uniform(5_000, 50_000)),
    )
    return one_run(draws, plan, duration_ms)


def unequal_gpus(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """Two unequal GPUs with equal halves: the faster one waits in each step."""
    plan = replace(healthy(draws), shares=(draws.uniform(0.45, 0.9), 1.0))
    return one_run(draws, plan, duration_ms)


def throttled(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """Heat reduces the clocks: steps take longer, and the loader stays ahead."""
    clock = [1.0] * (duration_ms // 60_000 + 1)
    for _ in range(draws.integer(1, 8)):
        at, minutes = draws.integer(0, len(clock) - 1), draws.integer(2, 30)
        slower = draws.uniform(1.1, 2.5)
        clock[at : at + minutes] = [slower] * len(clock[at : at + minutes])
    return one_run(draws, replace(healthy(draws), clock=tuple(clock)), duration_ms)


def rounds(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """Some seconds of training, then a wait for all other machines."""
    plan = replace(
        _holding(draws, (5_000, 90_000), (2_000, 60_000), spread=(0.05, 0.8)),
        hold_every_spread=0.0 if draws.chance(0.5) else draws.log_uniform(0.01, 0.6),
        hold_phase=TrainingPhase.DEVICE_SYNC,
    )
    return one_run(draws, plan, duration_ms)


def federated_client(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """The same few steps in each round, then a wait for the slowest of many clients."""
    plan = replace(
        _holding(draws, (3_000, 60_000), (1_000, 60_000), spread=(0.1, 0.6)),
        hold_phase=TrainingPhase.DEVICE_SYNC,
    )
    return one_run(draws, plan, duration_ms)


def _copying(draws: Draws, plan: TrainingPlan) -> TrainingPlan:
    """In half of them copies to the host are visible: an H200 reads 4 to 6 % meanwhile."""
    if draws.chance(0.5):
        return plan
    return replace(plan, hold_busy=draws.log_uniform(0.005, 0.06), hold_piece_ms=2.0)


def _holding(
    draws: Draws,
    every_ms: tuple[float, float],
    hold_ms: tuple[float, float],
    spread: tuple[float, float] = (0.02, 0.6),
) -> TrainingPlan:
    """A healthy run that stops, with interval, length and spread in these ranges."""
    plan = healthy(draws)
    return replace(
        plan,
        hold_every=max(1, int(draws.log_uniform(*every_ms) / plan.step_ms)),
        hold_ms=draws.log_uniform(*hold_ms),
        hold_spread=draws.log_uniform(*spread),
    )
