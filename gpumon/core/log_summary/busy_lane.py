"""Sums how busy one GPU was in a bounded number of cells of equal width."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from gpumon.core.accounting.sample_columns import ACTIVE, Levels, SampleColumns
from gpumon.core.sample import BusySample
from gpumon.core.settings.detector import DEFAULT_SETTINGS, DetectorSettings

MAX_CELLS: Final = 2_000
"""About one and a half times the columns of a picture; folding halves them at worst."""


@dataclass(frozen=True, slots=True)
class Lane:
    """One GPU's time in cells of equal width.

    Cell ``n`` covers ``cell_ns`` from ``start_ns + n * cell_ns`` on; the last one may reach beyond
    ``end_ns``.

    Attributes:
        start_ns: Start of the first sample.
        end_ns: End of the newest sample.
        observed_ns: Time in each cell that samples cover.
        busy_ns: Busy time in each cell.
        active_ns: Time in each cell that active samples cover.
    """

    start_ns: int = 0
    end_ns: int = 0
    cell_ns: int = 1
    observed_ns: tuple[int, ...] = ()
    busy_ns: tuple[int, ...] = ()
    active_ns: tuple[int, ...] = ()


class BusyLane:
    """Sums the samples of one GPU, oldest first, in a bounded number of cells.

    It keeps the running sums at the end of each cell; a cell is the growth between two. When the
    log outgrows the cells, every other sum is dropped, which joins neighbours without loss. A
    sample that lies in several cells is split between them in integer nanoseconds.

    Args:
        limit: Most cells kept, at least 2.
        settings: From which ratio on a sample is active.
    """

    def __init__(
        self, limit: int = MAX_CELLS, settings: DetectorSettings = DEFAULT_SETTINGS
    ) -> None:
        self._limit = max(2, limit)
        self._levels = Levels(settings)
        self._shift = 0  # a cell is 2 ** shift ns wide
        self._start_ns: int | None = None
        self._end_ns = self._cell_end_ns = -1
        self._observed_ns = self._busy_ns = self._active_ns = 0
        self._observed, self._busy, self._active = array("q"), array("q"), array("q")

    def observe(self, samples: Sequence[BusySample]) -> None:
        """Add samples; those that ``GpuLedger`` rejects are left out here, too."""
        self.observe_columns(SampleColumns.of(samples, self._levels, self._end_ns)[0])

    def observe_columns(self, columns: SampleColumns) -> None:
        """Add samples that come after those before."""
        for begin, end in columns.stretches:
            is_active = columns.levels[begin] & ACTIVE != 0
            while begin < end:
                # All samples up to the end of the cell, or the one that crosses it.
                upto = bisect_right(columns.ends_ns, self._cell_end_ns, begin, end)
                upto = max(upto, begin + 1)
                start_ns, self._end_ns = columns.starts_ns[begin], columns.ends_ns[upto - 1]
                length_ns, busy_ns = self._end_ns - start_ns, columns.busy_between(begin, upto)
                active_ns = length_ns if is_active else 0
                if self._end_ns > self._cell_end_ns:
                    self._close_cells(start_ns, length_ns, busy_ns, active_ns)
                self._observed_ns += length_ns
                self._busy_ns += busy_ns
                self._active_ns += active_ns
                begin = upto

    def snapshot(self) -> Lane:
        """The lane so far."""
        if self._start_ns is None:
            return Lane()
        return Lane(
            start_ns=self._start_ns,
            end_ns=self._end_ns,
            cell_ns=1 << self._shift,
            observed_ns=_growth([*self._observed, self._observed_ns]),
            busy_ns=_growth([*self._busy, self._busy_ns]),
            active_ns=_growth([*self._active, self._active_ns]),
        )

    def _close_cells(self, start_ns: int, length_ns: int, busy_ns: int, active_ns: int) -> None:
        """Keep the sums at the end of each cell that ends within a sample."""
        end_ns = start_ns + length_ns
        if self._start_ns is None:
            self._start_ns = start_ns
        while end_ns - self._start_ns > self._limit << self._shift:
            self._shift += 1
            self._observed = self._observed[1::2]
            self._busy, self._active = self._busy[1::2], self._active[1::2]
        width_ns = 1 << self._shift
        cell_end_ns = self._start_ns + (len(self._observed) + 1) * width_ns
        parts_ns = [max(0, over_ns - start_ns) for over_ns in range(cell_end_ns, end_ns, width_ns)]
        for sums, before_ns, gained_ns in (
            (self._observed, self._observed_ns, length_ns),
            (self._busy, self._busy_ns, busy_ns),
            (self._active, self._active_ns, active_ns),
        ):
            sums.extend([before_ns + gained_ns * part_ns // length_ns for part_ns in parts_ns])
        self._cell_end_ns = cell_end_ns + len(parts_ns) * width_ns


def _growth(sums: Sequence[int]) -> tuple[int, ...]:
    return tuple(after - before for before, after in pairwise((0, *sums)))
