"""How often the rows of a log come: its usual period, and how much time had which."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median_low
from typing import Final

from gpumon.core.settings import DEFAULT_SETTINGS

HOLE_PERIODS: Final = DEFAULT_SETTINGS.log.hole_periods
"""A silence longer than that is not observed: nobody knows what the GPU did."""
ROWS_OF_A_CHANGE: Final = 4
"""So many rows in turn, equally far apart, and the period has changed: fewer may be holes."""
LONGEST_PERIOD_NS: Final = 1 << 55
"""About a year: rows further apart are no log of a GPU, and their stamps no times."""
_FIRST_ROWS: Final = 6
_SAME_WITHIN: Final = 1.25
_MOST_PERIODS: Final = 64
_FEW_ROWS: Final = 0.1
"""A period that fewer of the rows have is not that of the log, however long it is."""
_WORTH_TELLING: Final = DEFAULT_SETTINGS.log.period_told_from


def usual_interval_ns(stamps_ns: Sequence[int]) -> int:
    """Median time between two stamps, 0 where none rises or they are no times.

    >>> usual_interval_ns([10, 20, 30, 25, 70]), usual_interval_ns([10, 10])
    (10, 0)
    """
    rising: list[int] = []
    last_ns = stamps_ns[0]
    for stamp_ns in stamps_ns[1:]:
        if stamp_ns > last_ns:
            rising.append(stamp_ns - last_ns)
            last_ns = stamp_ns
    period_ns = median_low(rising) if rising else 0
    return period_ns if period_ns <= LONGEST_PERIOD_NS else 0


def first_interval_ns(stamps_ns: Sequence[int], period_ns: int) -> int:
    """How long the first row speaks for: a period, or less where the rows begin much closer.

    >>> first_interval_ns([0, 60, 120], 60), first_interval_ns([0, 1, 2, 3, 63, 123], 60)
    (60, 1)
    """
    at_first_ns = usual_interval_ns(stamps_ns[:_FIRST_ROWS])
    return at_first_ns if 0 < at_first_ns * HOLE_PERIODS < period_ns else period_ns


def common_interval_ns(intervals_ns: Sequence[int]) -> int:
    """Their median, 0 where they differ too much to be one period.

    >>> common_interval_ns([60, 61, 59, 120]), common_interval_ns([60, 600, 60, 70])
    (60, 0)
    """
    period_ns = median_low(intervals_ns)
    is_common = max(intervals_ns) <= period_ns * HOLE_PERIODS <= min(intervals_ns) * HOLE_PERIODS**2
    return period_ns if is_common and period_ns <= LONGEST_PERIOD_NS else 0


class PeriodTimes:
    """How much observed time had which period. Periods that differ by jitter are one."""

    def __init__(self) -> None:
        self._time_ns: dict[int, int] = {}

    def add(self, period_ns: int, time_ns: int) -> None:
        """More time of that period."""
        if time_ns <= 0:
            return
        for known_ns in self._time_ns:
            if known_ns <= period_ns * _SAME_WITHIN and period_ns <= known_ns * _SAME_WITHIN:
                self._time_ns[known_ns] += time_ns
                return
        if len(self._time_ns) < _MOST_PERIODS:
            self._time_ns[period_ns] = time_ns

    def merge(self, others: Iterable[PeriodTimes]) -> PeriodTimes:
        """This one with all others."""
        for other in others:
            for period_ns, time_ns in other._time_ns.items():
                self.add(period_ns, time_ns)
        return self

    @property
    def usual_ns(self) -> int:
        """The period that most of the time had, of those that many rows have; 0 without any."""
        by_time = self._time_ns
        rows = {period_ns: time_ns / period_ns for period_ns, time_ns in by_time.items()}
        many = min(_FEW_ROWS * sum(rows.values()), max(rows.values(), default=0.0))
        usual = (period_ns for period_ns in by_time if rows[period_ns] >= many)
        return max(usual, key=lambda period_ns: (by_time[period_ns], -period_ns), default=0)

    def worth_telling(self) -> tuple[tuple[int, int], ...]:
        """Periods and their times, in order of appearance, without those that hardly matter."""
        least_ns = _WORTH_TELLING * sum(self._time_ns.values())
        return tuple(item for item in self._time_ns.items() if item[1] >= least_ns)
