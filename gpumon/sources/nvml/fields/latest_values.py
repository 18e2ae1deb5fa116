"""What a device said last, field by field, as long as it is an answer. Pure logic.

A value of *now* that nobody could read again is not known any more: it ends
three periods after it was read, the periods being those in which it is asked
for, and never sooner than after three seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gpumon.core.clock import NS_PER_S

_PERIODS: Final = 3
_SHORTEST_NS: Final = 3 * NS_PER_S
_FOR_EVER_NS: Final = 1 << 62


def holds_for_ns(period_ns: int) -> int:
    """For how long a value is one that is read once in ``period_ns``.

    >>> holds_for_ns(500_000_000), holds_for_ns(5_000_000_000)
    (3000000000, 15000000000)
    """
    return max(_PERIODS * period_ns, _SHORTEST_NS)


class LatestValues:
    """The newest answers of one device, each until it is too old to be one.

    One thread may tell while another asks.

    Attributes:
        has_news: Whether something was told since ``at`` was called.
        holds_until_ns: When the next of those that ``at`` gave ceases to hold.
    """

    def __init__(self) -> None:
        self.has_news = True
        self.holds_until_ns = _FOR_EVER_NS
        self._told: dict[str, tuple[int, Mapping[str, Any]]] = {}

    def tell(self, field: str, values: Mapping[str, Any], until_ns: int) -> None:
        """Put these values in the place of what the field said before.

        Args:
            field: What was read, in one go.
            values: What it said, by name; ``None``: no answer.
            until_ns: CLOCK_MONOTONIC from which they hold no more.
        """
        self._told = {**self._told, field: (until_ns, values)}
        self.has_news = True  # last: whoever sees it finds the values

    def at(self, now_ns: int) -> dict[str, Any]:
        """The values that hold now, by name; what was never told is not in it."""
        self.has_news = False  # first: what is told meanwhile is news
        values: dict[str, Any] = {}
        holds_until_ns = _FOR_EVER_NS
        for until_ns, told in self._told.values():
            if now_ns < until_ns:
                values.update(told)
                holds_until_ns = min(holds_until_ns, until_ns)
        self.holds_until_ns = holds_until_ns
        return values
