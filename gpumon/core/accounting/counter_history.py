"""How counters grew over any stretch of time up to now, in a bounded number of cells."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

MOST_NOTES: Final = 512
"""Of one level: a stretch of time has at most so many cells, and a quarter of them at least."""
_FACTOR: Final = 4


class Cells(NamedTuple):
    """A stretch of time in cells of equal width, and by how much each counter grew in each.

    Attributes:
        start_ns: Where the first cell begins.
        end_ns: Where the last one ends; it may be narrower than the others.
        cell_ns: Width of a cell.
        grown: Of each counter, by how much it grew in each cell.
    """

    start_ns: int
    end_ns: int
    cell_ns: int
    grown: tuple[tuple[int, ...], ...]


class CounterHistory:
    """Notes what counters are; of what is long ago, every fourth note, or sixteenth, is kept.

    Each level has the newest of its notes, and the next has every fourth of them all, so that
    it goes back four times as far. A month at one note a second has seven levels.

    Args:
        at_ns: When they were what they are at first.
        counters: What they were then.
    """

    def __init__(self, at_ns: int, counters: Sequence[int]) -> None:
        self._width = 1 + len(counters)  # of a row: its stamp, and a number for each counter
        self._levels = [array("q")]
        self._count = 0
        self._newest = array("q")
        self.note(at_ns, counters)

    @property
    def newest_ns(self) -> int:
        """Stamp of the newest note."""
        return self._newest[0]

    def note(self, at_ns: int, counters: Iterable[int]) -> None:
        """Note what they are now; ``at_ns`` is no earlier than at the note before."""
        self._newest = array("q", (at_ns, *counters))
        for number, level in enumerate(tuple(self._levels)):
            if self._count % _FACTOR**number:
                break
            level.extend(self._newest)
            if len(level) > MOST_NOTES * self._width:
                if number + 1 == len(self._levels):
                    self._levels.append(self._every_fourth(level))
                del level[: self._width]
        self._count += 1

    def cells(self, start_ns: int, end_ns: int) -> Cells | None:
        """What happened between two instants; ``None``: nothing is noted of that time.

        Between two notes a counter grows evenly.
        """
        reaching = (level for level in self._levels if level[0] <= start_ns)
        level = next(reaching, self._levels[-1])
        stamps_ns, *sums = (
            [*level[column :: self._width], self._newest[column]] for column in range(self._width)
        )
        start_ns, end_ns = max(start_ns, stamps_ns[0]), min(end_ns, stamps_ns[-1])
        if start_ns >= end_ns:
            return None
        noted = bisect_left(stamps_ns, end_ns) - bisect_right(stamps_ns, start_ns) + 1
        cell_ns = -(-(end_ns - start_ns) // noted)
        edges_ns = [*range(start_ns, end_ns, cell_ns), end_ns]
        grown = tuple(_growth(edges_ns, stamps_ns, column) for column in sums)
        return Cells(start_ns, end_ns, cell_ns, grown)

    def _every_fourth(self, level: array[int]) -> array[int]:
        rows = (level[at : at + self._width] for at in range(0, len(level), self._width * _FACTOR))
        return array("q", [number for row in rows for number in row])


def _growth(
    edges_ns: Sequence[int], stamps_ns: Sequence[int], sums: Sequence[int]
) -> tuple[int, ...]:
    """By how much a counter grew from each edge to the next."""
    at_edges = [_sum_at(edge_ns, stamps_ns, sums) for edge_ns in edges_ns]
    return tuple(after - before for before, after in pairwise(at_edges))


def _sum_at(at_ns: int, stamps_ns: Sequence[int], sums: Sequence[int]) -> int:
    after = bisect_right(stamps_ns, at_ns)
    before = after - 1
    if after == len(stamps_ns):
        return sums[before]
    passed_ns, whole_ns = at_ns - stamps_ns[before], stamps_ns[after] - stamps_ns[before]
    return sums[before] + (sums[after] - sums[before]) * passed_ns // whole_ns
