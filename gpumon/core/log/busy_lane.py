"""How busy one GPU was over a log of any length, in a bounded number of cells of equal width."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gpumon.core.sample import BusySample
from gpumon.core.settings.detector import DEFAULT_SETTINGS

MOST_CELLS: Final = 2_000
"""About one and a half times as many as a picture has columns: folding halves them at worst."""


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
        active_ns: Of each cell, the time that active samples cover. Where
            there is none for long, the GPU was not in use.
    """

    start_ns: int = 0
    end_ns: int = 0
    cell_ns: int = 1
    observed_ns: tuple[int, ...] = ()
    busy_ns: tuple[int, ...] = ()
    active_ns: tuple[int, ...] = ()


class BusyLane:
    """Takes the samples of one GPU, oldest first; memory does not grow with them.

    When the log outgrows the cells, their width doubles and neighbours become
    one. The cells' sums are always those of the samples, in whole
    nanoseconds: of a sample that lies in several cells, each gets its part.

    Args:
        limit: Most cells kept, at least 2.
        active_above: A sample busier than that is active, 0 to 1.
    """

    def __init__(
        self, limit: int = MOST_CELLS, active_above: float = DEFAULT_SETTINGS.active_above
    ) -> None:
        self._limit = max(2, limit)
        self._active_above = active_above
        self._shift = 0  # a cell is 2 ** shift ns wide
        self._start_ns = 0
        self._end_ns = -1
        self._observed = array("q")
        self._busy = array("q")
        self._active = array("q")

    def extend(self, samples: Sequence[BusySample]) -> None:
        """Take more samples.

        Args:
            samples: As ``GpuLedger.observe`` takes them; what it refuses is
                left out here too, so both come to the same sums.
        """
        for start_ns, end_ns, busy_ratio in samples:
            if self._end_ns <= start_ns < end_ns and 0.0 <= busy_ratio <= 1.0:
                if not self._observed:
                    self._start_ns = start_ns
                self._end_ns = end_ns
                self._spread(start_ns, end_ns, busy_ratio)

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
            active_ns=tuple(self._active),
        )

    def _spread(self, start_ns: int, end_ns: int, busy_ratio: float) -> None:
        """Share a sample out among the cells it lies in."""
        while end_ns - self._start_ns > self._limit << self._shift:
            self._fold()
        shift, begin_ns, length_ns = self._shift, start_ns - self._start_ns, end_ns - start_ns
        busy_ns, is_active = round(length_ns * busy_ratio), busy_ratio > self._active_above
        observed, busy, active = self._observed, self._busy, self._active
        cell, last = begin_ns >> shift, (begin_ns + length_ns - 1) >> shift
        if last >= len(observed):
            for cells in (observed, busy, active):
                cells.extend([0] * (last + 1 - len(cells)))
        from_ns = given_ns = 0
        while from_ns < length_ns:
            until_ns = length_ns if cell == last else ((cell + 1) << shift) - begin_ns
            # What is due up to there, less what was given: nothing is lost to rounding.
            due_ns = busy_ns * until_ns // length_ns
            observed[cell] += until_ns - from_ns
            busy[cell] += due_ns - given_ns
            if is_active:
                active[cell] += until_ns - from_ns
            from_ns, given_ns, cell = until_ns, due_ns, cell + 1

    def _fold(self) -> None:
        self._shift += 1
        self._observed = _pairs(self._observed)
        self._busy = _pairs(self._busy)
        self._active = _pairs(self._active)


def _pairs(cells: array[int]) -> array[int]:
    """The sums of neighbours."""
    if len(cells) % 2:
        cells.append(0)
    return array("q", map(int.__add__, cells[::2], cells[1::2]))
