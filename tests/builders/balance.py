"""Simulated machines drawn from a seed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from statistics import fmean

from gpumon.core.attribution.batch_shares import split_counts
from trainer_hooks.balance.controller import RatioController, SplitChange
from trainer_hooks.balance.speed_curves import CountRange, best_split
from trainer_hooks.trainer_bench.simulated_gpus import SimulatedGpu, SimulatedMachine

STEPS_OF_AN_INTERVAL = 20


def drawn_gpu(random: Random, total: int, gpus: int, *, noise: float) -> SimulatedGpu:
    """A random GPU of one of three kinds, up to 4 times as fast as another.

    Affine; saturating (the slope changes half-way, in either direction); or in waves of up to an
    eighth of its equal part of the batch.
    """
    part = total // gpus
    per_sample = 1e-3 * random.uniform(1.0, 4.0)
    fixed = per_sample * part * random.uniform(0.02, 0.6)
    knee = random.randint(max(2, part // 4), part * 2)
    kind = random.choice(("affine", "saturating", "waves"))
    bend = random.uniform(0.6, 1.7) if kind == "saturating" else 1.0
    at_knee = fixed + per_sample * knee
    points = ((0, fixed), (knee, at_knee), (knee * 2, at_knee + per_sample * bend * knee))
    wave = random.choice((4, 8, 16, 32)) if kind == "waves" else 1
    return SimulatedGpu(
        name=kind, points=points, wave=max(1, min(wave, part // 8)), noise=noise,
        holds=random.choice((total, total, total, int(part * random.uniform(1.05, 1.6)))),
    )  # fmt: skip


def drawn_machine(
    seed: int, *, gpus: int, noise: float | None = None
) -> tuple[SimulatedMachine, int]:
    """A machine, and a batch that fits on its GPUs in equal parts."""
    random = Random(seed)
    total = random.randint(48, 512) * gpus
    of_steps = random.uniform(0.0, 0.04) if noise is None else noise
    drawn = tuple(drawn_gpu(random, total, gpus, noise=of_steps) for _ in range(gpus))
    sync = random.uniform(0.0, 0.1) * max(gpu.seconds_of(total // gpus) for gpu in drawn)
    return SimulatedMachine(drawn, sync_seconds=sync, seed=seed + 1), total


def best_speed(machine: SimulatedMachine, total: int) -> float:
    """Samples per second with the best split that fits, without noise."""
    curves = [lambda n, gpu=gpu: gpu.seconds_of(n, step=machine.step) for gpu in machine.gpus]
    ranges = [CountRange(1, min(gpu.holds, total)) for gpu in machine.gpus]
    return machine.true_speed(best_split(curves, total, ranges))


@dataclass(frozen=True, slots=True)
class Balanced:
    """The speed after balancing, as a part of the best possible, and the changes."""

    part_of_best: float
    changes: tuple[SplitChange, ...]


def balance(
    machine: SimulatedMachine, controller: RatioController, *, intervals: int = 60
) -> Balanced:
    """Let a controller balance a machine for a number of intervals.

    Without noise all steps of an interval take the same time, so that one is enough.
    """
    changes = []
    count = STEPS_OF_AN_INTERVAL if any(gpu.noise for gpu in machine.gpus) else 1
    for _ in range(intervals):
        counts = controller.counts
        steps = [machine.train(counts).busy_seconds for _ in range(count)]
        means = [fmean(gpu) for gpu in zip(*steps, strict=True)]
        change = controller.advance(counts, means)
        if change is not None:
            changes.append(change)
    best = best_speed(machine, sum(controller.counts))
    return Balanced(machine.true_speed(controller.counts) / best, tuple(changes))


def controller_of(machine: SimulatedMachine, total: int) -> RatioController:
    """A controller that starts with equal parts and knows the memory limits."""
    equal = split_counts(total, [1] * len(machine.gpus))
    return RatioController(equal, limits=[gpu.holds for gpu in machine.gpus])


def slow_down(machine: SimulatedMachine, gpu: int, *, by: float) -> None:
    """Slow a GPU down from now on."""
    slower = replace(machine.gpus[gpu], slower_from_step=machine.step, slower_by=by)
    machine.gpus = (*machine.gpus[:gpu], slower, *machine.gpus[gpu + 1 :])
