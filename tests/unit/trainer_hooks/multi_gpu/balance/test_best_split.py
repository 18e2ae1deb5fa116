"""Specification of the best split by what was seen: no other that fits is sooner done."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_hooks.multi_gpu.balance.known_speeds import KnownSpeeds
from trainer_hooks.multi_gpu.balance.solver import Room, best_split, slowest_seconds
from trainer_hooks.multi_gpu.balance.speed_curve import SpeedCurve

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
    def test_is_one_of_those_that_fit_and_as_soon_done_as_the_best_of_them(
        self, problem: tuple[list[Curve], int, list[Room]]
    ) -> None:
        seconds_of, total, rooms = problem

        found = best_split(seconds_of, total, rooms)

        fitting = every_split(total, rooms)
        assert found in fitting
        best = min(slowest_seconds(seconds_of, counts) for counts in fitting)
        assert slowest_seconds(seconds_of, found) == best

    def test_of_equal_gpus_is_equal(self) -> None:
        assert best_split([float] * 4, 100, [Room(1, 100)] * 4) == (25, 25, 25, 25)

    @pytest.mark.parametrize(("total", "rooms"), [(9, [Room(1, 4)] * 2), (1, [Room(1, 4)] * 2)])
    def test_that_cannot_be_is_refused(self, total: int, rooms: list[Room]) -> None:
        with pytest.raises(ValueError, match=f"^{total} samples"):
            best_split([float, float], total, rooms)


ROOMS = (Room(1, 200), Room(1, 200))


def two_alike() -> KnownSpeeds:
    """Each was seen to take 0.1 s for 50 samples and 0.2 s for 100."""
    known = KnownSpeeds((SpeedCurve(), SpeedCurve()))
    for count, seconds in ((50, 0.1), (100, 0.2)):
        known = known.with_seen((count,) * 2, (seconds,) * 2, changed=(False, False))
    return known


@pytest.mark.parametrize(
    ("total", "seconds"), [(98, 0.0), (99, 0.1), (198, 0.1), (199, 0.2), (400, 0.2)]
)
def test_no_batch_is_done_sooner_than_one_sample_less_than_was_seen_takes(
    total: int, seconds: float
) -> None:
    assert two_alike().unbeatable_seconds(total, ROOMS) == seconds


def test_nothing_is_known_to_be_unbeatable_beyond_what_memory_holds() -> None:
    assert two_alike().unbeatable_seconds(401, ROOMS) == 0.0


def test_a_gpu_whose_speed_has_changed_is_known_by_the_mean_of_what_came_since() -> None:
    curve = SpeedCurve().with_seen(100, 9.0, tolerance=0.5).changed_to(100, 1.0)

    assert curve.with_seen(100, 2.0, tolerance=0.5).seconds_of(100) == 1.5


def seen(*points: tuple[int, float]) -> SpeedCurve:
    curve = SpeedCurve()
    for samples, seconds in points:
        curve = curve.with_seen(samples, seconds, tolerance=0.5)
    return curve


class TestTheSlope:
    def test_of_one_point_is_in_proportion(self) -> None:
        assert seen((110, 1.0)).slope_at(110) == pytest.approx(1.0 / 110)

    @pytest.mark.parametrize(("fewest", "part"), [(100, 1.0), (98, 0.15)])
    def test_is_told_by_points_a_tenth_of_the_largest_apart(self, fewest: int, part: float) -> None:
        """They take as long as each other: as flat as a slope is believed to be."""
        curve = seen((fewest, 1.0), (110, 1.0))

        assert curve.slope_at(110) == pytest.approx(part / 110)
