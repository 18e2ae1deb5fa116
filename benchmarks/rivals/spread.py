"""Medians with their spread, of figures that were taken in turns."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple


class Spread(NamedTuple):
    """The middle half of some figures.

    Attributes:
        low: A quarter of them is below.
        median: Half of them is.
        high: Three quarters are.
    """

    low: float
    median: float
    high: float

    def __format__(self, digits: str) -> str:
        """``{spread:+.0f}`` gives ``+12 (+8 to +17)``."""
        return f"{self.median:{digits}} ({self.low:{digits}} to {self.high:{digits}})"


def spread_of(figures: Sequence[float]) -> Spread:
    """Median and quartiles of at least one figure.

    >>> spread_of([1.0, 2.0, 3.0, 4.0, 5.0])
    Spread(low=2.0, median=3.0, high=4.0)
    """
    if len(figures) == 1:
        return Spread(figures[0], figures[0], figures[0])
    return Spread(*statistics.quantiles(figures, n=4, method="inclusive"))


def differences(with_it: Sequence[float], without: Sequence[float]) -> list[float]:
    """What it added, round by round: machines waver, and two neighbours waver together."""
    return [one - other for one, other in zip(with_it, without, strict=True)]


def between_neighbours(figures: Sequence[float]) -> list[float]:
    """Of figures taken without, with, without, ...: each with less the mean of its neighbours.

    >>> between_neighbours([10.0, 15.0, 12.0])
    [4.0]
    """
    return [
        figures[at] - (before + after) / 2
        for at, (before, after) in enumerate(pairwise(figures[0::2]))
        for at in [2 * at + 1]
    ]
