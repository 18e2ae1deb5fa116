"""What series of Prometheus have told so far: one answer may be in a file twice, or overlap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

_MOST_SERIES: Final = 65_536


class Told(NamedTuple):
    """What one series has told.

    Attributes:
        gpu: Position of its GPU.
        first_ns: Its first moment, since 1970.
        last_ns: Its last.
    """

    gpu: int
    first_ns: int
    last_ns: int

    def has(self, stamp_ns: int) -> bool:
        """Whether a moment lies in the time that was told."""
        return self.first_ns <= stamp_ns <= self.last_ns


class ToldSeries:
    """Remembers series by their labels."""

    def __init__(self) -> None:
        self._told: dict[int, Told] = {}

    def of(self, labels: Mapping[str, str]) -> Told | None:
        """What the series with just these labels has told; ``None``: nothing."""
        return self._told.get(_identity(labels))

    def add(self, labels: Mapping[str, str], told: Told) -> None:
        """Take note of what a series told more."""
        identity = _identity(labels)
        before = self._told.get(identity)
        if before is not None:
            first_ns = min(before.first_ns, told.first_ns)
            self._told[identity] = Told(told.gpu, first_ns, max(before.last_ns, told.last_ns))
        elif len(self._told) < _MOST_SERIES:
            self._told[identity] = told


def _identity(labels: Mapping[str, str]) -> int:
    return hash(frozenset(labels.items()))
