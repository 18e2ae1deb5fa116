"""The best split of a batch: no other allowed split is faster."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_hooks.balance.speed_curves import (
    CountRange,
    SpeedCurve,
    SpeedCurves,
    best_split,
    slowest_seconds,
)

Curve = Callable[[int], float]


def curve_of(steps: list[int]) -> Curve:
    """A non-decreasing curve: n samples take the sum of the first n steps."""
    return lambda samples: float(sum(steps[:samples]))


curves = st.lists(st.integers(0, 9), min_size=24, max_size=24).map(curve_of)


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[Curve], int, list[CountRange]]:
    gpus = draw(st.integers(1, 3))
    ranges = [
        CountRange(least, draw(st.integers(least, 12)))
        for least in draw(st.lists(st.integers(0, 3), min_size=gpus, max_size=gpus))
    ]
    total = draw(st.integers(sum(r.least for r in ranges), sum(r.most for r in ranges)))
    return [draw(curves) for _ in ranges], total, ranges


def every_split(total: int, ranges: list[CountRange]) -> list[tuple[int, ...]]:
    allowed = [range(one.least, one.most + 1) for one in ranges]
    return [counts for counts in product(*allowed) if sum(counts) == total]


class TestTheBestSplit:
    @given(problems())
    def test_is_allowed_and_as_fast_as_the_best_allowed_one(
        self, problem: tuple[list[Curve], int, list[CountRange]]
    ) -> None:
        seconds_of, total, ranges = problem

        found = best_split(seconds_of, total, ranges)

        fitting = every_split(total, ranges)
        assert found in fitting
        best = min(slowest_seconds(seconds_of, counts) for counts in fitting)
        assert slowest_seconds(seconds_of, found) == best

    def test_equal_gpus_get_equal_parts(self) -> None:
        assert best_split([float] * 4, 100, [CountRange(1, 100)] * 4) == (25, 25, 25, 25)

    @pytest.mark.parametrize("total", [1, 9])
    def test_refuses_a_total_outside_the_ranges(self, total: int) -> None:
        with pytest.raises(ValueError, match=f"^{total} samples"):
            best_split([float, float], total, [CountRange(1, 4)] * 2)


RANGES = (CountRange(1, 200), CountRange(1, 200))


def two_alike() -> SpeedCurves:
    """Each took 0.1 s for 50 samples and 0.2 s for 100."""
    known = SpeedCurves((SpeedCurve(), SpeedCurve()))
    for count, seconds in ((50, 0.1), (100, 0.2)):
        known = known.with_interval((count,) * 2, (seconds,) * 2, changed=(False, False))
    return known


@pytest.mark.parametrize(
    ("total", "seconds"), [(98, 0.0), (99, 0.1), (198, 0.1), (199, 0.2), (400, 0.2), (401, 0.0)]
)
def test_unbeatable_seconds_rest_on_one_sample_less_than_measured(
    total: int, seconds: float
) -> None:
    assert two_alike().unbeatable_seconds(total, RANGES) == seconds


def curve_through(*points: tuple[int, float]) -> SpeedCurve:
    curve = SpeedCurve()
    for samples, seconds in points:
        curve = curve.with_interval(samples, seconds, tolerance=0.5)
    return curve


class TestTheSlope:
    def test_one_measured_point_gives_a_proportional_split(self) -> None:
        assert curve_through((110, 1.0)).slope_at(110) == pytest.approx(1.0 / 110)

    @pytest.mark.parametrize(("fewest", "part"), [(100, 1.0), (99, 0.15)])
    def test_needs_points_that_are_a_tenth_apart(self, fewest: int, part: float) -> None:
        """Both take equally long: the flattest slope that is assumed."""
        curve = curve_through((fewest, 1.0), (110, 1.0))

        assert curve.slope_at(110) == pytest.approx(part / 110)


def test_a_point_of_eight_intervals_needs_no_more() -> None:
    curves = SpeedCurves((SpeedCurve(),))
    needs_more = []
    for _ in range(8):
        curves = curves.with_interval([64], [1.0], changed=[False])
        needs_more.append(curves.more_would_help_at([64]))

    assert needs_more == [True] * 7 + [False]
