"""Simulated machines drawn from a seed, for whoever tries ratios on GPUs not seen before."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from statistics import fmean

from gpumon.core.attribution.batch_shares import split_counts
from trainer_hooks.multi_gpu.balance.controller import RatioController, SplitChange
from trainer_hooks.multi_gpu.balance.simulated_gpus import SimulatedGpu, SimulatedMachine
from trainer_hooks.multi_gpu.balance.solver import Room, best_split

STEPS_OF_AN_INTERVAL = 20


def drawn_gpu(random: Random, total: int, gpus: int, *, noise: float) -> SimulatedGpu:
    """A GPU up to 4 times as fast as another, of one of three kinds.

    Affine; saturating (slower the larger the batch, or the smaller: its slope changes
    half-way); or in waves of up to an eighth of its equal part of the batch.
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
    """A machine and a batch for it, which its GPUs hold when it is split equally."""
    random = Random(seed)
    total = random.randint(48, 512) * gpus
    of_steps = random.uniform(0.0, 0.04) if noise is None else noise
    drawn = tuple(drawn_gpu(random, total, gpus, noise=of_steps) for _ in range(gpus))
    sync = random.uniform(0.0, 0.1) * max(gpu.seconds_of(total // gpus) for gpu in drawn)
    return SimulatedMachine(drawn, sync_seconds=sync, seed=seed + 1), total


def best_speed(machine: SimulatedMachine, total: int) -> float:
    """Samples a second of the best of all splits that fit, without noise."""
    curves = [lambda n, gpu=gpu: gpu.seconds_of(n, step=machine.step) for gpu in machine.gpus]
    rooms = [Room(1, min(gpu.holds, total)) for gpu in machine.gpus]
    return machine.true_speed(best_split(curves, total, rooms))


@dataclass(frozen=True, slots=True)
class Levelled:
    """What a controller made of a machine: speed as a part of the best, and its changes."""

    part_of_best: float
    changes: tuple[SplitChange, ...]


def level(
    machine: SimulatedMachine, controller: RatioController, *, intervals: int = 60
) -> Levelled:
    """Let a controller level a machine for so many intervals of some steps each.

    Without noise each step of an interval takes the same, and one tells as much as all.
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
    return Levelled(machine.true_speed(controller.counts) / best, tuple(changes))


def controller_of(machine: SimulatedMachine, total: int) -> RatioController:
    """A controller that begins with equal parts and knows the memories."""
    equal = split_counts(total, [1] * len(machine.gpus))
    return RatioController(equal, limits=[gpu.holds for gpu in machine.gpus])


def slow_down(machine: SimulatedMachine, gpu: int, *, by: float) -> None:
    """From now on that GPU takes so many times as long."""
    slower = replace(machine.gpus[gpu], slower_from_step=machine.step, slower_by=by)
    machine.gpus = (*machine.gpus[:gpu], slower, *machine.gpus[gpu + 1 :])
