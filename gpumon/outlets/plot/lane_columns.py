"""Lanes in the columns of a picture, and the stretches that are marked in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, groupby
from operator import add
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpumon.core.accounting.intervals import Interval
from gpumon.core.log_summary.busy_lane import Lane
from gpumon.core.phase import TrainingPhase
from gpumon.core.report.lanes import RunLane

Shares = npt.NDArray[np.float64]


class LaneColumns(NamedTuple):
    """Of each column, oldest first, shares of its width, 0 to 1.

    Attributes:
        observed: Covered by samples.
        busy: Busy.
        lost: Idle in stretches that were starved or are suspected.
    """

    observed: Shares
    busy: Shares
    lost: Shares


def columns_of(lane: Lane, lost: Sequence[Interval], span: Interval, count: int) -> LaneColumns:
    """The lane in ``count`` columns of equal width over ``span``, which spans time.

    ``lost`` are stretches to mark, disjoint, oldest first.
    """
    edges = np.linspace(span.start_ns, span.end_ns, count + 1)
    width_ns = span.duration_ns / count
    observed = np.diff(_cells_up_to(edges, lane, lane.observed_ns)) / width_ns
    busy = np.diff(_cells_up_to(edges, lane, lane.busy_ns)) / width_ns
    marked = np.diff(_covered_up_to(edges, lost)) / width_ns
    return LaneColumns(observed, busy, np.minimum(marked, np.maximum(0.0, observed - busy)))


def unobserved_runs(columns: LaneColumns, longer_than: float = 0) -> Iterator[tuple[int, int]]:
    """Columns of which less than half was observed, as first and last + 1 of each longer run."""
    at = 0
    for is_seen, run in groupby(columns.observed >= 0.5):
        length = len(list(run))
        if not is_seen and length > longer_than:
            yield at, at + length
        at += length


def out_of_use(lane: Lane, patience_ns: int) -> Iterator[Interval]:
    """Stretches in which no job was on: before the first active sample, after the last, and long.

    A job is over once it was inactive for longer than ``patience_ns``.
    """
    at_ns = lane.start_ns
    for is_active, run in groupby(lane.active_ns, key=bool):
        start_ns, at_ns = at_ns, min(at_ns + lane.cell_ns * len(list(run)), lane.end_ns)
        at_edge = start_ns == lane.start_ns or at_ns == lane.end_ns
        if not is_active and (at_edge or at_ns - start_ns > patience_ns):
            yield Interval(start_ns, at_ns)


def in_training(lane: RunLane) -> Iterator[Interval]:
    """Stretches in which a run was in a phase that says something of its GPUs."""
    whole_ns = [*map(sum, zip(*lane.phase_ns.values(), strict=True))]
    silent_ns = [0] * len(whole_ns)
    for phase in (TrainingPhase.START_UP, TrainingPhase.OTHER):
        told_ns = lane.phase_ns.get(phase, silent_ns)
        silent_ns = [*map(add, silent_ns, told_ns)]
    starts_ns = range(lane.start_ns, lane.end_ns, lane.cell_ns)
    for start_ns, cell_ns, cell_silent_ns in zip(starts_ns, whole_ns, silent_ns, strict=False):
        if 2 * cell_silent_ns < cell_ns:
            yield Interval(start_ns, min(start_ns + lane.cell_ns, lane.end_ns))


def outside(intervals: Iterable[Interval], others: Sequence[Interval]) -> Iterator[Interval]:
    """What of the stretches lies in no other; of both, the oldest first and disjoint."""
    for interval in intervals:
        at_ns = interval.start_ns
        for other in others:
            if other.start_ns > at_ns:
                yield Interval(at_ns, min(other.start_ns, interval.end_ns))
            at_ns = max(at_ns, other.end_ns)
            if at_ns >= interval.end_ns:
                break
        if at_ns < interval.end_ns:
            yield Interval(at_ns, interval.end_ns)


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


def _cells_up_to(edges: Shares, lane: Lane, cells_ns: Sequence[int]) -> Shares:
    """The sum of all cells before each edge; a cell with an edge in it counts in part."""
    starts = [lane.start_ns + lane.cell_ns * number for number in range(len(cells_ns))]
    # What the last cell holds lies before the lane's end.
    return np.interp(edges, [*starts, lane.end_ns], [0, *accumulate(cells_ns)])


def _covered_up_to(edges: Shares, intervals: Sequence[Interval]) -> Shares:
    if not intervals:
        return np.zeros_like(edges)
    bounds = [ns for interval in intervals for ns in (interval.start_ns, interval.end_ns)]
    sums = accumulate(ns for interval in intervals for ns in (0, interval.duration_ns))
    return np.interp(edges, bounds, [*sums])
