"""The GPUs of a log, and which of them a row concerns."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from gpumon.core.wording import gpus_named
from gpumon.sources.logs.log_sample import LoggedGpu
from gpumon.sources.logs.table.cell_values import bytes_in
from gpumon.sources.logs.table.column_layout import ColumnLayout, identifying_position
from gpumon.sources.logs.table.column_names import Column

MAX_GPUS: Final = 1_024
"""With more different names the column is something else."""
_NAMED_IN_NOTE: Final = 8
_UNNAMED: Final = "an unnamed owner"


class GpuTable:
    """Gives each GPU its position, in order of appearance."""

    def __init__(self) -> None:
        self.gpus: list[LoggedGpu] = []
        self._owners: list[str] = []
        self._positions: dict[Hashable, int] = {}

    def known(self, key: Hashable) -> int | None:
        """Return the position of a GPU that was seen before."""
        return self._positions.get(key)

    def position(self, key: Hashable, gpu: LoggedGpu, owner: str = "") -> int | None:
        """Return the position of a GPU; ``None`` once there are too many.

        Args:
            key: Identifies it.
            gpu: What the log says of it; kept the first time.
            owner: The host or run it belongs to; ``""``: unknown.
        """
        position = self._positions.get(key)
        if position is None and len(self.gpus) < MAX_GPUS:
            position = self._positions[key] = len(self.gpus)
            self.gpus.append(gpu)
            self._owners.append(owner)
        return position

    def mark_partitioned(self, position: int) -> LoggedGpu:
        """Note that a GPU is MIG-partitioned."""
        self.gpus[position] = gpu = replace(self.gpus[position], mig_enabled=True)
        return gpu

    def partitioned_notes(self, tool: str) -> list[str]:
        """Return a note on MIG-partitioned GPUs whose instances a tool does not show."""
        partitioned = [
            position if gpu.index is None else gpu.index
            for position, gpu in enumerate(self.gpus)
            if gpu.mig_enabled
        ]
        if not partitioned:
            return []
        return [
            f"MIG is on, on {gpus_named(map(str, sorted(partitioned)))}: {tool} shows no "
            "utilisation of the instances, and they are not observed."
        ]

    @property
    def labelled_gpus(self) -> tuple[LoggedGpu, ...]:
        """The GPUs; with their owner in the name if there are several owners."""
        if len(set(self._owners)) < 2:
            return tuple(self.gpus)
        return tuple(
            replace(gpu, index=None, name=f"{gpu.name or 'GPU'} of {owner or _UNNAMED}")
            for gpu, owner in zip(self.gpus, self._owners, strict=True)
        )

    def owner_notes(self) -> list[str]:
        """Return a note on the owner of each GPU, if there are several."""
        if len(set(self._owners)) < 2:
            return []
        owners = [
            f"GPU {position} is {'the one' if gpu.index is None else gpu.index} "
            f"of {owner or _UNNAMED}"
            for position, (gpu, owner) in enumerate(zip(self.gpus, self._owners, strict=True))
        ]
        more = len(owners) - _NAMED_IN_NOTE
        listed = ", ".join(owners[:_NAMED_IN_NOTE]) + (f" and {more} more" if more > 0 else "")
        return [f"The log has GPUs of several owners: {listed}."]


_MAX_ROWS_PER_TICK: Final = 16
TICK_SHARE: Final = 0.25
"""Rows of one tick lie within this share of the time between two ticks."""
_INTEGER: Final = re.compile(r"\d{1,6}", re.ASCII)


class GpuRows:
    """Gives every row the position of its GPU; ``None``: unknown.

    A cell names the GPU, or the n-th row of a tick is that of the n-th GPU.

    Args:
        stamps_ns: Of the log's first rows; empty: it has none.

    Attributes:
        key_column: Position of the identifying cell; ``None``: there is none.
    """

    def __init__(self, layout: ColumnLayout, stamps_ns: Sequence[int], gpus: GpuTable) -> None:
        self._gpus = gpus
        self._layout = layout
        self._host_column = layout.positions.get(Column.HOST)
        self.key_column = identifying_position(layout.positions)
        if self.key_column is None:
            self.key_column = layout.positions.get(Column.HOST)
        if self.key_column is None and not stamps_ns:
            self.key_column = layout.positions.get(Column.NAME)
        count, tick_ns = rows_per_tick(stamps_ns) if self.key_column is None else (1, 0)
        self._rows_per_tick, self._within_tick_ns = count, int(tick_ns * TICK_SHARE)
        self._tick_began_ns: int | None = None
        self._next = 0

    @property
    def is_by_cell(self) -> bool:
        """Whether one cell of a row identifies its GPU, or there is only one GPU."""
        return self._rows_per_tick == 1 and self._host_column is None

    @property
    def note(self) -> str | None:
        """A note for the report."""
        if self._rows_per_tick == 1:
            return None
        return (
            f"No column names the GPUs: the {self._rows_per_tick} rows of one time were taken as "
            f"{self._rows_per_tick} GPUs, in their order."
        )

    def position_of(self, cells: Sequence[str], stamp_ns: int | None) -> int | None:
        if self.key_column is None:
            return self._position_in_tick(cells, stamp_ns)
        name = cells[self.key_column].strip()
        host = "" if self._host_column is None else cells[self._host_column].strip()
        key = (host, name) if host else name  # two hosts have the same indices
        position = self._gpus.known(key)
        if position is not None or not name or name.startswith("["):
            return position
        return self._gpus.position(key, _described(self._layout, cells), host)

    def _position_in_tick(self, cells: Sequence[str], stamp_ns: int | None) -> int | None:
        if self._rows_per_tick > 1 and stamp_ns is not None:
            began_ns = self._tick_began_ns
            if began_ns is None or abs(stamp_ns - began_ns) > self._within_tick_ns:
                self._tick_began_ns, self._next = stamp_ns, 0
        nth = self._next
        if nth >= self._rows_per_tick:
            return None
        self._next += self._rows_per_tick > 1
        if nth < len(self._gpus.gpus):
            return nth
        return self._gpus.position(nth, _described(self._layout, cells))


def rows_per_tick(stamps_ns: Sequence[int]) -> tuple[int, int]:
    """Return how many rows every tick has, and the shortest time between two ticks, ns.

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
        mig_enabled=_text(layout, cells, Column.MIG) == "Enabled",
        bus_id=_text(layout, cells, Column.BUS_ID),
    )


def _text(layout: ColumnLayout, cells: Sequence[str], column: Column) -> str | None:
    if column not in layout.positions:
        return None
    text = cells[layout.positions[column]].strip()
    return text if text and not text.startswith("[") else None
