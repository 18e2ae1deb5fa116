"""Kinds in which no loader is late: idle in a job for another reason, or not at all."""

from __future__ import annotations

from dataclasses import replace

from gpumon.core.phase import TrainingPhase
from tests.truth.workloads.draws import Draws
from tests.truth.workloads.recipes import equal_shares, healthy, one_run
from tests.truth.workloads.training import TrainingPlan, TrainingRun, Validation
from tests.truth.workloads.truth import GpuTruth


def healthy_prefetch(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """A loader that is always ahead: nothing is lost but milliseconds amid the steps.

    Steps of 60 to 1,200 ms, 2 to 16 workers that need 30 to 80 % of their time;
    0 to 15 % lost within the steps, none of it starved.
    """
    return one_run(draws, healthy(draws), duration_ms)


def checkpoints(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """A healthy training that writes its state now and then: idle, but no one asked for a batch.

    3 to 60 s every 1 to 20 min, spread 2 to 60 %: 0.2 to 50 % lost, none of it
    starved. In half of them copies show as 0.5 to 6 % of use.
    """
    plan = _copying(draws, _holding(draws, (60_000, 1_200_000), (3_000, 60_000)))
    return one_run(draws, plan, duration_ms)


def asynchronous_checkpoints(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """A healthy training that copies its state and writes it while it goes on: short stops.

    0.3 to 6 s every 0.3 to 10 min, spread 2 to 60 %; none of it starved. In
    half of them copies show as 0.5 to 6 % of use.
    """
    plan = _copying(draws, _holding(draws, (20_000, 600_000), (300, 6_000)))
    return one_run(draws, plan, duration_ms)


def frequent_checkpoints(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """A healthy training of a small model that saves whenever it got better: often, and shortly.

    0.5 to 10 s every 5 to 90 s, spread 2 to 60 %; the steps between two differ
    by up to 60 % in half of them. None of it starved.
    """
    plan = _copying(draws, _holding(draws, (5_000, 90_000), (500, 10_000)))
    spread = 0.0 if draws.chance(0.5) else draws.log_uniform(0.01, 0.6)
    return one_run(draws, replace(plan, hold_every_spread=spread), duration_ms)


def scores_on_the_host(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """Every so many steps some batches are scored on the host: busy in part, and fed.

    1 to 20 s every 5 to 120 s, spread 2 to 60 %; the device works 5 to 50 % of
    it. None of it starved.
    """
    plan = replace(
        _holding(draws, (5_000, 120_000), (1_000, 20_000)),
        hold_busy=draws.log_uniform(0.05, 0.5),
        hold_piece_ms=draws.log_uniform(10, 500),
        hold_phase=TrainingPhase.VALIDATION,
    )
    return one_run(draws, plan, duration_ms)


def blips(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """Long stops within which the device does a moment's work: a norm for the log, a heartbeat.

    15 to 120 s every 1 to 15 min, with a piece of 50 to 900 ms each 5 to 60 s
    of it; none of it starved.
    """
    piece_ms = draws.log_uniform(50, 900)
    plan = replace(
        _holding(draws, (60_000, 900_000), (15_000, 120_000)),
        hold_busy=piece_ms / draws.log_uniform(5_000, 60_000),
        hold_piece_ms=piece_ms,
    )
    return one_run(draws, plan, duration_ms)


def roll_outs(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """A game is played, the device answering at each move; then what was played is trained on.

    5 to 120 s of training, then 2 to 90 s of play, spread 5 to 60 %, in which
    the device works 0.5 to 40 % of the time. None of it starved.
    """
    plan = replace(
        _holding(draws, (5_000, 120_000), (2_000, 90_000), spread=(0.05, 0.6)),
        hold_busy=draws.log_uniform(0.005, 0.4),
        hold_piece_ms=draws.log_uniform(3, 100),
        hold_phase=TrainingPhase.OTHER,
    )
    return one_run(draws, plan, duration_ms)


def generation(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """Now and then the model writes texts that are scored on the host: busy in part, and fed.

    10 to 180 s every 2 to 20 min, spread 2 to 60 %; the device works 10 to
    60 % of it. None of it starved.
    """
    plan = replace(
        _holding(draws, (120_000, 1_200_000), (10_000, 180_000)),
        hold_busy=draws.uniform(0.1, 0.6),
        hold_piece_ms=draws.log_uniform(10, 3_000),
        hold_phase=TrainingPhase.VALIDATION,
    )
    return one_run(draws, plan, duration_ms)


def lives_on(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """A healthy training is done and its process stays: a notebook, an upload.

    It trains for 10 to 60 % of the time, with a checkpoint or two.
    """
    plan = _holding(draws, (120_000, 1_200_000), (3_000, 60_000))
    plan = replace(plan, lives_on_ms=duration_ms)
    start_ms = int(draws.uniform(0, 0.05 * duration_ms))
    until_ms = int(draws.uniform(0.15, 0.6) * duration_ms)
    return TrainingRun(draws, plan, start_ms, until_ms, duration_ms).truths()


def many_gpus(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """Four to eight equal GPUs in step: at each checkpoint all pause together, and none is starved.

    3 to 45 s every 1 to 15 min; each takes 96 to 100 % of the slowest one's time.
    """
    plan = replace(
        _holding(draws, (60_000, 900_000), (3_000, 45_000)),
        shares=equal_shares(draws),
    )
    return one_run(draws, plan, duration_ms)


def many_gpus_that_spin(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """Four to eight GPUs under NCCL: while the first one's host writes, the others read busy.

    3 to 45 s every 1 to 15 min; the first one alone is seen to pause. None is starved.
    """
    plan = replace(
        _holding(draws, (60_000, 900_000), (3_000, 45_000)),
        shares=equal_shares(draws),
        peers_spin=True,
    )
    return one_run(draws, plan, duration_ms)


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
    return one_run(draws, plan, duration_ms)


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
    return one_run(draws, plan, duration_ms)


def unequal_gpus(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """Two unequal GPUs with equal halves: at each step's barrier the faster one waits.

    It takes 45 to 90 % of the slower one's time, in steps of 60 to 1,200 ms;
    what it loses is lost to its peer, none of it starved.
    """
    plan = replace(healthy(draws), shares=(draws.uniform(0.45, 0.9), 1.0))
    return one_run(draws, plan, duration_ms)


def throttled(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """Heat holds the clocks down: steps last longer and the loader is ahead as ever.

    1 to 8 stretches of 2 to 30 min in which steps last 1.1 to 2.5 times as long.
    """
    clock = [1.0] * (duration_ms // 60_000 + 1)
    for _ in range(draws.integer(1, 8)):
        at, minutes = draws.integer(0, len(clock) - 1), draws.integer(2, 30)
        slower = draws.uniform(1.1, 2.5)
        clock[at : at + minutes] = [slower] * len(clock[at : at + minutes])
    return one_run(draws, replace(healthy(draws), clock=tuple(clock)), duration_ms)


def rounds(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """Some seconds of training here, then a wait until all other machines have done theirs.

    5 to 90 s of work, the same each time or differing by up to 60 %; 2 to 60 s
    of waiting, spread 5 to 80 %: the pauses of a late loader to the eye, but
    batches lie ready. None of it starved.
    """
    plan = replace(
        _holding(draws, (5_000, 90_000), (2_000, 60_000), spread=(0.05, 0.8)),
        hold_every_spread=0.0 if draws.chance(0.5) else draws.log_uniform(0.01, 0.6),
        hold_phase=TrainingPhase.DEVICE_SYNC,
    )
    return one_run(draws, plan, duration_ms)


def federated_client(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """The same few steps each round, then a wait for the slowest of many clients.

    3 to 60 s of work, 1 to 60 s of waiting, spread 10 to 60 %. None of it
    starved.
    """
    plan = replace(
        _holding(draws, (3_000, 60_000), (1_000, 60_000), spread=(0.1, 0.6)),
        hold_phase=TrainingPhase.DEVICE_SYNC,
    )
    return one_run(draws, plan, duration_ms)


def _copying(draws: Draws, plan: TrainingPlan) -> TrainingPlan:
    """In half of them the copies to the host show: an H200 reads 4 to 6 % meanwhile."""
    if draws.chance(0.5):
        return plan
    return replace(plan, hold_busy=draws.log_uniform(0.005, 0.06), hold_piece_ms=2.0)


def _holding(
    draws: Draws,
    every_ms: tuple[float, float],
    hold_ms: tuple[float, float],
    spread: tuple[float, float] = (0.02, 0.6),
) -> TrainingPlan:
    """A healthy training that stops every so often for so long; ends of ranges."""
    plan = healthy(draws)
    return replace(
        plan,
        hold_every=max(1, int(draws.log_uniform(*every_ms) / plan.step_ms)),
        hold_ms=draws.log_uniform(*hold_ms),
        hold_spread=draws.log_uniform(*spread),
    )
