"""Typical loops by name, loops drawn from a seed, and jobs of several GPUs."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from gpumon.core.phase import TrainingPhase
from tests.truth.loops.machine import Rank

Step: TypeAlias = Callable[[Rank, int], None]
"""One optimizer step, by its number from 1."""

INPUT, STEP = TrainingPhase.INPUT_WAIT, TrainingPhase.TRAIN_STEP
CALLBACKS, CHECKPOINT = TrainingPhase.CALLBACKS, TrainingPhase.CHECKPOINT
COPY, SYNC = TrainingPhase.HOST_TO_DEVICE, TrainingPhase.DEVICE_SYNC
_LAUNCH_MS: Final = 0.3


class Loop(NamedTuple):
    """A training run on one GPU.

    Attributes:
        step: Repeated.
        is_synchronous: Whether its device is idle only while its host waits for input.
        jitter: Relative deviation of its durations.
        grain_ms: The driver's window.
    """

    step: Step
    is_synchronous: bool = False
    jitter: float = 0.01
    grain_ms: float = 1000 / 6


class Job(NamedTuple):
    """A training run whose ranks meet at the end of each step.

    Attributes:
        loads_ms: Wait for a batch, by rank.
        computes_ms: Time of the device, by rank.
        spins: Whether a device that waits for the others reads as busy.
        samples: Number that each rank counts in a step; 0: it does not count them.
        saves_ms: Time of rank 0 for a checkpoint every 5 steps, while the others wait.
    """

    loads_ms: Sequence[float]
    computes_ms: Sequence[float]
    spins: bool = True
    samples: int = 32
    saves_ms: float = 0.0


def _batch(
    rank: Rank,
    load: float,
    device: float,
    *,
    own: float = _LAUNCH_MS,
    step_phase: TrainingPhase | None = STEP,
    copy_within: float = 0.0,
    reads: bool = False,
) -> None:
    """Load a batch and launch its work; ``reads``: wait for the device in the step."""
    with rank.phase(INPUT):
        rank.work(load)
    with rank.phase(step_phase):
        if copy_within:
            with rank.phase(COPY):
                rank.work(copy_within)
        rank.work(own)
        rank.launch(device)
        if reads:
            rank.synchronise()


def synchronous(load: float, device: float, own: float = 0.2, log: float = 0.0) -> Step:
    """Load, compute, read the loss: the host waits for the device in each step."""

    def step(rank: Rank, _: int) -> None:
        _batch(rank, load, device, own=own, reads=True)
        rank.step()
        rank.work(log)

    return step


def optimized_outside(load: float, device: float, optimizer: float) -> Step:
    """Synchronous; the device's last work of a step is outside all tags."""

    def step(rank: Rank, _: int) -> None:
        _batch(rank, load, device, reads=True)
        rank.launch(optimizer)
        rank.synchronise()
        rank.step()

    return step


def accumulated(
    load: float,
    device: float,
    log: float = 0.0,
    *,
    micro_batches: int = 8,
    logs_in: TrainingPhase | None = None,
    step_phase: TrainingPhase | None = STEP,
) -> Step:
    """Accumulated gradients; only the last batch reads the loss, and logs it."""

    def step(rank: Rank, _: int) -> None:
        for number in range(1, micro_batches + 1):
            reads = number == micro_batches
            _batch(rank, load, device, step_phase=step_phase, reads=reads)
        rank.step()
        with rank.phase(logs_in):
            rank.work(log)

    return step


def read_every(
    steps: int, load: float, device: float, log: float, logs_in: TrainingPhase | None = None
) -> Step:
    """The loss is read every ``steps`` steps; in between the host runs ahead of the device."""

    def step(rank: Rank, number: int) -> None:
        _batch(rank, load, device)
        rank.step()
        if number % steps == 0:
            with rank.phase(logs_in):
                rank.synchronise()
                rank.work(log)

    return step


def queued(load: float, device: float, most_behind: float, own: float = _LAUNCH_MS) -> Step:
    """The host never reads a loss; the device's queue is bounded."""

    def step(rank: Rank, _: int) -> None:
        with rank.phase(INPUT):
            rank.work(load)
        with rank.phase(STEP):
            rank.work(own)
            rank.launch(device)
            rank.synchronise(most_behind)
        rank.step()

    return step


def two_loaders(first: float, second: float, device_1: float, device_2: float, log: float) -> Step:
    """Two batches from two loaders in each step, as in a GAN; then the loss is read."""

    def step(rank: Rank, _: int) -> None:
        _batch(rank, first, device_1)
        _batch(rank, second, device_2)
        with rank.phase(STEP):
            rank.synchronise()
        rank.step()
        rank.work(log)

    return step


def copied(steps: int, load: float, copy: float, device: float, log: float) -> Step:
    """A batch is copied under its own tag; the wait for the device has another."""

    def step(rank: Rank, number: int) -> None:
        with rank.phase(INPUT):
            rank.work(load)
        with rank.phase(COPY):
            rank.work(copy)
        with rank.phase(STEP):
            rank.work(_LAUNCH_MS)
            rank.launch(device)
        rank.step()
        if number % steps == 0:
            with rank.phase(SYNC):
                rank.synchronise()
            rank.work(log)

    return step


def launched_late(steps: int, load: float, own: float, device: float) -> Step:
    """The host works in the step before it launches the device's work."""

    def step(rank: Rank, number: int) -> None:
        _batch(rank, load, device, own=own, reads=number % steps == 0)
        rank.step()

    return step


def copied_within(steps: int, load: float, copy: float, device: float) -> Step:
    """A batch is copied under a tag within the step's own."""

    def step(rank: Rank, number: int) -> None:
        _batch(rank, load, device, copy_within=copy, reads=number % steps == 0)
        rank.step()

    return step


def prefetched(steps: int, load: float, device: float, log: float) -> Step:
    """A worker prefetches batches; one in ten takes ten times as long."""
    made_ns: list[int] = []
    depth = 4

    def step(rank: Rank, number: int) -> None:
        slow = 10.0 if number % 10 == 0 else 1.0
        room_ns = made_ns[-depth] if len(made_ns) >= depth else 0
        began_ns = max(made_ns[-1] if made_ns else 0, room_ns)
        made_ns.append(began_ns + round(load * slow * 1e6))
        with rank.phase(INPUT):
            rank.work(0.05)
            rank.now_ns = max(rank.now_ns, made_ns[-1])
        made_ns[-1] = max(made_ns[-1], rank.now_ns - round(depth * load * 1e6))
        with rank.phase(STEP):
            rank.work(_LAUNCH_MS)
            rank.launch(device)
            if number % steps == 0:
                rank.synchronise()
        rank.step()
        if number % steps == 0:
            rank.work(log)

    return step


LOOPS: Final[Mapping[str, Loop]] = {
    "loads 30 ms, computes 70 ms, reads the loss in each step": Loop(
        synchronous(30, 70), is_synchronous=True
    ),
    "the same, and logs for 15 ms without a tag": Loop(
        synchronous(30, 70, log=15), is_synchronous=True
    ),
    "steps of 7 ms, far below the driver's grain": Loop(synchronous(2, 5), is_synchronous=True),
    "30 + 20 ms, then 20 ms of the optimizer without a tag": Loop(optimized_outside(30, 20, 20)),
    "8 micro-batches of 20 + 25 ms, then 100 ms of log without a tag": Loop(
        accumulated(20, 25, 100)
    ),
    "the same, the log tagged as callbacks": Loop(accumulated(20, 25, 100, logs_in=CALLBACKS)),
    "the same without a tag around the step": Loop(accumulated(20, 25, 100, step_phase=None)),
    "8 micro-batches of 40 + 25 ms: the loader is the limit": Loop(accumulated(40, 25, 20)),
    "loss read every 10 steps of 10 + 12 ms, 60 ms of callbacks": Loop(
        read_every(10, 10, 12, 60, CALLBACKS)
    ),
    "loss read every 50 steps of 30 + 20 ms, 40 ms of log": Loop(read_every(50, 30, 20, 40)),
    "never reads a loss: 20 + 15 ms, a bounded queue": Loop(queued(20, 15, 200)),
    "never reads a loss: 15 + 20 ms, a bounded queue": Loop(queued(15, 20, 60)),
    "two loaders of 20 ms in a step, devices of 10 and 30 ms, 10 ms of log": Loop(
        two_loaders(20, 20, 10, 30, 10)
    ),
    "copies of 8 ms under a tag, loss read every 10 steps of 12 + 25 ms": Loop(
        copied(10, 12, 8, 25, 30)
    ),
    "copies of 15 ms under a tag within the step's, loss read every 4 steps of 15 + 12 ms": Loop(
        copied_within(4, 15, 15, 12)
    ),
    "host work of 16 ms in the step, 15 + 30 ms, loss read every 2 steps": Loop(
        launched_late(2, 15, 16, 30)
    ),
    "a worker ahead by 4 batches, one in ten of them late": Loop(prefetched(10, 15, 20, 30)),
}
"""By description; ms of waiting for the loader and of the device."""

JOBS: Final[Mapping[str, Job]] = {
    "4 ranks, equal": Job([2] * 4, [100] * 4),
    "4 ranks, the loader of rank 2 takes 100 ms, waits read as busy": Job(
        [2, 2, 100, 2], [100] * 4
    ),
    "the same where no rank counts its samples": Job([2, 2, 100, 2], [100] * 4, samples=0),
    "the same where waits read as idle": Job([2, 2, 100, 2], [100] * 4, spins=False),
    "4 ranks, each of them waits 80 ms for its loader": Job([80] * 4, [100] * 4),
    "4 ranks, rank 1 computes twice as long, waits read as busy": Job(
        [2] * 4, [100, 200, 100, 100]
    ),
    "the same, waits read as idle": Job([2] * 4, [100, 200, 100, 100], spins=False),
    "2 ranks, rank 1 loads for 150 ms, rank 0 computes for 200 ms, no samples counted": Job(
        [2, 150], [200, 100], samples=0
    ),
    "4 ranks, rank 0 saves for 300 ms every 5 steps": Job([2] * 4, [100] * 4, saves_ms=300),
}
"""By description; times of one step."""


def drawn(seed: int) -> Loop:
    """A loop with drawn kind and times, from 2 to 120 ms each."""
    rng = random.Random(seed)

    def between(least: float, most: float) -> float:
        return math.exp(rng.uniform(math.log(least), math.log(most)))

    load, device = between(2, 120), between(2, 120)
    steps, log = rng.choice([2, 3, 4, 8, 16, 32, 50]), rng.choice([0.0, between(5, 300)])
    logs_in = rng.choice([None, CALLBACKS, CHECKPOINT])
    step_phase = STEP if rng.random() < 0.85 else None
    kinds = [
        synchronous(load, device, own=0.2 + log / 10),
        accumulated(load, device, log, micro_batches=steps, logs_in=logs_in, step_phase=step_phase),
        read_every(steps, load, device, log, logs_in),
        queued(load, device, rng.choice([2 * device, 500.0]), own=rng.choice([0.3, 1.2 * device])),
        two_loaders(load, load, device, device * rng.choice([0.5, 1, 3]), log),
        copied(steps, load, 0.3 * load, device, log),
        prefetched(steps, load, device, log),
    ]
    place = rng.randrange(len(kinds))
    return Loop(
        kinds[place],
        is_synchronous=place == 0 and not log,
        jitter=rng.choice([0.003, 0.01, 0.03, 0.08, 0.15]),
        grain_ms=rng.choice([1000 / 6, 200.0, 1000.0]),
    )
