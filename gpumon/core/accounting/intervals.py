"""Intervals of time, and a bounded list of them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple


class Interval(NamedTuple):
    """A half-open interval ``[start_ns, end_ns)``."""

    start_ns: int
    end_ns: int

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


class IntervalList:
    """At most ``limit`` intervals in time order: beyond that, close neighbours merge.

    A merged interval also covers the time between its parts: the list shows when
    something happened, while counters elsewhere show for how long.

    >>> kept = IntervalList(limit=2)
    >>> kept.extend([Interval(0, 1), Interval(2, 3), Interval(9, 10)])
    >>> kept.snapshot(), kept.merged
    ((Interval(start_ns=0, end_ns=3), Interval(start_ns=9, end_ns=10)), 1)
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._intervals: list[Interval] = []
        self._snapshot: tuple[Interval, ...] | None = ()
        self.merged = 0

    def extend(self, intervals: Iterable[Interval]) -> None:
        """Add intervals that begin no earlier than the last one."""
        self._intervals.extend(intervals)
        self._snapshot = None
        if len(self._intervals) > self._limit:
            self._merge_closest(self._limit - self._limit // 4)

    def insert(self, intervals: Iterable[Interval]) -> None:
        """Add intervals that may begin before existing ones."""
        self._intervals = sorted([*self._intervals, *intervals])
        self.extend(())

    def pop_all(self) -> tuple[Interval, ...]:
        intervals = tuple(self._intervals)
        self._intervals, self._snapshot = [], ()
        return intervals

    def snapshot(self) -> tuple[Interval, ...]:
        """All intervals, oldest first. The same tuple until the list changes."""
        if self._snapshot is None:
            self._snapshot = tuple(self._intervals)
        return self._snapshot

    def _merge_closest(self, wanted: int) -> None:
        # The shortest results first, and no interval twice in one round, so that
        # the loss of detail is even, and a long gap is merged last.
        while len(self._intervals) > wanted:
            pairs = list(pairwise(self._intervals))
            spans = [after.end_ns - before.start_ns for before, after in pairs]
            chosen: set[int] = set()
            for position in sorted(range(len(spans)), key=spans.__getitem__):
                if len(self._intervals) - len(chosen) <= wanted:
                    break
                if position - 1 not in chosen and position + 1 not in chosen:
                    chosen.add(position)
            merged = self._intervals[:1]
            for position, (_, after) in enumerate(pairs):
                if position in chosen:
                    merged[-1] = Interval(merged[-1].start_ns, after.end_ns)
                else:
                    merged.append(after)
            self._intervals = merged
            self.merged += len(chosen)
