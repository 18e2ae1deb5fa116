"""Which GPU a row speaks of: by what names it, or by the order of the rows in a tick."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from gpumon.sources.logs.log_sample import LoggedGpu
from gpumon.sources.logs.table.cell_values import bytes_in
from gpumon.sources.logs.table.column_layout import ColumnLayout, identifying_position
from gpumon.sources.logs.table.gpu_table import GpuTable
from gpumon.sources.logs.table.headings import Column

_MAX_ROWS_PER_TICK: Final = 16
TICK_SHARE: Final = 0.25
"""Rows of one tick lie within this share of the time between two ticks."""
_INTEGER: Final = re.compile(r"\d{1,6}", re.ASCII)


class _NamedRows:
    """Rows that say which GPU they speak of."""

    note: str | None = None
    """What the report has to say of it."""

    def __init__(self, layout: ColumnLayout, key_column: int, gpus: GpuTable) -> None:
        self._gpus = gpus
        self._layout = layout
        self._key_column: int | None = key_column
        self._is_by_name = key_column == layout.positions.get(Column.NAME)

    @property
    def is_by_cell(self) -> bool:
        """Whether the cells of a row tell its GPU, without its time."""
        return self._key_column is not None

    def position_of(self, cells: Sequence[str], stamp_ns: int | None) -> int | None:
        if self._key_column is None:
            return 0 if len(self._gpus.gpus) == 1 else None
        key = cells[self._key_column].strip()
        position = self._gpus.known(key)
        if position is not None or not key or key.startswith("["):
            return position
        return self._gpus.position(key, _described(self._layout, cells))

    def relayout(self, layout: ColumnLayout) -> None:
        """The columns have moved: a new header was seen."""
        self._layout = layout
        self._key_column = identifying_position(layout.positions)
        if self._key_column is None and self._is_by_name:
            self._key_column = layout.positions.get(Column.NAME)


class _OrderedRows:
    """Rows that do not say it: the n-th row of a tick is the n-th GPU."""

    def __init__(
        self, layout: ColumnLayout, rows_per_tick: int, tick_ns: int, gpus: GpuTable
    ) -> None:
        self._gpus = gpus
        self._layout = layout
        self._rows_per_tick = rows_per_tick
        self._within_tick_ns = int(tick_ns * TICK_SHARE)
        self._tick_began_ns: int | None = None
        self._next = 0

    @property
    def is_by_cell(self) -> bool:
        return self._rows_per_tick == 1

    @property
    def note(self) -> str | None:
        if self._rows_per_tick == 1:
            return None
        return (
            f"No column names the GPUs: the {self._rows_per_tick} rows of a moment were taken for "
            f"{self._rows_per_tick} GPUs, in their order."
        )

    def position_of(self, cells: Sequence[str], stamp_ns: int | None) -> int | None:
        if self._rows_per_tick > 1 and stamp_ns is not None:
            began_ns = self._tick_began_ns
            if began_ns is None or abs(stamp_ns - began_ns) > self._within_tick_ns:
                self._tick_began_ns, self._next = stamp_ns, 0
        nth = self._next
        if nth >= self._rows_per_tick:
            return None
        if self._rows_per_tick > 1:
            self._next += 1
        if nth < len(self._gpus.gpus):
            return nth
        return self._gpus.position(nth, _described(self._layout, cells))

    def relayout(self, layout: ColumnLayout) -> None:
        self._layout = layout


GpuRows = _NamedRows | _OrderedRows
"""Gives every row the position of its GPU; ``None``: the row belongs to nobody."""


def rows_of(layout: ColumnLayout, stamps_ns: Sequence[int], gpus: GpuTable) -> GpuRows:
    """The way to tell GPUs apart in a log, by the stamps of its first rows if it has any."""
    key_column = identifying_position(layout.positions)
    if key_column is not None:
        return _NamedRows(layout, key_column, gpus)
    count, tick_ns = rows_per_tick(stamps_ns)
    if count == 1 and not stamps_ns and Column.NAME in layout.positions:
        return _NamedRows(layout, layout.positions[Column.NAME], gpus)
    return _OrderedRows(layout, count, tick_ns, gpus)


def rows_per_tick(stamps_ns: Sequence[int]) -> tuple[int, int]:
    """How many rows every tick has, and the shortest time between two ticks, ns.

    >>> rows_per_tick([0, 1, 1000, 1001, 2000, 2001])
    (2, 1000)
    >>> rows_per_tick([0, 1000, 2000, 3000, 4000, 5000])
    (1, 0)
    """
    for count in range(2, _MAX_ROWS_PER_TICK + 1):
        ticks = [stamps_ns[at : at + count] for at in range(0, len(stamps_ns) - count + 1, count)]
        if len(ticks) < 3:
            break
        between_ns = min(b[0] - a[0] for a, b in pairwise(ticks))
        within_ns = max(tick[-1] - tick[0] for tick in ticks)
        if 0 <= within_ns < TICK_SHARE * between_ns:
            return count, between_ns
    return 1, 0


def _described(layout: ColumnLayout, cells: Sequence[str]) -> LoggedGpu:
    index = _text(layout, cells, Column.INDEX)
    total = _text(layout, cells, Column.MEMORY_TOTAL)
    return LoggedGpu(
        index=int(index) if index and _INTEGER.fullmatch(index) else None,
        uuid=_text(layout, cells, Column.UUID),
        name=_text(layout, cells, Column.NAME),
        memory_bytes=bytes_in(total or "", layout.memory_unit_bytes[1]),
    )


def _text(layout: ColumnLayout, cells: Sequence[str], column: Column) -> str | None:
    if column not in layout.positions:
        return None
    text = cells[layout.positions[column]].strip()
    return text if text and not text.startswith("[") else None
