"""What a capture measures, part by part, as rows of the tables on its page."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gpumon.cli.doctor.driver_answers import DriverAnswers, GpuAnswers

Row = dict[str, Any]
"""What stands under each head of a table; without an answer, ``None``."""


class Spread(NamedTuple):
    """How values are distributed."""

    median: float
    p05: float
    p95: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        """The spread of these; ``None`` of none."""
        if not values:
            return None
        order, last = sorted(values), len(values) - 1
        return cls(statistics.median(order), order[round(0.05 * last)], order[round(0.95 * last)])

    def __str__(self) -> str:
        return f"{self.median:.4g} ({self.p05:.4g} to {self.p95:.4g})"


def mean(values: Sequence[float | None]) -> float | None:
    """Of those that are known; ``None`` where none is."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


@dataclass(slots=True, kw_only=True)
class Results:
    """All that was measured so far; ``missing`` says which parts were not, and why."""

    driver: DriverAnswers
    gpu: GpuAnswers
    command: str
    date: str
    python: str
    load: str | None = None
    rings: list[Row] = field(default_factory=list)
    costs: dict[str, GpuAnswers] = field(default_factory=dict)
    waves: list[Row] = field(default_factory=list)
    activity: list[Row] = field(default_factory=list)
    stalls: list[Row] = field(default_factory=list)
    recording: str | None = None
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def board(self) -> str:
        """Its name, for people."""
        return self.gpu.name or "a GPU without a name"
