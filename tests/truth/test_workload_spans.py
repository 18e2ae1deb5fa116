"""Specification of sets of time: they answer as sets of single milliseconds would."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.truth.workloads.spans import (
    clipped,
    covered_ms,
    difference,
    gaps,
    intersection,
    iou,
    no_spans,
    spans_of,
    total_ms,
    union,
)

pairs = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=8)


def instants(listed: list[tuple[int, int]]) -> set[int]:
    """The milliseconds that lie in any of these."""
    return {at for begin, end in listed for at in range(begin, end)}


def named(spans: np.ndarray) -> set[int]:
    return instants([tuple(span) for span in spans.tolist()])


class TestSpans:
    def test_that_touch_are_one(self) -> None:
        assert spans_of([(4, 6), (0, 4), (9, 9), (8, 7)]).tolist() == [[0, 6]]

    def test_of_nothing_are_none(self) -> None:
        assert spans_of([]).shape == no_spans().shape == (0, 2)

    def test_that_are_both_empty_agree_wholly(self) -> None:
        assert iou(no_spans(), no_spans()) == 1.0
        assert iou(no_spans(), spans_of([(0, 1)])) == 0.0

    def test_leave_gaps(self) -> None:
        assert gaps(spans_of([(2, 4), (6, 9)]), 0, 12).tolist() == [[0, 2], [4, 6], [9, 12]]

    def test_show_how_much_of_them_lies_before_an_instant(self) -> None:
        spans = spans_of([(10, 20), (30, 40)])

        before_ms = covered_ms(spans, np.array([0.0, 15.0, 25.0, 30.5, 99.0]))

        assert before_ms.tolist() == [0.0, 5.0, 10.0, 10.5, 20.0]


class TestLaws:
    @settings(deadline=None)
    @given(pairs, pairs)
    def test_they_answer_as_sets_of_milliseconds(
        self, one: list[tuple[int, int]], other: list[tuple[int, int]]
    ) -> None:
        a, b = spans_of(one), spans_of(other)
        mine, theirs = instants(one), instants(other)

        assert named(union(a, b)) == mine | theirs
        assert named(intersection(a, b)) == mine & theirs
        assert named(difference(a, b)) == mine - theirs
        assert named(clipped(a, 10, 40)) == mine & {*range(10, 40)}
        assert total_ms(a) == len(mine)

    @settings(deadline=None)
    @given(pairs, pairs)
    def test_they_stay_sorted_and_never_touch(
        self, one: list[tuple[int, int]], other: list[tuple[int, int]]
    ) -> None:
        a, b = spans_of(one), spans_of(other)

        for spans in (a, union(a, b), intersection(a, b), difference(a, b), gaps(a, 5, 50)):
            assert (np.diff(spans.ravel()) > 0).all()

    @settings(deadline=None)
    @given(pairs, pairs)
    def test_how_well_they_agree_does_not_depend_on_the_order(
        self, one: list[tuple[int, int]], other: list[tuple[int, int]]
    ) -> None:
        a, b = spans_of(one), spans_of(other)

        assert iou(a, b) == iou(b, a)
        assert iou(a, a) == 1.0
        assert 0.0 <= iou(a, b) <= 1.0
