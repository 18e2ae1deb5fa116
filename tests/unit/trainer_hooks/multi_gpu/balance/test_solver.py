"""Specification of the best split: no other that fits is sooner done."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_hooks.multi_gpu.balance.solver import Room, best_split, slowest_seconds

Curve = Callable[[int], float]


def curve_of(steps: list[int]) -> Curve:
    """A curve that never falls: the time of n samples is the sum of the first n steps."""
    return lambda samples: float(sum(steps[:samples]))


curves = st.lists(st.integers(0, 9), min_size=24, max_size=24).map(curve_of)


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[Curve], int, list[Room]]:
    gpus = draw(st.integers(1, 3))
    rooms = [
        Room(least, draw(st.integers(least, 12)))
        for least in draw(st.lists(st.integers(0, 3), min_size=gpus, max_size=gpus))
    ]
    total = draw(st.integers(sum(r.least for r in rooms), sum(r.most for r in rooms)))
    return [draw(curves) for _ in rooms], total, rooms


def every_split(total: int, rooms: list[Room]) -> list[tuple[int, ...]]:
    ranges = [range(room.least, room.most + 1) for room in rooms]
    return [counts for counts in product(*ranges) if sum(counts) == total]


class TestTheBestSplit:
    @given(problems())
    def test_is_as_soon_done_as_the_best_of_all(
        self, problem: tuple[list[Curve], int, list[Room]]
    ) -> None:
        seconds_of, total, rooms = problem

        found = best_split(seconds_of, total, rooms)

        best = min(slowest_seconds(seconds_of, counts) for counts in every_split(total, rooms))
        assert slowest_seconds(seconds_of, found) == best

    @given(problems())
    def test_is_whole_and_within_its_rooms(
        self, problem: tuple[list[Curve], int, list[Room]]
    ) -> None:
        seconds_of, total, rooms = problem

        found = best_split(seconds_of, total, rooms)

        assert sum(found) == total
        assert all(r.least <= n <= r.most for n, r in zip(found, rooms, strict=True))

    def test_of_equal_gpus_is_equal(self) -> None:
        assert best_split([float] * 4, 100, [Room(1, 100)] * 4) == (25, 25, 25, 25)

    @pytest.mark.parametrize(("total", "rooms"), [(9, [Room(1, 4)] * 2), (1, [Room(1, 4)] * 2)])
    def test_that_cannot_be_is_refused(self, total: int, rooms: list[Room]) -> None:
        with pytest.raises(ValueError, match=f"{total} samples cannot be split"):
            best_split([float, float], total, rooms)
