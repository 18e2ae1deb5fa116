"""One GPU's rows in the order of time, a window of them held back."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Final

from gpumon.sources.logs.log_sample import LogSample
from gpumon.sources.logs.stamps.clock_unfolding import WINDOW_ROWS, ClockUnfolding
from gpumon.sources.logs.stamps.shared_stamps import MOST_ROWS_A_STAMP, SharedStamps

_stamp_of: Final = itemgetter(1)
_TELLING_MOMENTS: Final = 3
"""What a clock counts is told by so many: two may happen to be whole minutes."""


class GpuOrder:
    """Puts one GPU's rows in order.

    Args:
        has_summer_time: Whether the stamps are local time without a zone.

    Attributes:
        unfolding: Its clock.
        pending: Rows on the forward clock that a late one may yet precede.
        until_ns: Stamp of the last row that was handed on.
        too_late: Rows that belong before ones that were handed on, dropped.
        rows: How many were taken.
        moved: Whether two of them had different stamps.
    """

    def __init__(self, *, has_summer_time: bool) -> None:
        self.unfolding = ClockUnfolding(has_summer_time=has_summer_time)
        self.pending: list[LogSample] = []
        self.until_ns: int | None = None
        self.too_late = 0
        self.rows = 0
        self.moved = False
        self._first_ns: int | None = None
        self._moment_ns: int | None = None  # of the last row that was handed on, as written

    @property
    def is_plain(self) -> bool:
        """Whether stamps mean what they say."""
        return self.unfolding.is_plain

    def note_plain(self, stamps_ns: Sequence[int]) -> None:
        """Take note of the last rows that were handed on as they are."""
        self.moved = self.moved or len(stamps_ns) > 1
        self._see(stamps_ns)
        self.until_ns = self._moment_ns = stamps_ns[-1]
        self.unfolding.skip_to(stamps_ns)

    def put_in_order(
        self, rows: Sequence[LogSample], undecided: int, shared: SharedStamps
    ) -> list[LogSample]:
        """Rows in order that no later one can precede.

        Args:
            rows: In file order, as written.
            undecided: How many of the last come again; 0: the log ends here.
            shared: What becomes of rows with the same stamp.
        """
        stamps_ns = list(map(_stamp_of, rows))
        count = len(rows) - undecided
        self._see(stamps_ns[:count])
        placed = zip(self.unfolding.unfold(stamps_ns, count), rows, strict=False)
        self.pending += [
            row if stamp_ns == row.stamp_ns else row._replace(stamp_ns=stamp_ns)
            for stamp_ns, row in placed
            if stamp_ns is not None
        ]
        self.pending.sort(key=_stamp_of)
        cut = self._cut(WINDOW_ROWS if undecided else 0)
        if undecided and self._has_yet_to_tell_its_clock(cut):
            cut = 0
        ready, self.pending = self.pending[:cut], self.pending[cut:]
        if self.until_ns is not None:
            in_time = [row for row in ready if row.stamp_ns > self.until_ns]
            self.too_late += len(ready) - len(in_time)
            ready = in_time
        if ready:
            before_ns, self._moment_ns = self._moment_ns, ready[-1].stamp_ns
            ready = shared.told_apart(ready, before_ns)
            self.until_ns = ready[-1].stamp_ns
        return ready

    def _see(self, stamps_ns: Sequence[int]) -> None:
        self.rows += len(stamps_ns)
        if stamps_ns and self._first_ns is None:
            self._first_ns = stamps_ns[0]
        self.moved = self.moved or any(stamp_ns != self._first_ns for stamp_ns in stamps_ns)

    def _has_yet_to_tell_its_clock(self, cut: int) -> bool:
        """Whether the first rows are of too few moments; more are not waited for without end."""
        if self.until_ns is not None or len(self.pending) > _TELLING_MOMENTS * MOST_ROWS_A_STAMP:
            return False
        return len({row.stamp_ns for row in self.pending[:cut]}) < _TELLING_MOMENTS

    def _cut(self, window_rows: int) -> int:
        """How many pending rows are ready: never some of a stamp and not all."""
        pending = self.pending
        cut = max(0, len(pending) - window_rows)
        while 0 < cut < len(pending) and pending[cut][1] == pending[cut - 1][1]:
            cut -= 1
        if not cut and len(pending) > MOST_ROWS_A_STAMP + WINDOW_ROWS:
            return len(pending)  # the clock stands still: waiting for it would take all memory
        return cut
