"""What the bench asks of whatever trains, and what came of some seconds of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from gpumon.errors import GpumonError

DEFAULT_GPU = "default GPU"


@dataclass(frozen=True, slots=True)
class BenchStep:
    """One step of training.

    Attributes:
        samples: In its batch, over all GPUs.
        seconds: It took.
        busy_seconds: Of each GPU; ``None`` where the engine cannot tell.
        gap_seconds: Between the end of the step before and the begin of this one, of ``seconds``.
    """

    samples: int
    seconds: float
    busy_seconds: tuple[float, ...] | None = None
    gap_seconds: float = 0.0


class Feed(NamedTuple):
    """How batches come to a training.

    Attributes:
        batch_seconds: How long it takes to make one.
        is_ahead: Whether the next ones are made and brought to the device during a step.
    """

    batch_seconds: float
    is_ahead: bool


class GpuOutOfMemoryError(GpumonError):
    """A GPU's memory does not hold its part of the batch; the engine can go on with a smaller.

    Attributes:
        gpu: Which of the GPUs, from 0; ``None`` where nobody can tell.
    """

    def __init__(self, gpu: int | None, gpus: Sequence[str], batches: Sequence[int]) -> None:
        self.gpu = gpu
        if gpu is None:
            samples = " + ".join(map(str, batches))
            where = f"with {samples} samples on {' '.join(gpus) or DEFAULT_GPU}"
        else:
            name = gpus[gpu] if gpus else DEFAULT_GPU
            where = f"on {name}, which does not hold {batches[gpu]} samples"
        super().__init__(f"out of memory {where}; --find-batch tells what a GPU holds")


class Engine(Protocol):
    """Trains the bench's model."""

    is_simulated: bool

    def devices(self) -> tuple[str, ...]:
        """A line for each device, for people."""

    def gpus(self) -> tuple[str, ...]:
        """The names of all GPUs, such as ``"GPU:0"``."""

    def train(
        self, gpus: Sequence[str], batches: Sequence[int], feed: Feed | None = None
    ) -> Generator[BenchStep, None, None]:
        """Train without end, after one step that does not count: it compiles.

        Args:
            gpus: Names; none for the engine's default device.
            batches: Samples of each step for each of ``gpus``, or one for the default.
            feed: How batches come; ``None``: one batch, made before, is used again and again.

        Raises:
            GpuOutOfMemoryError: At any step.
        """


@dataclass(frozen=True, slots=True)
class Measured:
    """All that was trained since the warm-up.

    Attributes:
        gpus: Names; none for the default device.
        batches: Samples of each step for each.
        samples: Trained in all.
        seconds: They took.
        steps: They took.
        busy_seconds: Of each GPU in all; ``None`` where the engine cannot tell.
        gap_seconds: Between steps, of ``seconds``.
    """

    gpus: tuple[str, ...]
    batches: tuple[int, ...]
    samples: int = 0
    seconds: float = 0.0
    steps: int = 0
    busy_seconds: tuple[float, ...] | None = None
    gap_seconds: float = 0.0

    @property
    def global_batch(self) -> int:
        """Samples of a step."""
        return sum(self.batches)

    @property
    def samples_a_second(self) -> float:
        """Of all GPUs together."""
        return self.samples / self.seconds if self.seconds else 0.0

    @property
    def of_each_gpu(self) -> tuple[float, ...]:
        """Samples a second of each GPU: its part of the whole."""
        whole = self.samples_a_second
        return tuple(whole * batch / self.global_batch for batch in self.batches)

    @property
    def step_seconds(self) -> float:
        """The mean step."""
        return self.seconds / self.steps if self.steps else 0.0

    def and_then(self, step: BenchStep) -> Measured:
        """With a step more."""
        busy = step.busy_seconds
        if busy is not None and self.busy_seconds is not None:
            busy = tuple(a + b for a, b in zip(self.busy_seconds, busy, strict=True))
        return replace(
            self,
            samples=self.samples + step.samples,
            seconds=self.seconds + step.seconds,
            steps=self.steps + 1,
            busy_seconds=busy,
            gap_seconds=self.gap_seconds + step.gap_seconds,
        )


def runs_of(
    engine: Engine,
    gpus: Sequence[str],
    batches: Sequence[int],
    *,
    runs: int,
    seconds: float,
    feed: Feed | None = None,
) -> Iterator[Measured]:
    """Train in runs of some seconds each, and tell after each what came of all so far.

    Raises:
        GpuOutOfMemoryError: A GPU does not hold its part.
    """
    measured = Measured(tuple(gpus), tuple(batches))
    name = " ".join(gpus) or DEFAULT_GPU
    with closing(engine.train(gpus, batches, feed)) as training:
        for run in range(runs):
            with progress_bar(f"{name} [{measured.global_batch}]", seconds) as advance:
                while measured.seconds < (run + 1) * seconds:
                    step = next(training)
                    measured = measured.and_then(step)
                    advance(step.seconds)
            yield measured


@contextmanager
def progress_bar(name: str, seconds: float) -> Iterator[Callable[[float], None]]:
    """A bar for so many seconds; what it gives is called with those that have passed.

    It is on stderr, never among the results, only where somebody looks at it, and gone when
    its run is over.
    """
    if not sys.stderr.isatty():
        yield lambda passed: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as shown:
        task = shown.add_task(name, total=seconds)
        yield lambda passed: shown.advance(task, passed)


def speed_of(alone: Sequence[Measured]) -> float:
    """Samples a second, if each GPU did as well among the others as in its run alone."""
    return sum(measured.samples_a_second for measured in alone)


def why_above_alone(together: Measured, alone: Sequence[Measured]) -> str | None:
    """The sentence for it; ``None`` where they are no faster.

    Args:
        together: A run of some GPUs.
        alone: A run of each of them, in the same order.
    """
    above = together.samples_a_second / speed_of(alone) - 1
    if above <= 0:
        return None
    figure = f"{above:.1%} above what they did alone"
    larger = [
        f"{gpu} had {before.global_batch} samples a step alone and has {samples} here"
        for gpu, samples, before in zip(together.gpus, together.batches, alone, strict=True)
        if samples > before.global_batch
    ]
    if larger:
        return f"{figure}, because larger parts are worked off faster: {', '.join(larger)}"
    beside_ms, alone_ms = _beside_ms(together), [_beside_ms(measured) for measured in alone]
    known_ms = [each for each in alone_ms if each is not None]
    if beside_ms is not None and known_ms and beside_ms < max(known_ms):
        return (
            f"{figure}: in each step no GPU is at its samples for {beside_ms:.1f} ms (the update "
            f"of the weights), where one alone needs up to {max(known_ms):.1f} ms for it"
        )
    return f"{figure}, which is by how much runs differ: longer ones (--seconds) tell"


def _beside_ms(measured: Measured) -> float | None:
    """Of a mean step, the time in which no GPU is busy."""
    if measured.busy_seconds is None or not measured.steps:
        return None
    return 1e3 * (measured.seconds - max(measured.busy_seconds)) / measured.steps
