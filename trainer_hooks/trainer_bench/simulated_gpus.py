"""Simulated GPUs (a speed curve, a memory size and noise), and training runs on them."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from gpumon.errors import UsageError
from trainer_hooks.trainer_bench.measuring import BenchStep, Feed, GpuOutOfMemoryError


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedGpu:
    """One GPU.

    Attributes:
        points: ``(samples, busy seconds of a step)``, both increasing, two or more; linear
            between and beyond them.
        holds: Samples that fit in its memory.
        wave: Samples are done in groups of this size: a step takes as long as the next multiple.
        noise: Relative standard deviation of a step's time.
        slower_from_step: The machine's step from which on it is slower; ``None`` for never.
        slower_by: The factor by which it is slower then.
    """

    name: str
    points: tuple[tuple[int, float], ...]
    holds: int = 1 << 30
    wave: int = 1
    noise: float = 0.0
    slower_from_step: int | None = None
    slower_by: float = 1.0

    def seconds_of(self, samples: int, *, step: int = 0) -> float:
        """Busy seconds of a step with that many samples, without noise."""
        waves = -(-samples // self.wave) * self.wave
        at = bisect_left(self.points, (waves,), 1, len(self.points) - 1)
        (low, low_s), (high, high_s) = self.points[at - 1], self.points[at]
        seconds = low_s + (high_s - low_s) * (waves - low) / (high - low)
        slower = self.slower_from_step is not None and step >= self.slower_from_step
        return max(seconds, 1e-6) * (self.slower_by if slower else 1.0)


@dataclass(slots=True)
class SimulatedMachine:
    """Some GPUs, and the time that a step takes besides the samples.

    Attributes:
        update_seconds: Update of the weights where one GPU trains alone.
        sync_seconds: Exchange of the weights with the host where several GPUs train.
    """

    gpus: tuple[SimulatedGpu, ...]
    update_seconds: float = 0.0
    sync_seconds: float = 0.0
    seed: int = 0
    step: int = 0
    _random: Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._random = Random(self.seed)

    def train(self, counts: Sequence[int], gpus: Sequence[int] | None = None) -> BenchStep:
        """Do one step.

        Raises:
            GpuOutOfMemoryError: A GPU does not hold its samples; the machine is unchanged.
        """
        chosen = range(len(self.gpus)) if gpus is None else gpus
        for place, (number, count) in enumerate(zip(chosen, counts, strict=True)):
            if count > self.gpus[number].holds:
                raise GpuOutOfMemoryError(place, [f"GPU:{at}" for at in chosen], counts)
        busy = tuple(
            self._busy_seconds(self.gpus[number], count)
            for number, count in zip(chosen, counts, strict=True)
        )
        self.step += 1
        return BenchStep(sum(counts), max(busy) + self._overhead_s(len(busy)), busy)

    def true_speed(self, counts: Sequence[int], gpus: Sequence[int] | None = None) -> float:
        """Samples per second with that split, without noise, as of the present step."""
        chosen = range(len(self.gpus)) if gpus is None else gpus
        slowest = max(
            self.gpus[number].seconds_of(count, step=self.step)
            for number, count in zip(chosen, counts, strict=True)
        )
        return sum(counts) / (slowest + self._overhead_s(len(counts)))

    def _overhead_s(self, gpus: int) -> float:
        return self.update_seconds if gpus == 1 else self.sync_seconds

    def _busy_seconds(self, gpu: SimulatedGpu, samples: int) -> float:
        # Noise is mostly delay, but a mean of many steps is what counts: symmetric in the log.
        noise = math.exp(gpu.noise * self._random.gauss(0.0, 1.0)) if gpu.noise else 1.0
        return gpu.seconds_of(samples, step=self.step) * noise


ARTICLE_UPDATE_SECONDS: Final = 0.010
ARTICLE_SYNC_SECONDS: Final = 0.006

_FAST_SPEEDS: Final = ((64, 684.0), (256, 1129.0), (512, 1260.0), (1024, 1345.0))
_SLOW_SPEEDS: Final = ((64, 452.0), (256, 773.0), (512, 875.0), (1024, 939.0))


def article_gpu(name: str, *, noise: float = 0.0) -> SimulatedGpu:
    """A GPU of the article on two unequal ones, alone on its model with 25 layers.

    ``"fast"`` is its GTX 1080 Ti at the four batch sizes that it measured. ``"slow"`` is its
    GTX 1080, which it measured once: 875 samples per second at batch 512. The rest of that curve
    (0.08 s plus 0.99 ms per sample) is made up so that both together are within 3 % of the article.
    In the article 1024 samples fit on the fast one alone, 1024 + 710 did not fit, and 820 + 568
    did; memory for 1024 and 640 samples agrees with that.

    Raises:
        KeyError: It is neither of the two.
    """
    speeds, holds = {"fast": (_FAST_SPEEDS, 1024), "slow": (_SLOW_SPEEDS, 640)}[name]
    points = tuple((batch, batch / speed - ARTICLE_UPDATE_SECONDS) for batch, speed in speeds)
    return SimulatedGpu(name=name, points=points, holds=holds, noise=noise)


def article_machine(
    names: Sequence[str] = ("fast", "slow"), *, noise: float = 0.0, seed: int = 0
) -> SimulatedMachine:
    """The article's machine, or any number of its two GPUs.

    >>> round(article_machine().true_speed([820, 568]), -1)
    2180.0
    """
    return SimulatedMachine(
        gpus=tuple(article_gpu(name, noise=noise) for name in names),
        update_seconds=ARTICLE_UPDATE_SECONDS,
        sync_seconds=ARTICLE_SYNC_SECONDS,
        seed=seed,
    )


_NOISE: Final = 0.01
_KINDS: Final = {
    "fast": "the GTX 1080 Ti of the article on two unequal GPUs",
    "slow": "a GTX 1080 that agrees with the article",
}


class SimulatedEngine:
    """Trains on any number of the article's GPUs, without waiting.

    >>> engine = SimulatedEngine(("fast", "slow"))
    >>> step = next(engine.train(["GPU:0"], [64]))
    >>> step.samples, round(step.seconds, 2)
    (64, 0.09)
    """

    is_simulated = True

    def __init__(self, names: Sequence[str] = ("fast", "slow")) -> None:
        """Make the machine, with 1 % noise per step.

        Raises:
            UsageError: A name is neither.
        """
        unknown = [name for name in names if name not in _KINDS]
        if unknown or not names:
            raise UsageError(
                f"there is no simulated GPU {unknown[0] if unknown else ''!r}: "
                "--simulate takes fast and slow, separated by commas"
            )
        self._names = tuple(names)
        self._machine = article_machine(names, noise=_NOISE)

    def devices(self) -> tuple[str, ...]:
        return tuple(
            f"{gpu}  SIMULATED {name}: {_KINDS[name]}"
            for gpu, name in zip(self.gpus(), self._names, strict=True)
        )

    def gpus(self) -> tuple[str, ...]:
        return tuple(f"GPU:{at}" for at in range(len(self._names)))

    def train(
        self, gpus: Sequence[str], batches: Sequence[int], feed: Feed | None = None
    ) -> Generator[BenchStep, None, None]:
        known = self.gpus()
        unknown = [gpu for gpu in gpus if gpu not in known]
        if unknown:
            raise UsageError(f"there is no {unknown[0]}; the simulated GPUs are {', '.join(known)}")
        numbers = [known.index(gpu) for gpu in gpus] or [0]
        try:
            self._machine.train(batches, numbers)
            while True:
                step = self._machine.train(batches, numbers)
                yield step if feed is None else _fed(step, feed)
        except GpuOutOfMemoryError as error:  # by the names that were given
            raise GpuOutOfMemoryError(error.gpu, gpus, batches) from None


def _fed(step: BenchStep, feed: Feed) -> BenchStep:
    """The step with the wait for its batch, the part that the step before does not hide."""
    made_meanwhile = step.seconds if feed.is_ahead else 0.0
    gap_seconds = max(0.0, feed.batch_seconds - made_meanwhile)
    return replace(step, seconds=step.seconds + gap_seconds, gap_seconds=gap_seconds)
