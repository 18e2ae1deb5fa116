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
    """A stream of random numbers that is the same on every machine.

    Built on PCG64 and NumPy's plain uniform, normal and exponential numbers
    only, whose streams no release has changed.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    @classmethod
    def of(cls, name: str, seed: int) -> Draws:
        """The stream of this name and seed."""
        entropy = [zlib.crc32(name.encode()), seed]
        return cls(np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy))))

    def uniform(self, low: float, high: float) -> float:
        """Anywhere between."""
        return low + (high - low) * float(self.rng.random())

    def log_uniform(self, low: float, high: float) -> float:
        """Anywhere between, each doubling as likely as the other; both above 0."""
        return float(low * (high / low) ** float(self.rng.random()))

    def integer(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        return low + int(self.rng.random() * (high - low + 1))

    def one_of(self, choices: Sequence[T]) -> T:
        """One of these, each as likely as the other."""
        return choices[self.integer(0, len(choices) - 1)]

    def chance(self, of: float) -> bool:
        """True in this share of all cases."""
        return float(self.rng.random()) < of

    def around(self, mean_ms: float, spread: float, count: int) -> Millis:
        """Times about a mean: normal, ``spread`` its relative deviation; shape (count,)."""
        return self.about(np.full(count, mean_ms), spread)

    def about(self, means_ms: NDArray[np.float64], spread: float) -> Millis:
        """As ``around``, each time about a mean of its own; shape as ``means_ms``."""
        return _whole(means_ms * (1.0 + spread * self.rng.standard_normal(means_ms.size)))

    def skewed(self, mean_ms: float, spread: float, count: int) -> Millis:
        """Times of this mean, log-normal: large ones are far off; shape (count,)."""
        sigma = float(np.sqrt(np.log1p(spread * spread)))
        values = mean_ms * np.exp(sigma * self.rng.standard_normal(count) - sigma * sigma / 2)
        return _whole(values)

    def waits(self, mean_ms: float, count: int) -> Millis:
        """Times between events that know nothing of each other; shape (count,)."""
        return _whole(mean_ms * self.rng.standard_exponential(count))

    def heavy_tailed(self, least_ms: float, tail: float, most_ms: float, count: int) -> Millis:
        """Times that are mostly near the least and seldom very long (Pareto); shape (count,).

        Args:
            least_ms: No value is shorter.
            tail: Exponent: the smaller, the longer the tail.
            most_ms: Where it is cut: something times out.
            count: How many.
        """
        values = least_ms * np.exp(self.rng.standard_exponential(count) / tail)
        return _whole(np.minimum(values, most_ms))

    def happens(self, share: float, count: int) -> NDArray[np.bool_]:
        """Whether it happens, each time on its own; shape (count,)."""
        return np.asarray(self.rng.random(count) < share)


def _whole(values: NDArray[np.float64]) -> Millis:
    return np.maximum(1, np.rint(values)).astype(np.int64)
