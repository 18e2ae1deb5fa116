"""The newest values of a device, field by field, until they expire. Pure logic.

A value expires three periods after it was read, and never sooner than after three seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gpumon.core.clock import NS_PER_S

_PERIODS: Final = 3
_SHORTEST_NS: Final = 3 * NS_PER_S
_FOR_EVER_NS: Final = 1 << 62


def holds_for_ns(period_ns: int) -> int:
    """Return how long a value is valid that is read once in ``period_ns``.

    >>> holds_for_ns(500_000_000), holds_for_ns(5_000_000_000)
    (3000000000, 15000000000)
    """
    return max(_PERIODS * period_ns, _SHORTEST_NS)


class LatestValues:
    """The newest values of one device, each until it expires.

    One thread may put values while another reads them.

    Attributes:
        has_news: Whether a value was put since ``at`` was called.
        holds_until_ns: When the next of the values from ``at`` expires.
    """

    def __init__(self) -> None:
        self.has_news = True
        self.holds_until_ns = _FOR_EVER_NS
        self._values: dict[str, tuple[int, Mapping[str, Any]]] = {}

    def put(self, field: str, values: Mapping[str, Any], until_ns: int) -> None:
        """Replace the values of a field.

        Args:
            field: What was read at once.
            values: Its values, by name; ``None``: no answer.
            until_ns: CLOCK_MONOTONIC at which they expire.
        """
        self._values = {**self._values, field: (until_ns, values)}
        self.has_news = True  # last: the values must be there before

    def at(self, now_ns: int) -> dict[str, Any]:
        """Return the values that are valid now, by name."""
        self.has_news = False  # first: a value that is put meanwhile is news
        values: dict[str, Any] = {}
        holds_until_ns = _FOR_EVER_NS
        for until_ns, known in self._values.values():
            if now_ns < until_ns:
                values.update(known)
                holds_until_ns = min(holds_until_ns, until_ns)
        self.holds_until_ns = holds_until_ns
        return values
