"""How busy one GPU was over a log of any length, in a bounded number of cells of equal width."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gpumon.core.sample import BusySample

MOST_CELLS: Final = 2_000
"""Twice as many as a picture is wide: folding leaves half of them at worst."""


@dataclass(frozen=True, slots=True)
class Lane:
    """One GPU's time in cells of equal width, as a picture needs it.

    Cell ``n`` covers ``cell_ns`` from ``start_ns + n * cell_ns`` on; the last
    one may reach beyond ``end_ns``.

    Attributes:
        start_ns: Where the first sample began, on the clock of the samples.
        end_ns: Where the newest one ended; ``start_ns`` without any.
        cell_ns: Width of a cell.
        observed_ns: Of each cell, the time that samples cover.
        busy_ns: Of each cell, the busy time.
    """

    start_ns: int = 0
    end_ns: int = 0
    cell_ns: int = 1
    observed_ns: tuple[int, ...] = ()
    busy_ns: tuple[int, ...] = ()


class BusyLane:
    """Takes the samples of one GPU, oldest first; memory does not grow with them.

    When the log outgrows the cells, their width doubles and neighbours become
    one. The cells' sums are always those of the samples, in whole
    nanoseconds: of a sample that lies in several cells, each gets its part.

    Args:
        limit: Most cells kept, at least 2.
    """

    __slots__ = ("_busy", "_end_ns", "_limit", "_observed", "_shift", "_start_ns")

    def __init__(self, limit: int = MOST_CELLS) -> None:
        self._limit = max(2, limit)
        self._shift = 0  # a cell is 2 ** shift ns wide
        self._start_ns = 0
        self._end_ns = -1
        self._observed = array("q")
        self._busy = array("q")

    def extend(self, samples: Sequence[BusySample]) -> None:
        """Take more samples.

        Args:
            samples: As ``GpuLedger.observe`` takes them; what it refuses is
                left out here too, so both come to the same sums.
        """
        last_ns = self._end_ns
        # The cell that is being filled, on the clock of the samples; none at first.
        cell_start_ns = cell_end_ns = -1
        observed_ns = busy_ns = cell = 0
        for start_ns, end_ns, busy_ratio in samples:
            if start_ns < last_ns or end_ns <= start_ns or not 0.0 <= busy_ratio <= 1.0:
                continue
            last_ns = end_ns
            if cell_start_ns <= start_ns and end_ns <= cell_end_ns:
                length_ns = end_ns - start_ns
                observed_ns += length_ns
                busy_ns += round(length_ns * busy_ratio)
                continue
            if observed_ns:
                self._observed[cell] += observed_ns
                self._busy[cell] += busy_ns
                observed_ns = busy_ns = 0
            cell = self._spread(start_ns, end_ns, round((end_ns - start_ns) * busy_ratio))
            cell_start_ns = self._start_ns + (cell << self._shift)
            cell_end_ns = cell_start_ns + (1 << self._shift)
        if observed_ns:
            self._observed[cell] += observed_ns
            self._busy[cell] += busy_ns
        self._end_ns = last_ns

    def snapshot(self) -> Lane:
        """The lane so far."""
        if not self._observed:
            return Lane()
        return Lane(
            start_ns=self._start_ns,
            end_ns=self._end_ns,
            cell_ns=1 << self._shift,
            observed_ns=tuple(self._observed),
            busy_ns=tuple(self._busy),
        )

    def _spread(self, start_ns: int, end_ns: int, busy_ns: int) -> int:
        """Share a sample out among the cells it lies in; return the last of them."""
        if not self._observed:
            self._start_ns = start_ns
        begin_ns, length_ns = start_ns - self._start_ns, end_ns - start_ns
        while begin_ns + length_ns > self._limit << self._shift:
            self._fold()
        shift = self._shift
        first, last = begin_ns >> shift, (begin_ns + length_ns - 1) >> shift
        missing = last + 1 - len(self._observed)
        if missing > 0:
            self._observed.extend([0] * missing)
            self._busy.extend([0] * missing)
        past_ns = given_ns = 0
        for cell in range(first, last + 1):
            # What is due up to here, less what was given: nothing is lost to rounding.
            until_ns = min(((cell + 1) << shift) - begin_ns, length_ns)
            due_ns = busy_ns * until_ns // length_ns
            self._observed[cell] += until_ns - past_ns
            self._busy[cell] += due_ns - given_ns
            past_ns, given_ns = until_ns, due_ns
        return last

    def _fold(self) -> None:
        self._shift += 1
        self._observed = _pairs(self._observed)
        self._busy = _pairs(self._busy)


def _pairs(cells: array[int]) -> array[int]:
    """The sums of neighbours."""
    if len(cells) % 2:
        cells.append(0)
    return array("q", map(int.__add__, cells[::2], cells[1::2]))
