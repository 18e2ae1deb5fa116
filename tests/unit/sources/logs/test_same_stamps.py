"""Specification of rows that share a stamp: they are spread, and nothing is lost or moved on."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gpumon.sources.logs.log_sample import LogSample
from gpumon.sources.logs.same_stamps import spread_same_stamps

SECONDS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5)), max_size=40)
S = 10**9


def spread(stamps: list[tuple[int, int]]) -> list[LogSample]:
    return list(spread_same_stamps(LogSample(gpu, second * S, 0.5) for gpu, second in stamps))


class TestRowsOfOneSecond:
    def test_of_different_gpus_stay_where_they_are(self) -> None:
        assert [one.stamp_ns for one in spread([(0, 1), (1, 1), (0, 2), (1, 2)])] == [
            S, S, 2 * S, 2 * S
        ]  # fmt: skip

    def test_of_one_gpu_are_spread_evenly(self) -> None:
        assert [one.stamp_ns / S for one in spread([(0, 1), (1, 1), (0, 1), (1, 1)])] == [
            1, 1, 1.5, 1.5
        ]  # fmt: skip

    def test_are_handed_on_where_the_clock_stands_still(self) -> None:
        found = spread([(0, 1)] * 10_000)

        assert len(found) == 10_000

    @given(SECONDS)
    def test_stay_in_their_second_and_in_their_order(self, stamps: list[tuple[int, int]]) -> None:
        rising = sorted(stamps, key=lambda one: one[1])

        found = spread(rising)

        assert [(one.gpu, one.stamp_ns // S) for one in found] == rising
        for gpu in range(3):
            own = [one.stamp_ns for one in found if one.gpu == gpu]
            assert all(before < after for before, after in pairwise(own))
