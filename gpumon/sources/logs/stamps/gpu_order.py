"""One GPU's rows in the order of time, a window of them held back."""

from __future__ import annotations

from operator import itemgetter
from typing import Final

from gpumon.sources.logs.log_sample import LogSample
from gpumon.sources.logs.stamps.equal_stamps import MOST_ROWS_A_STAMP, EqualStamps
from gpumon.sources.logs.stamps.forward_clock import WINDOW_ROWS, ForwardClock

_TELLING_MOMENTS: Final = 3
"""What a clock counts is told by so many: two may happen to be whole minutes."""
_stamp_of: Final = itemgetter(1)


class GpuOrder:
    """Puts one GPU's rows in order, a window of them held back.

    Args:
        has_summer_time: Whether the stamps are local time without a zone.

    Attributes:
        clock: What its stamps mean.
        undecided: Rows as written, of which the last show whether the clock turned before them.
        too_late: Rows that belong before ones that were handed on, dropped.
        rows: How many were taken.
        moved: Whether two of them had different stamps.
    """

    def __init__(self, *, has_summer_time: bool) -> None:
        self.clock = ForwardClock(has_summer_time=has_summer_time)
        self.undecided: list[LogSample] = []
        self.too_late = 0
        self.rows = 0
        self.moved = False
        self._pending: list[LogSample] = []  # on the forward clock; a late row may yet precede them
        self._until_ns: int | None = None
        self._moment_ns: int | None = None  # of the last row that was handed on, as written
        self._first_ns: int | None = None

    def put_in_order(self, equal: EqualStamps, *, is_end: bool) -> list[LogSample]:
        """Rows in order that no later one can precede.

        Args:
            equal: What becomes of rows with the same stamp.
            is_end: Whether the log ends here.
        """
        self._place(0 if is_end else WINDOW_ROWS)
        cut = self._cut(0 if is_end else WINDOW_ROWS)
        if not is_end and self._has_yet_to_tell_its_clock(cut):
            cut = 0
        ready, self._pending = self._pending[:cut], self._pending[cut:]
        if ready and self._until_ns is not None and ready[0].stamp_ns <= self._until_ns:
            in_time = [row for row in ready if row.stamp_ns > self._until_ns]
            self.too_late += len(ready) - len(in_time)
            ready = in_time
        if ready:
            before_ns, self._moment_ns = self._moment_ns, ready[-1].stamp_ns
            ready = equal.made_to_rise(ready, before_ns)
            self._until_ns = ready[-1].stamp_ns
        return ready

    def _place(self, window_rows: int) -> None:
        """Put the rows that are decided on, all but the last, on the forward clock."""
        rows = self.undecided
        count = max(0, len(rows) - window_rows)
        stamps_ns = list(map(_stamp_of, rows))
        self.rows += count
        if count and self._first_ns is None:
            self._first_ns = stamps_ns[0]
        self.moved = self.moved or any(at_ns != self._first_ns for at_ns in stamps_ns[:count])
        self._pending += [
            row if stamp_ns == row[1] else row._replace(stamp_ns=stamp_ns)
            for stamp_ns, row in zip(self.clock.read_on(stamps_ns, count), rows, strict=False)
            if stamp_ns is not None
        ]
        self._pending.sort(key=_stamp_of)
        del rows[:count]

    def _has_yet_to_tell_its_clock(self, cut: int) -> bool:
        """Whether the first rows are of too few moments; more are not waited for without end."""
        if self._until_ns is not None or len(self._pending) > _TELLING_MOMENTS * MOST_ROWS_A_STAMP:
            return False
        return len({row.stamp_ns for row in self._pending[:cut]}) < _TELLING_MOMENTS

    def _cut(self, window_rows: int) -> int:
        """How many pending rows are ready: never some of a stamp and not all."""
        pending = self._pending
        cut = max(0, len(pending) - window_rows)
        while 0 < cut < len(pending) and pending[cut][1] == pending[cut - 1][1]:
            cut -= 1
        if not cut and len(pending) > MOST_ROWS_A_STAMP + WINDOW_ROWS:
            return len(pending)  # the clock stands still: waiting for it would take all memory
        return cut
