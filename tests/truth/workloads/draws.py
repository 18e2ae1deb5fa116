"""Random numbers: every number of a workload is drawn here."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
Millis = NDArray[np.int64]


class Draws:
    """Random numbers that are the same on every machine.

    Built only on PCG64 and NumPy's uniform, normal and exponential numbers, whose streams no
    release has changed.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    @classmethod
    def of(cls, name: str, seed: int) -> Draws:
        """The stream of this name and seed."""
        entropy = [zlib.crc32(name.encode()), seed]
        return cls(np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy))))

    def uniform(self, low: float, high: float) -> float:
        return low + (high - low) * float(self.rng.random())

    def log_uniform(self, low: float, high: float) -> float:
        return float(low * (high / low) ** float(self.rng.random()))

    def integer(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        return low + int(self.rng.random() * (high - low + 1))

    def one_of(self, choices: Sequence[T]) -> T:
        return choices[self.integer(0, len(choices) - 1)]

    def chance(self, of: float) -> bool:
        return float(self.rng.random()) < of

    def around(self, mean_ms: float, spread: float, count: int) -> Millis:
        """Normal times with a relative deviation; shape (count,)."""
        return self.about(np.full(count, mean_ms), spread)

    def about(self, means_ms: NDArray[np.float64], spread: float) -> Millis:
        """As ``around``, with a mean for each; shape as ``means_ms``."""
        return _whole(means_ms * (1.0 + spread * self.rng.standard_normal(means_ms.size)))

    def skewed(self, mean_ms: float, spread: float, count: int) -> Millis:
        """Log-normal times with this mean; shape (count,)."""
        sigma = float(np.sqrt(np.log1p(spread * spread)))
        values = mean_ms * np.exp(sigma * self.rng.standard_normal(count) - sigma * sigma / 2)
        return _whole(values)

    def waits(self, mean_ms: float, count: int) -> Millis:
        """Times between independent events; shape (count,)."""
        return _whole(mean_ms * self.rng.standard_exponential(count))

    def heavy_tailed(self, least_ms: float, tail: float, most_ms: float, count: int) -> Millis:
        """Pareto times up to a timeout; a small ``tail`` is a long one; shape (count,)."""
        values = least_ms * np.exp(self.rng.standard_exponential(count) / tail)
        return _whole(np.minimum(values, most_ms))

    def happens(self, share: float, count: int) -> NDArray[np.bool_]:
        """Independent events; shape (count,)."""
        return np.asarray(self.rng.random(count) < share)


def _whole(values: NDArray[np.float64]) -> Millis:
    return np.maximum(1, np.rint(values)).astype(np.int64)
