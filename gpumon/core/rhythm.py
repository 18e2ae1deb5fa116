"""Whether work comes and goes in a rhythm, as a training's does."""

from __future__ import annotations

import math

from gpumon.core.settings import DetectorSettings


class Rhythm:
    """How regular the last cycles of a GPU were: each a burst and the pause after it.

    A training repeats itself: what it waits for comes at the pace of its
    loader. Cells that a person runs, and requests that come when they like,
    do not: their cycles spread as much as they last, or more. Where a loader
    is erratic (a read of a minute now and then) cycles spread, too, but the
    device is busy between: it must be mostly idle before it counts.

    Older cycles weigh less and less, and those of another job still less: not
    nothing, for a person who thinks for minutes seems to begin a new job with
    each cell.
    """

    __slots__ = ("_count", "_mean_ns", "_most", "_settings", "_variance")

    def __init__(self, settings: DetectorSettings) -> None:
        self._settings = settings
        self._count, self._most = 0, settings.rhythm_cycles
        self._mean_ns = self._variance = 0.0

    def begin_job(self) -> None:
        """What was before counts for no more than it takes to tell a rhythm."""
        self._count = min(self._count, self._settings.min_cycles)

    def add(self, cycle_ns: int) -> None:
        """A cycle has ended."""
        self._count = count = self._count + 1
        weight = 1 / (count if count < self._most else self._most)
        off_ns = cycle_ns - self._mean_ns
        self._mean_ns += weight * off_ns
        self._variance = (1 - weight) * (self._variance + weight * off_ns * off_ns)

    @property
    def variation(self) -> float:
        """Standard deviation of the cycles over their mean; 0 before the second."""
        return math.sqrt(self._variance) / self._mean_ns if self._mean_ns else 0.0

    @property
    def steady_ns(self) -> int | None:
        """How long a cycle is where long ones come like a clock; ``None``: they do not."""
        settings = self._settings
        if self._count < settings.min_cycles or self._mean_ns < settings.clockwork_from_ns:
            return None
        return round(self._mean_ns) if self.variation < settings.steady_below else None

    def is_lacking(self, busy_share: float) -> bool:
        """Whether enough cycles show that there is none.

        Args:
            busy_share: Of the job's time in use, 0 to 1.
        """
        settings = self._settings
        return (
            busy_share < settings.irregular_busy_below
            and self._count >= settings.min_cycles
            and self.variation > settings.irregular_from
        )
