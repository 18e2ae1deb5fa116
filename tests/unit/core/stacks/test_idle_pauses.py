"""A stack sample counts by the idle time of its pause, which is known from whole windows only."""

from __future__ import annotations

import pytest

from gpumon.core.sample import BusySample
from gpumon.core.stacks.idle_pauses import IdlePauses

SECOND = 1_000_000_000


def played(ratios: list[float], at: tuple[int, ...] = ()) -> tuple[dict[str, float], int]:
    """The factors of samples in windows of a second, by name, and the idle time of all pauses."""
    pauses: IdlePauses[str] = IdlePauses()
    found = []
    for number, ratio in enumerate(ratios):
        found += pauses.ingest(BusySample(number * SECOND, (number + 1) * SECOND, ratio))
        if number in at:
            pauses.add(f"in {number}")
    found += pauses.finish()
    return {one.item: one.factor for one in found}, pauses.idle_ns


class TestAPause:
    def test_counts_with_the_idle_part_of_the_windows_around_it(self) -> None:
        factors, idle_ns = played([1.0, 0.4, 0.0, 0.7, 1.0], at=(2,))

        assert factors == {"in 2": pytest.approx(1.9)}
        assert idle_ns == pytest.approx(1.9 * SECOND)

    def test_shares_an_edge_with_no_other(self) -> None:
        factors, idle_ns = played([0.0, 0.5, 0.0, 1.0], at=(0, 2))

        assert factors == {"in 0": pytest.approx(1.5), "in 2": 1.0}
        assert idle_ns == pytest.approx(2.5 * SECOND)

    def test_that_is_long_does_not_wait_for_its_end(self) -> None:
        pauses: IdlePauses[int] = IdlePauses()
        most = 0
        for number in range(10_000):
            pauses.ingest(BusySample(number * SECOND, (number + 1) * SECOND, 0.0))
            pauses.add(number)
            most = max(most, len(pauses))

        assert most <= 5

    def test_ends_where_the_driver_took_no_samples(self) -> None:
        pauses: IdlePauses[str] = IdlePauses()
        pauses.ingest(BusySample(0, SECOND, 0.0))
        pauses.add("in 0")

        (one,) = pauses.ingest(BusySample(5 * SECOND, 6 * SECOND, 0.5))
        assert one.factor == 1.0

    def test_too_short_for_a_window_is_not_seen(self) -> None:
        assert played([1.0, 0.5, 1.0, 0.06]) == ({}, 0)
