"""Rows of one GPU with equal stamps: copies, or rows of a clock that is too coarse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from statistics import median_low
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.sources.logs.log_sample import LogSample

_RESOLUTIONS_NS: Final = (60 * NS_PER_S, NS_PER_S)
"""Resolutions of coarse clocks: spreadsheets store minutes, `date +%s` seconds."""
MOST_ROWS_A_STAMP: Final = 1_000
"""With more rows at one time, the clock stands still."""
_CROWD: Final = 1.3
"""Mean rows a stamp from which on the clock is coarse; below, equal rows are copies."""
_stamp_of: Final = itemgetter(1)


@dataclass(slots=True)
class EqualStamps:
    """Handles rows of a log that share a stamp, and counts them.

    Attributes:
        copies: Dropped because the same row was there.
        contradictions: Dropped because another row has that time.
        standing: Dropped because the clock stood still.
        spread: Given times of their own.
    """

    copies: int = 0
    contradictions: int = 0
    standing: int = 0
    spread: int = 0
    _spread_rows: Counter[int] = field(default_factory=Counter)
    _seen_resolution_ns: int = NS_PER_S
    _seen_rows: int | None = None

    @property
    def period_ns(self) -> int:
        """Most frequent time between two rows that were spread; 0 without any."""
        return max(self._spread_rows, key=self._spread_rows.__getitem__, default=0)

    def made_to_rise(
        self, rows: Sequence[LogSample], before_ns: int | None = None
    ) -> list[LogSample]:
        """Return the same rows with stamps that rise.

        Args:
            rows: Of one GPU, by stamp, with all rows of each stamp.
            before_ns: Stamp of the GPU's row before them; ``None``: there is none.
        """
        if len(set(map(_stamp_of, rows))) == len(rows):
            return list(rows)
        runs = [list(run) for _, run in groupby(rows, key=_stamp_of)]
        resolution_ns = self._resolution_ns([run[0].stamp_ns for run in runs])
        counts = [len(run) for run in runs if len(run) <= MOST_ROWS_A_STAMP]
        if not resolution_ns or not counts or sum(counts) < _CROWD * len(counts):
            return [row for run in runs for row in self._without_copies(run, resolution_ns)]
        usual = self._usual_rows(counts)
        apart: list[LogSample] = []
        for at, run in enumerate(runs):
            if len(run) > MOST_ROWS_A_STAMP:
                apart.append(self._first_of_standing(run))
                continue
            last_ns = runs[at - 1][0].stamp_ns if at else before_ns
            goes_before = last_ns is not None and run[0].stamp_ns - last_ns == resolution_ns
            # A stretch may begin and end anywhere within its first and last second.
            apart += self._spread(
                run, resolution_ns, resolution_ns // usual, begins=not goes_before
            )
        return apart

    def _resolution_ns(self, stamps_ns: Sequence[int]) -> int:
        """Return what the clock counts; 0 if it is fine enough.

        Two stamps may happen to be full minutes: then the previous resolution counts.
        """
        found_ns = next(
            (unit_ns for unit_ns in _RESOLUTIONS_NS if not any(at % unit_ns for at in stamps_ns)), 0
        )
        if len(stamps_ns) <= 2:
            return min(found_ns, self._seen_resolution_ns)
        self._seen_resolution_ns = found_ns
        return found_ns

    def _usual_rows(self, counts: Sequence[int]) -> int:
        """Return rows a stamp, without the first and last stamp, which may lack some."""
        if len(counts) <= 2:
            return self._seen_rows or median_low(counts)
        self._seen_rows = median_low(counts[1:-1])
        return self._seen_rows

    def _spread(
        self, run: list[LogSample], resolution_ns: int, period_ns: int, *, begins: bool = False
    ) -> list[LogSample]:
        if len(run) > 1:
            self.spread += len(run)
            self._spread_rows[period_ns] += len(run)
        step_ns = min(period_ns, resolution_ns // len(run))
        offset_ns = resolution_ns - step_ns * len(run) if begins else 0
        return [
            row._replace(stamp_ns=row.stamp_ns + offset_ns + step_ns * at)
            for at, row in enumerate(run)
        ]

    def _without_copies(self, run: list[LogSample], resolution_ns: int) -> list[LogSample]:
        if len(run) > MOST_ROWS_A_STAMP:
            return [self._first_of_standing(run)]
        different = list(dict.fromkeys(run))
        self.copies += len(run) - len(different)
        if len(different) > 1 and not resolution_ns:
            self.contradictions += len(different) - 1
            return different[:1]
        if len(different) > 1:
            period_ns = resolution_ns // len(different)
            return self._spread(different, resolution_ns, period_ns)
        return different

    def _first_of_standing(self, run: list[LogSample]) -> LogSample:
        self.standing += len(run) - 1
        return run[0]
