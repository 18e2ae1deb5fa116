"""What figures say that were taken in turns on a machine that wavers."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
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


def calmest(figures: Sequence[float]) -> float:
    """The first decile: what else a machine does adds to a figure, and takes nothing away.

    >>> calmest([10.0, 10.0, 10.0, 30.0])
    10.0
    """
    if len(figures) == 1:
        return figures[0]
    return statistics.quantiles(figures, n=10, method="inclusive")[0]


def differences(with_it: Sequence[float], without: Sequence[float]) -> list[float]:
    """What it added, round by round: two neighbours waver together."""
    return [one - other for one, other in zip(with_it, without, strict=True)]
