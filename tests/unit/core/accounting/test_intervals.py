"""Specification of the bounded list of intervals."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.accounting.intervals import Interval, IntervalList

spans = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), min_size=1, max_size=300)


def in_order(parts: list[tuple[int, int]]) -> list[Interval]:
    made, at = [], 0
    for silence, length in parts:
        made.append(Interval(at + silence, at + silence + length))
        at = made[-1].end_ns
    return made


class TestTheList:
    @given(spans, st.integers(4, 40))
    def test_is_never_longer_than_its_limit_and_loses_no_time(
        self, parts: list[tuple[int, int]], limit: int
    ) -> None:
        kept, given_ = IntervalList(limit), in_order(parts)
        for interval in given_:
            kept.extend([interval])

        found = kept.snapshot()

        assert len(found) <= limit
        assert len(found) + kept.merged == len(given_)
        assert all(
            any(a.start_ns <= one.start_ns and one.end_ns <= a.end_ns for a in found)
            for one in given_
        )

    def test_merges_a_long_silence_last(self) -> None:
        kept = IntervalList(limit=3)
        kept.extend(Interval(10 * k, 10 * k + 5) for k in range(3))
        kept.extend([Interval(10_000, 10_005)])

        assert kept.snapshot()[-1] == Interval(10_000, 10_005)

    def test_spreads_the_merging_over_even_gaps(self) -> None:
        kept = IntervalList(limit=100)
        for k in range(1000):
            kept.extend([Interval(10 * k, 10 * k + 5)])

        longest = max(interval.duration_ns for interval in kept.snapshot())

        assert longest < 10_000 / 100 * 5
