"""Kinds in which no loader is late: idle in a job for another reason, or not at all."""

from __future__ import annotations

from dataclasses import replace

from gpumon.core.phase import TrainingPhase
from tests.truth.worlds.draws import Draws
from tests.truth.worlds.recipes import healthy, one_training
from tests.truth.worlds.training import Validation
from tests.truth.worlds.truth import GpuTruth


def healthy_prefetch(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """A loader that is always ahead: nothing is lost but milliseconds amid the steps.

    Steps of 60 to 1,200 ms, 2 to 16 workers that need 30 to 80 % of their time;
    0 to 15 % lost within the steps, none of it starved.
    """
    return one_training(draws, healthy(draws), duration_ms)


def checkpoints(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """A healthy training that writes its state now and then: idle, but nobody asked for a batch.

    3 to 60 s every 1 to 20 min, spread 15 %: 0.2 to 50 % lost, none of it starved.
    """
    plan = healthy(draws)
    every = max(1, int(draws.log_uniform(60_000, 1_200_000) / plan.step_ms))
    plan = replace(plan, hold_every=every, hold_ms=draws.log_uniform(3_000, 60_000))
    return one_training(draws, plan, duration_ms)


def many_gpus(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """Four to eight equal GPUs in step: at each checkpoint all pause together, and none is starved.

    3 to 45 s every 1 to 15 min; each takes 96 to 100 % of the slowest one's time.
    """
    plan = healthy(draws)
    plan = replace(
        plan,
        hold_every=max(1, int(draws.log_uniform(60_000, 900_000) / plan.step_ms)),
        hold_ms=draws.log_uniform(3_000, 45_000),
        shares=(1.0, *(draws.uniform(0.96, 1.0) for _ in range(draws.integer(3, 7)))),
    )
    return one_training(draws, plan, duration_ms)


def validation(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """Each epoch ends with a validation whose metrics the host counts: idle, but fed.

    Epochs of 2 to 20 min, validations of 5 to 90 s in which the device works
    20 to 90 % of the time; its loader stands ready. None of it starved.
    """
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
    return one_training(draws, plan, duration_ms)


def host_bound(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """A small model on data in memory: the host cannot hand its steps over fast enough.

    3 to 25 ms on the device, 3 to 40 ms on the host for each: 10 to 90 % busy,
    a flat level; the rest is lost to dispatch, none of it starved.
    """
    plan = replace(
        healthy(draws),
        step_ms=draws.log_uniform(3, 25),
        step_spread=0.1,
        host_ms=draws.log_uniform(3, 40),
        costs_ms=None,
        runs_ahead=False,
        steps_per_epoch=int(draws.log_uniform(5_000, 50_000)),
    )
    return one_training(draws, plan, duration_ms)


def unequal_gpus(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """Two unequal GPUs with equal halves: at each step's barrier the faster one waits.

    It takes 45 to 90 % of the slower one's time, in steps of 60 to 1,200 ms;
    what it loses is lost to its peer, none of it starved.
    """
    plan = replace(healthy(draws), shares=(draws.uniform(0.45, 0.9), 1.0))
    return one_training(draws, plan, duration_ms)


def throttled(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """Heat holds the clocks down: steps last longer and the loader is ahead as ever.

    1 to 8 stretches of 2 to 30 min in which steps last 1.1 to 2.5 times as long.
    """
    clock = [1.0] * (duration_ms // 60_000 + 1)
    for _ in range(draws.integer(1, 8)):
        at, minutes = draws.integer(0, len(clock) - 1), draws.integer(2, 30)
        slower = draws.uniform(1.1, 2.5)
        clock[at : at + minutes] = [slower] * len(clock[at : at + minutes])
    return one_training(draws, replace(healthy(draws), clock=tuple(clock)), duration_ms)


def rounds(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """Some seconds of training here, then a wait until all other machines have done theirs.

    5 to 90 s of work, 2 to 60 s of waiting, spread 10 to 60 %: the pauses of a
    late loader to the eye, but batches lie ready. None of it starved.
    """
    plan = healthy(draws)
    plan = replace(
        plan,
        hold_every=max(1, int(draws.log_uniform(5_000, 90_000) / plan.step_ms)),
        hold_ms=draws.log_uniform(2_000, 60_000),
        hold_spread=draws.uniform(0.1, 0.6),
        hold_phase=TrainingPhase.DEVICE_SYNC,
    )
    return one_training(draws, plan, duration_ms)
