"""Training on simulated GPUs: no framework, no GPU, and no waiting."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Final

from gpumon.errors import UsageError
from trainer_hooks.multi_gpu.balance.simulated_gpus import (
    SimulatedOutOfMemoryError,
    article_machine,
)
from trainer_hooks.trainer_bench.measuring import BenchStep, Feed, GpuOutOfMemoryError

_NOISE: Final = 0.01
_WHO: Final = {
    "fast": "a GTX 1080 Ti as the article on two unequal GPUs measured it",
    "slow": "a GTX 1080 that fits what the article says of it",
}


class SimulatedEngine:
    """The article's GPUs, in any number; a second of training takes no time.

    >>> engine = SimulatedEngine(("fast", "slow"))
    >>> step = next(engine.train(["GPU:0"], [64]))
    >>> step.samples, round(step.seconds, 2)
    (64, 0.09)
    """

    is_simulated = True

    def __init__(self, names: Sequence[str] = ("fast", "slow")) -> None:
        """Make the machine, with a noise of 1 % a step.

        Args:
            names: ``"fast"`` or ``"slow"`` for each GPU.

        Raises:
            UsageError: There is no GPU of that name.
        """
        strange = [name for name in names if name not in _WHO]
        if strange or not names:
            raise UsageError(
                f"there is no simulated GPU {strange[0] if strange else ''!r}: "
                "--simulate takes fast and slow, separated by commas"
            )
        self._names = tuple(names)
        self._machine = article_machine(names, noise=_NOISE)

    def devices(self) -> tuple[str, ...]:
        return tuple(
            f"{gpu}  SIMULATED {name}: {_WHO[name]}"
            for gpu, name in zip(self.gpus(), self._names, strict=True)
        )

    def gpus(self) -> tuple[str, ...]:
        return tuple(f"GPU:{at}" for at in range(len(self._names)))

    def train(
        self, gpus: Sequence[str], batches: Sequence[int], feed: Feed | None = None
    ) -> Generator[BenchStep, None, None]:
        known = self.gpus()
        strange = [gpu for gpu in gpus if gpu not in known]
        if strange:
            raise UsageError(f"there is no {strange[0]} here: there are {', '.join(known)}")
        numbers = [known.index(gpu) for gpu in gpus] or [0]
        try:
            self._step(numbers, batches)
            while True:
                step = self._step(numbers, batches)
                yield step if feed is None else _fed(step, feed)
        except SimulatedOutOfMemoryError as error:
            raise GpuOutOfMemoryError(error.gpu, gpus, batches) from error

    def _step(self, numbers: Sequence[int], batches: Sequence[int]) -> BenchStep:
        step = self._machine.train(batches, numbers)
        return BenchStep(sum(batches), step.seconds, step.busy_seconds)


def _fed(step: BenchStep, feed: Feed) -> BenchStep:
    """The step as it comes after its batch: one that is made ahead is late by the rest alone."""
    made_meanwhile = step.seconds if feed.is_ahead else 0.0
    gap_seconds = max(0.0, feed.batch_seconds - made_meanwhile)
    return replace(step, seconds=step.seconds + gap_seconds, gap_seconds=gap_seconds)
