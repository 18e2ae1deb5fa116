"""Stretches of time, and a bounded list of them."""

from __future__ import annotations

from typing import NamedTuple


class Interval(NamedTuple):
    """A half-open stretch ``[start_ns, end_ns)``."""

    start_ns: int
    end_ns: int

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns
