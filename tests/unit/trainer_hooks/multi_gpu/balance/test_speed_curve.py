"""Specification of a GPU's speed as it was seen: what points tell of its slope, and what not."""

from __future__ import annotations

import pytest

from trainer_hooks.multi_gpu.balance.speed_curve import SpeedCurve


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
