"""Snapshots by time in a bounded number: the older they are, the further apart."""

from __future__ import annotations

import copyreg
import io
import pickle
import struct
import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeVar

_T = TypeVar("_T")


class SnapshotStore(Generic[_T]):
    """Keeps the newest snapshots, and every n-th, n²-th, … of those that are older.

    Level k has the newest of every n^k-th snapshot, so it reaches n times as far back as the one
    below it.

    Args:
        per_level: How many snapshots a level has at most.
        every: The n above.
    """

    def __init__(self, per_level: int, every: int) -> None:
        self._per_level, self._every = per_level, every
        self._levels = [_Level[_T]()]
        self._count = 0
        self._newest: tuple[int, _T] | None = None

    @property
    def oldest_ns(self) -> int | None:
        return self._levels[-1].stamps_ns[0] if self._count else None

    @property
    def newest_ns(self) -> int:
        """Time of the newest snapshot; -1 before the first."""
        return -1 if self._newest is None else self._newest[0]

    def add(self, at_ns: int, snapshot: _T) -> None:
        """Keep a snapshot; ``at_ns`` is no earlier than that of the one before."""
        self._newest = at_ns, snapshot
        for number, level in enumerate([*self._levels]):
            if self._count % self._every**number:
                break
            level.stamps_ns.append(at_ns)
            level.snapshots.append(snapshot)
            if len(level.snapshots) > self._per_level:
                if number + 1 == len(self._levels):
                    self._levels.append(level.every_nth(self._every))
                del level.stamps_ns[0], level.snapshots[0]
        self._count += 1

    def since(self, start_ns: int) -> list[tuple[int, _T]]:
        """Times and snapshots from the last one at or before ``start_ns`` to the newest.

        They are those of the finest level that reaches back so far; if none does, of the coarsest.
        """
        if self._newest is None:
            return []
        reaching = (level for level in self._levels if level.stamps_ns[0] <= start_ns)
        level = next(reaching, self._levels[-1])
        first = max(0, bisect_right(level.stamps_ns, start_ns) - 1)
        found = [*zip(level.stamps_ns[first:], level.snapshots[first:], strict=True)]
        return found if found and found[-1][1] is self._newest[1] else [*found, self._newest]


class _Level(Generic[_T]):
    def __init__(self) -> None:
        self.stamps_ns = array("q")
        self.snapshots: list[_T] = []

    def every_nth(self, n: int) -> _Level[_T]:
        level = _Level[_T]()
        level.stamps_ns, level.snapshots = self.stamps_ns[::n], self.snapshots[::n]
        return level


MAX_CELLS: Final = 512
"""Most cells of a stretch of time; a long one has at least a quarter as many."""


class Cells(NamedTuple):
    """A stretch of time in cells of equal width, and by how much each counter grew in each.

    Attributes:
        end_ns: End of the last one, which may be narrower than the others.
        cell_ns: Width of a cell.
        grown: For each counter, by how much it grew in each cell.
    """

    start_ns: int
    end_ns: int
    cell_ns: int
    grown: tuple[tuple[int, ...], ...]


class CounterHistory:
    """How counters grew over any stretch of time up to now, in a bounded number of cells.

    Args:
        at_ns: Time of the first snapshot.
        counters: Values of the counters at that time.
    """

    def __init__(self, at_ns: int, counters: Sequence[int]) -> None:
        self._row = struct.Struct(f"{len(counters)}q")  # a third of the memory of a tuple
        self._store = SnapshotStore[bytes](MAX_CELLS, 4)
        self.add(at_ns, counters)

    @property
    def newest_ns(self) -> int:
        return self._store.newest_ns

    def add(self, at_ns: int, counters: Sequence[int]) -> None:
        self._store.add(at_ns, self._row.pack(*counters))

    def cells(self, start_ns: int, end_ns: int) -> Cells | None:
        """How the counters grew between two times; ``None``: nothing is known of that time.

        Between two snapshots a counter is taken to grow evenly.
        """
        found = self._store.since(start_ns)
        stamps_ns = [at_ns for at_ns, _ in found]
        columns = [*zip(*(self._row.unpack(row) for _, row in found), strict=True)]
        start_ns, end_ns = max(start_ns, stamps_ns[0]), min(end_ns, stamps_ns[-1])
        if start_ns >= end_ns:
            return None
        between = bisect_left(stamps_ns, end_ns) - bisect_right(stamps_ns, start_ns) + 1
        cell_ns = -(-(end_ns - start_ns) // between)
        edges_ns = [*range(start_ns, end_ns, cell_ns), end_ns]
        grown = tuple(_growth(edges_ns, stamps_ns, column) for column in columns)
        return Cells(start_ns, end_ns, cell_ns, grown)


def _growth(
    edges_ns: Sequence[int], stamps_ns: Sequence[int], sums: Sequence[int]
) -> tuple[int, ...]:
    at_edges = [_sum_at(edge_ns, stamps_ns, sums) for edge_ns in edges_ns]
    return tuple(after - before for before, after in pairwise(at_edges))


def _sum_at(at_ns: int, stamps_ns: Sequence[int], sums: Sequence[int]) -> int:
    after = bisect_right(stamps_ns, at_ns)
    before = after - 1
    if after == len(stamps_ns):
        return sums[before]
    passed_ns, length_ns = at_ns - stamps_ns[before], stamps_ns[after] - stamps_ns[before]
    return sums[before] + (sums[after] - sums[before]) * passed_ns // length_ns


class _Pickler(pickle.Pickler):
    """Writes read-only mappings, which pickle refuses, as dictionaries."""

    dispatch_table = {  # noqa: RUF012 - as pickle names it
        **copyreg.dispatch_table,
        MappingProxyType: lambda mapping: (dict, (dict(mapping),)),
    }


class Packer:
    """Packs similar values into bytes: only what differs from the first one takes room.

    One thread may pack, and any unpack what was packed before. Only what this process packed
    itself is unpacked.
    """

    def __init__(self) -> None:
        self._first = b""

    def pack(self, value: object) -> bytes:
        """A value of core's types as bytes. Read-only mappings in it become dictionaries."""
        file = io.BytesIO()
        _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(value)
        raw = file.getvalue()
        self._first = self._first or raw
        # Level 1: the highest takes three times as long and saves a tenth more.
        deflater = zlib.compressobj(1, zdict=self._first)
        return deflater.compress(raw) + deflater.flush()

    def unpack(self, data: bytes) -> Any:  # noqa: ANN401 - whatever was packed
        """What ``pack`` was given: an equal value, with the same members of enumerations."""
        return pickle.loads(zlib.decompressobj(zdict=self._first).decompress(data))
