"""Sets of time: sorted, disjoint, half-open spans of whole milliseconds."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Spans = NDArray[np.int64]
"""Begins and ends in ms, shape (n, 2), ``begin[0] < end[0] < begin[1]``: no two touch."""


def no_spans() -> Spans:
    """The empty set."""
    return np.empty((0, 2), dtype=np.int64)


def spans_of(pairs: Iterable[tuple[int, int]]) -> Spans:
    """The union of these, in any order; empty and backward ones count for nothing.

    >>> spans_of([(5, 9), (0, 2), (8, 12), (3, 3)]).tolist()
    [[0, 2], [5, 12]]
    """
    listed = [*pairs]
    if not listed:
        return no_spans()
    array = np.asarray(listed, dtype=np.int64)
    return spans_between(array[:, 0], array[:, 1])


def spans_between(begins_ms: NDArray[np.int64], ends_ms: NDArray[np.int64]) -> Spans:
    """The union of the spans from each begin to its end; both of shape (n,)."""
    real = ends_ms > begins_ms
    begins, ends = begins_ms[real], ends_ms[real]
    if begins.size == 0:
        return no_spans()
    order = np.argsort(begins, kind="stable")
    begins, reach = begins[order], np.maximum.accumulate(ends[order])
    is_first = np.concatenate(([True], begins[1:] > reach[:-1]))
    is_last = np.concatenate((is_first[1:], [True]))
    return np.column_stack((begins[is_first], reach[is_last]))


def total_ms(spans: Spans) -> int:
    """How much time it is."""
    return int((spans[:, 1] - spans[:, 0]).sum())


def lengths_ms(spans: Spans) -> NDArray[np.int64]:
    """How long each span is; shape (n,)."""
    return spans[:, 1] - spans[:, 0]


def union(one: Spans, other: Spans) -> Spans:
    """What lies in either."""
    both = np.concatenate((one, other))
    return spans_between(both[:, 0], both[:, 1])


def gaps(spans: Spans, begin_ms: int, end_ms: int) -> Spans:
    """What of [begin_ms, end_ms) lies in none of them.

    >>> gaps(spans_of([(2, 4), (6, 9)]), 0, 8).tolist()
    [[0, 2], [4, 6]]
    """
    begins = np.concatenate(([begin_ms], spans[:, 1]))
    ends = np.concatenate((spans[:, 0], [end_ms]))
    return spans_between(np.maximum(begins, begin_ms), np.minimum(ends, end_ms))


def difference(one: Spans, other: Spans) -> Spans:
    """What lies in the one and not in the other."""
    if one.shape[0] == 0:
        return no_spans()
    return intersection(one, gaps(other, int(one[0, 0]), int(one[-1, 1])))


def intersection(one: Spans, other: Spans) -> Spans:
    """What lies in both."""
    edges = np.sort(np.concatenate((one.ravel(), other.ravel())))
    if edges.size < 2:
        return no_spans()
    begins, ends = edges[:-1], edges[1:]
    in_both = _covers(one, begins) & _covers(other, begins)
    return spans_between(begins[in_both], ends[in_both])


def iou(one: Spans, other: Spans) -> float:
    """Intersection over union, 0 to 1; two empty sets agree wholly.

    >>> iou(spans_of([(0, 10)]), spans_of([(5, 15)]))
    0.3333333333333333
    """
    either = total_ms(union(one, other))
    return total_ms(intersection(one, other)) / either if either else 1.0


def clipped(spans: Spans, begin_ms: int, end_ms: int) -> Spans:
    """What of them lies in [begin_ms, end_ms)."""
    return spans_between(np.maximum(spans[:, 0], begin_ms), np.minimum(spans[:, 1], end_ms))


def covered_ms(spans: Spans, at_ms: NDArray[np.float64]) -> NDArray[np.float64]:
    """How much of them lies before each of these instants; same shape as ``at_ms``."""
    if spans.shape[0] == 0:
        return np.zeros_like(at_ms)
    lengths = lengths_ms(spans)
    before = np.concatenate(([0], np.cumsum(lengths)))
    levels = np.column_stack((before[:-1], before[1:])).ravel()
    return np.asarray(np.interp(at_ms, spans.ravel(), levels))


def _covers(spans: Spans, at_ms: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each instant lies in a span: an odd number of edges is not behind it."""
    return np.asarray(np.searchsorted(spans.ravel(), at_ms, side="right") % 2 == 1)
