"""The interface of the engines that train, and the results of a run."""

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
        busy_seconds: Per GPU; ``None`` where the engine does not know.
        gap_seconds: The part of ``seconds`` between the last step's end and this one's start.
    """

    samples: int
    seconds: float
    busy_seconds: tuple[float, ...] | None = None
    gap_seconds: float = 0.0


class Feed(NamedTuple):
    """How the batches of a training run are made.

    Attributes:
        batch_seconds: How long it takes to make one.
        is_ahead: Whether the next ones are made and copied to the device during a step.
    """

    batch_seconds: float
    is_ahead: bool


class GpuOutOfMemoryError(GpumonError):
    """A part of the batch does not fit on its GPU; the engine can continue with a smaller one.

    Attributes:
        gpu: Its position among the GPUs, from 0; ``None`` where unknown.
    """

    def __init__(self, gpu: int | None, gpus: Sequence[str], batches: Sequence[int]) -> None:
        self.gpu = gpu
        if gpu is None:
            samples = " + ".join(map(str, batches))
            where = f"with {samples} samples on {' '.join(gpus) or DEFAULT_GPU}"
        else:
            name = gpus[gpu] if gpus else DEFAULT_GPU
            where = f"on {name}, which does not hold {batches[gpu]} samples"
        super().__init__(f"out of memory {where}; --find-batch finds what fits on a GPU")


class Engine(Protocol):
    """Trains the benchmark's model."""

    is_simulated: bool

    def devices(self) -> tuple[str, ...]:
        """One line per device, to print."""

    def gpus(self) -> tuple[str, ...]:
        """The names of all GPUs, such as ``"GPU:0"``."""

    def train(
        self, gpus: Sequence[str], batches: Sequence[int], feed: Feed | None = None
    ) -> Generator[BenchStep, None, None]:
        """Train endlessly, after a first step that is not yielded because it compiles.

        Args:
            gpus: Names; empty for the engine's default device.
            batches: Samples per step for each of ``gpus``, or one number for the default device.
            feed: How batches are made; ``None``: one batch made beforehand is reused.

        Raises:
            GpuOutOfMemoryError: At any step.
        """


@dataclass(frozen=True, slots=True)
class Measured:
    """Totals since the warm-up.

    Attributes:
        gpus: Names; empty for the default device.
        batches: Samples per step of each.
        busy_seconds: Per GPU; ``None`` where the engine does not know.
        gap_seconds: The part of ``seconds`` between steps.
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
        return sum(self.batches)

    @property
    def samples_per_second(self) -> float:
        return self.samples / self.seconds if self.seconds else 0.0

    def by_gpu(self) -> list[tuple[str, int, float]]:
        """The name, batch and samples per second of each GPU."""
        part = self.samples_per_second / self.global_batch
        named = zip(self.gpus or (DEFAULT_GPU,), self.batches, strict=True)
        return [(gpu, batch, part * batch) for gpu, batch in named]

    @property
    def step_seconds(self) -> float:
        return self.seconds / self.steps if self.steps else 0.0

    def with_step(self, step: BenchStep) -> Measured:
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
    """Train in runs of that many seconds each; yield the totals so far after each.

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
                    measured = measured.with_step(step)
                    advance(step.seconds)
            yield measured


@contextmanager
def progress_bar(name: str, seconds: float) -> Iterator[Callable[[float], None]]:
    """A progress bar on stderr, if that is a terminal; yields a function that advances it.

    It disappears at the end of the run.
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
    """Samples per second if each GPU were as fast among the others as alone."""
    return sum(measured.samples_per_second for measured in alone)


def why_above_alone(together: Measured, alone: Sequence[Measured]) -> str | None:
    """Why GPUs together are faster than the sum of each alone; ``None`` where they are not."""
    above = together.samples_per_second / speed_of(alone) - 1
    if above <= 0:
        return None
    figure = f"{above:.1%} faster than the sum of each alone"
    larger = [
        f"{gpu} had {before.global_batch} samples per step alone and has {samples} here"
        for gpu, samples, before in zip(together.gpus, together.batches, alone, strict=True)
        if samples > before.global_batch
    ]
    if larger:
        return f"{figure}, because larger parts are more efficient: {', '.join(larger)}"
    overhead_ms, alone_ms = _overhead_ms(together), [_overhead_ms(measured) for measured in alone]
    known_ms = [each for each in alone_ms if each is not None]
    if overhead_ms is not None and known_ms and overhead_ms < max(known_ms):
        return (
            f"{figure}: the update of the weights takes {overhead_ms:.1f} ms per step, and up to "
            f"{max(known_ms):.1f} ms on one GPU alone"
        )
    return f"{figure}, which may be noise: measure longer runs (--seconds)"


def _overhead_ms(measured: Measured) -> float | None:
    """The time of a mean step in which no GPU is busy."""
    if measured.busy_seconds is None or not measured.steps:
        return None
    return 1e3 * (measured.seconds - max(measured.busy_seconds)) / measured.steps
