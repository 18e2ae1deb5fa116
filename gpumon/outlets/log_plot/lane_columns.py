"""A lane resampled to the columns of a picture, and the stretches that are marked in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, groupby, pairwise
from typing import NamedTuple

from gpumon.core.busy_lane import Lane
from gpumon.core.intervals import Interval


class Column(NamedTuple):
    """One column's shares of its width, 0 to 1.

    Attributes:
        observed: Covered by samples.
        busy: Busy.
        lost: Idle in stretches that were starved or are suspected.
    """

    observed: float
    busy: float
    lost: float


def columns_of(lane: Lane, lost: Sequence[Interval], span: Interval, count: int) -> list[Column]:
    """The lane in ``count`` columns of equal width over ``span``.

    Args:
        lane: How busy the GPU was.
        lost: Stretches to mark, disjoint, oldest first.
        span: What the columns cover together; it spans time.
        count: How many.
    """
    edges = [span.start_ns + span.duration_ns * number / count for number in range(count + 1)]
    width_ns = span.duration_ns / count
    sums = (
        _up_to(edges, lane, lane.observed_ns),
        _up_to(edges, lane, lane.busy_ns),
        _covered_up_to(edges, lost),
    )
    shares = ([(after - before) / width_ns for before, after in pairwise(row)] for row in sums)
    return [
        Column(observed, busy, min(marked, max(0.0, observed - busy)))
        for observed, busy, marked in zip(*shares, strict=True)
    ]


def unobserved_runs(columns: Sequence[Column]) -> Iterator[tuple[int, int]]:
    """Columns of which less than half was observed, as first and last + 1 of each run."""
    at = 0
    for is_seen, run in groupby(columns, key=lambda column: column.observed >= 0.5):
        length = len(list(run))
        if not is_seen:
            yield at, at + length
        at += length


def out_of_use(lane: Lane, patience_ns: int) -> Iterator[Interval]:
    """Stretches in which no job was on: before the first active sample, after the last, and long.

    Args:
        lane: How busy the GPU was.
        patience_ns: How long a job may be inactive before it is over.
    """
    at_ns = lane.start_ns
    for is_active, run in groupby(lane.active_ns, key=bool):
        start_ns, at_ns = at_ns, min(at_ns + lane.cell_ns * len(list(run)), lane.end_ns)
        at_edge = start_ns == lane.start_ns or at_ns == lane.end_ns
        if not is_active and (at_edge or at_ns - start_ns > patience_ns):
            yield Interval(start_ns, at_ns)


def close_together(intervals: Iterable[Interval], gap_ns: int) -> Iterator[Interval]:
    """The same stretches, those closer to each other than ``gap_ns`` as one."""
    last: Interval | None = None
    for interval in intervals:
        if last is not None and interval.start_ns - last.end_ns <= gap_ns:
            last = Interval(last.start_ns, max(last.end_ns, interval.end_ns))
            continue
        if last is not None:
            yield last
        last = interval
    if last is not None:
        yield last


def _up_to(edges: Sequence[float], lane: Lane, cells_ns: Sequence[int]) -> list[float]:
    """The sum of all cells before each edge; a cell with an edge in it counts in part."""
    sums = [0, *accumulate(cells_ns)]
    found: list[float] = []
    for edge in edges:
        place = (edge - lane.start_ns) / lane.cell_ns
        cell = int(place)
        if place <= 0.0:
            found.append(0.0)
        elif cell >= len(cells_ns):
            found.append(float(sums[-1]))
        elif cell == len(cells_ns) - 1:  # what the last cell holds lies before the lane's end
            full = (lane.end_ns - lane.start_ns) / lane.cell_ns - cell
            found.append(sums[cell] + cells_ns[cell] * min(1.0, (place - cell) / full))
        else:
            found.append(sums[cell] + cells_ns[cell] * (place - cell))
    return found


def _covered_up_to(edges: Sequence[float], intervals: Sequence[Interval]) -> list[float]:
    """How much of the stretches lies before each edge."""
    found: list[float] = []
    done_ns, position = 0, 0
    for edge in edges:
        while position < len(intervals) and intervals[position].end_ns <= edge:
            done_ns += intervals[position].duration_ns
            position += 1
        part = 0.0
        if position < len(intervals):
            part = max(0.0, edge - intervals[position].start_ns)
        found.append(done_ns + part)
    return found
