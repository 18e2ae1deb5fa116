"""Which GPU a row speaks of: by a column that names it, or by the order of the rows in a tick.

The GPUs of a log, told apart by whatever it calls them.

GPUs of several hosts or runs in one log, which may have the same index.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final, Protocol

from gpumon.sources.logs.log_sample import LoggedGpu
from gpumon.sources.logs.table.cells import MemoryCells
from gpumon.sources.logs.table.column_names import Column
from gpumon.sources.logs.table.columns import ColumnLayout

MAX_GPUS: Final = 1_024
"""More different names than that are no GPUs: the column is something else."""


class GpuTable:
    """Gives each GPU its position, in order of appearance.

    Attributes:
        gpus: What is known of them; ``LogFacts.gpus`` in the end.
    """

    def __init__(self) -> None:
        self.gpus: list[LoggedGpu] = []
        self._positions: dict[Hashable, int] = {}

    def position(self, key: Hashable, gpu: LoggedGpu) -> int | None:
        """Where the GPU is in ``gpus``; ``None`` once there are too many to be GPUs.

        Args:
            key: What tells it from the others.
            gpu: What the log says of it; kept the first time it is seen.
        """
        position = self._positions.get(key)
        if position is None and len(self.gpus) < MAX_GPUS:
            position = self._positions[key] = len(self.gpus)
            self.gpus.append(gpu)
        return position


_MAX_ROWS_PER_TICK: Final = 16
_TICK_SHARE: Final = 0.25
"""Rows of one tick lie within this share of the time between two ticks."""
_INTEGER: Final = re.compile(r"\d{1,6}", re.ASCII)


class GpuRows(Protocol):
    """Gives every row the position of its GPU.

    Attributes:
        gpus: Those there are, by position.
        known: Positions by the cell that names the GPU, as written.
        key_column: Where that cell is; ``None``: no column tells GPUs apart.
        is_alone: Whether every row speaks of the first GPU.
    """

    gpus: list[LoggedGpu]
    known: dict[str, int]
    key_column: int | None
    is_alone: bool

    def position_of(self, cells: Sequence[str], stamp_ns: int | None) -> int | None:
        """Position of the row's GPU in ``gpus``; ``None``: the row belongs to nobody."""
        ...

    def relayout(self, layout: ColumnLayout) -> None:
        """The columns have moved: a new header was seen."""
        ...


class NamedRows:
    """Rows that say which GPU they speak of."""

    def __init__(self, layout: ColumnLayout, key_column: int) -> None:
        self.gpus: list[LoggedGpu] = []
        self.known: dict[str, int] = {}
        self.key_column: int | None = key_column
        self.is_alone = False
        self._layout = layout
        self._is_by_name = key_column == layout.positions.get(Column.NAME)

    def position_of(self, cells: Sequence[str], stamp_ns: int | None) -> int | None:
        if self.key_column is None:
            return 0 if len(self.gpus) == 1 else None
        key = cells[self.key_column]
        position = self.known.get(key)
        return position if position is not None else self._new(key, cells)

    def relayout(self, layout: ColumnLayout) -> None:
        self._layout = layout
        self.key_column = layout.identifying_position()
        if self.key_column is None and self._is_by_name:
            self.key_column = layout.positions.get(Column.NAME)

    def _new(self, key: str, cells: Sequence[str]) -> int | None:
        bare = key.strip()
        if not bare or bare.startswith("[") or len(self.known) >= 2 * MAX_GPUS:
            return None
        # The same name with other blanks around it, as the last cell of a line has.
        position = self.known.get(bare)
        if position is None:
            if len(self.gpus) >= MAX_GPUS:
                return None
            position = len(self.gpus)
            self.gpus.append(_described(self._layout, cells))
        self.known[bare] = self.known[key] = position
        return position


class OrderedRows:
    """Rows that do not say it: the n-th row of a tick is the n-th GPU."""

    def __init__(self, layout: ColumnLayout, rows_per_tick: int, tick_ns: int) -> None:
        self.gpus: list[LoggedGpu] = []
        self.known: dict[str, int] = {}
        self.key_column: int | None = None
        self.is_alone = False
        self._layout = layout
        self._rows_per_tick = rows_per_tick
        self._within_tick_ns = int(tick_ns * _TICK_SHARE)
        self._tick_began_ns: int | None = None
        self._next = 0

    def position_of(self, cells: Sequence[str], stamp_ns: int | None) -> int | None:
        if self._rows_per_tick > 1 and stamp_ns is not None:
            began_ns = self._tick_began_ns
            if began_ns is None or abs(stamp_ns - began_ns) > self._within_tick_ns:
                self._tick_began_ns, self._next = stamp_ns, 0
        position = self._next
        if position >= self._rows_per_tick:
            return None
        if self._rows_per_tick > 1:
            self._next += 1
        if position >= len(self.gpus):
            self.gpus.append(_described(self._layout, cells))
            self.is_alone = self._rows_per_tick == 1
        return position

    def relayout(self, layout: ColumnLayout) -> None:
        self._layout = layout

    @property
    def note(self) -> str | None:
        """What the report has to say of it."""
        if self._rows_per_tick == 1:
            return None
        return (
            f"No column names the GPUs: the {self._rows_per_tick} rows of a moment were taken for "
            f"{self._rows_per_tick} GPUs, in their order."
        )


def rows_of(layout: ColumnLayout, stamps_ns: Sequence[int]) -> GpuRows:
    """The way to tell GPUs apart in a log.

    Args:
        layout: Its columns.
        stamps_ns: Stamps of its first rows, in file order; empty if it has none.
    """
    key_column = layout.identifying_position()
    if key_column is not None:
        return NamedRows(layout, key_column)
    count, tick_ns = rows_per_tick(stamps_ns)
    if count == 1 and not stamps_ns and Column.NAME in layout.positions:
        return NamedRows(layout, layout.positions[Column.NAME])
    return OrderedRows(layout, count, tick_ns)


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
        if 0 <= within_ns < _TICK_SHARE * between_ns:
            return count, between_ns
    return 1, 0


def _described(layout: ColumnLayout, cells: Sequence[str]) -> LoggedGpu:
    index = _text(layout, cells, Column.INDEX)
    total = _text(layout, cells, Column.MEMORY_TOTAL)
    return LoggedGpu(
        index=int(index) if index and _INTEGER.fullmatch(index) else None,
        uuid=_text(layout, cells, Column.UUID),
        name=_text(layout, cells, Column.NAME),
        memory_bytes=MemoryCells(layout.memory_unit_bytes[1]).bytes_of(total) if total else None,
    )


def _text(layout: ColumnLayout, cells: Sequence[str], column: Column) -> str | None:
    if column not in layout.positions:
        return None
    text = cells[layout.positions[column]].strip()
    return text if text and not text.startswith("[") else None


_NAMED_IN_NOTE: Final = 8


def told_apart(
    gpus: Sequence[LoggedGpu], owners: Sequence[str]
) -> tuple[tuple[LoggedGpu, ...], tuple[str, ...]]:
    """The GPUs under numbers and names that tell them apart, and a sentence that says so.

    Args:
        gpus: As the log knows them.
        owners: The host or run of each, in the same order; ``""``: the log does not say.

    Nothing changes where all of them have the same owner.
    """
    if len(set(owners)) < 2:
        return tuple(gpus), ()
    renamed = tuple(
        replace(gpu, index=None, name=_name(gpu, owner))
        for gpu, owner in zip(gpus, owners, strict=True)
    )
    said = [
        f"GPU {position} is {_of(gpu, owner)}"
        for position, (gpu, owner) in enumerate(zip(gpus, owners, strict=True))
    ]
    more = len(said) - _NAMED_IN_NOTE
    listed = ", ".join(said[:_NAMED_IN_NOTE]) + (f" and {more} more" if more > 0 else "")
    return renamed, (f"The log speaks of GPUs in several places: {listed}.",)


def _name(gpu: LoggedGpu, owner: str) -> str:
    return f"{gpu.name or 'GPU'} of {owner or 'nobody named'}"


def _of(gpu: LoggedGpu, owner: str) -> str:
    which = "the one" if gpu.index is None else str(gpu.index)
    return f"{which} of {owner or 'nobody named'}"
