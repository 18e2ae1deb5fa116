"""GPUs that are nothing but a speed curve, a memory and some noise: to try ratios on."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final


class SimulatedOutOfMemoryError(Exception):
    """A simulated GPU was given more samples than it holds.

    Attributes:
        gpu: Which of the step's GPUs, from 0.
    """

    def __init__(self, gpu: int, samples: int) -> None:
        super().__init__(f"GPU {gpu} of this step does not hold {samples} samples")
        self.gpu = gpu


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedGpu:
    """One GPU.

    Attributes:
        name: For people.
        points: ``(samples, busy seconds of a step)``, both rising, two or more. In between time
            is a line; beyond, the first or last line goes on.
        holds: Samples that fit in its memory.
        wave: Samples that it does in one go: a step takes as long as the next multiple.
        noise: Relative standard deviation of a step's time.
        slower_from_step: From which step of the machine on it is slower; ``None`` for never.
        slower_by: What its times are multiplied with then.
    """

    name: str
    points: tuple[tuple[int, float], ...]
    holds: int = 1 << 30
    wave: int = 1
    noise: float = 0.0
    slower_from_step: int | None = None
    slower_by: float = 1.0

    def seconds_of(self, samples: int, *, step: int = 0) -> float:
        """Busy seconds of a step of so many samples, without noise."""
        waves = -(-samples // self.wave) * self.wave
        at = bisect_left(self.points, (waves,), 1, len(self.points) - 1)
        (low, low_s), (high, high_s) = self.points[at - 1], self.points[at]
        seconds = low_s + (high_s - low_s) * (waves - low) / (high - low)
        slower = self.slower_from_step is not None and step >= self.slower_from_step
        return max(seconds, 1e-6) * (self.slower_by if slower else 1.0)


@dataclass(frozen=True, slots=True)
class SimulatedStep:
    """What one step took, in seconds, and how long each of its GPUs was busy."""

    seconds: float
    busy_seconds: tuple[float, ...]


@dataclass(slots=True)
class SimulatedMachine:
    """Some GPUs, and what a step costs beside the samples.

    Attributes:
        gpus: In the order of their numbers.
        update_seconds: A GPU that trains alone changes the weights itself, in so many seconds.
        sync_seconds: Several exchange them with the host, in so many.
        seed: Of the noise.
        step: How many steps were taken.
    """

    gpus: tuple[SimulatedGpu, ...]
    update_seconds: float = 0.0
    sync_seconds: float = 0.0
    seed: int = 0
    step: int = 0
    _random: Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._random = Random(self.seed)

    def train(self, counts: Sequence[int], gpus: Sequence[int] | None = None) -> SimulatedStep:
        """One step.

        Args:
            counts: Samples for each of ``gpus``.
            gpus: Their numbers; all, in order, if not given.

        Raises:
            SimulatedOutOfMemoryError: One does not hold its samples; the machine is as before.
        """
        chosen = range(len(self.gpus)) if gpus is None else gpus
        for place, (number, count) in enumerate(zip(chosen, counts, strict=True)):
            if count > self.gpus[number].holds:
                raise SimulatedOutOfMemoryError(place, count)
        busy = [
            self._busy_seconds(self.gpus[number], count)
            for number, count in zip(chosen, counts, strict=True)
        ]
        self.step += 1
        return SimulatedStep(max(busy) + self._beside(len(busy)), tuple(busy))

    def true_speed(self, counts: Sequence[int], gpus: Sequence[int] | None = None) -> float:
        """Samples a second under that split, without noise, as of the present step."""
        chosen = range(len(self.gpus)) if gpus is None else gpus
        slowest = max(
            self.gpus[number].seconds_of(count, step=self.step)
            for number, count in zip(chosen, counts, strict=True)
        )
        return sum(counts) / (slowest + self._beside(len(counts)))

    def _beside(self, gpus: int) -> float:
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

    ``"fast"`` is its GTX 1080 Ti at the four batch sizes it tells, ``"slow"`` its GTX 1080,
    of which it tells one, 875 samples a second at batch 512: the rest of that curve is made
    up, 0.08 s and 0.99 ms a sample, which fits what it tells of the two together within 3 %.
    Of memory it tells that 1024 fit on the fast one alone, that 1024 + 710 did not fit and that
    820 + 568 did: 1024 and 640 are as good as any.

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
