"""Specification of known speeds: what no split can beat, whatever the curves are between points."""

from __future__ import annotations

import pytest

from trainer_hooks.multi_gpu.balance.known_speeds import KnownSpeeds
from trainer_hooks.multi_gpu.balance.solver import Room
from trainer_hooks.multi_gpu.balance.speed_curve import SpeedCurve

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
