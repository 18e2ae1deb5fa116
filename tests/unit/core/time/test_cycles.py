"""Specification of what a job's pauses look like, told from its last cycles."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.time.cycles import Cycle, Cycles, PauseShape
from tests.builders_time import s

REMEMBERED = DEFAULT_SETTINGS.remembered_cycles


def cycles_of(bursts_and_pauses: Iterable[tuple[float, float]], busy_s: float = 0.0) -> Cycles:
    cycles, at_s = Cycles(DEFAULT_SETTINGS), 0.0
    for burst_s, pause_s in bursts_and_pauses:
        cycles.add(Cycle(s(at_s + burst_s), burst_s, 0.1 * burst_s, pause_s, busy_s))
        at_s += burst_s + pause_s + busy_s
    return cycles


def shape_of(bursts_and_pauses: Iterable[tuple[float, float]], busy_s: float = 0.0) -> PauseShape:
    shape = cycles_of(bursts_and_pauses, busy_s).shape(1.0)
    assert shape is not None
    return shape


class TestTheShape:
    @pytest.mark.parametrize("count", [0, 1, 2])
    def test_is_unknown_of_too_few_pauses(self, count: int) -> None:
        assert cycles_of([(4.0, 2.0)] * count).shape(1.0) is None

    def test_of_cycles_alike_to_the_digit_has_the_least_spread_and_no_tails(self) -> None:
        shape = shape_of([(4.0, 2.0)] * 20)

        assert (shape.burst, shape.pause) == (math.log(4.0), math.log(2.0))
        assert shape.burst_spread == shape.pause_spread == shape.cycle_spread == math.log(0.05)
        assert shape.longest_pause == shape.long_pauses == shape.short_pauses == 0.0
        assert (shape.shortest_burst, shape.longest_burst, shape.together) == (0.0, 0.0, 0.0)

    def test_has_the_shares_of_idle_bursts_and_busy_pauses(self) -> None:
        shape = shape_of([(4.0, 1.5)] * 20, busy_s=0.5)

        assert shape.burst_idle == pytest.approx(0.1)
        assert shape.level == pytest.approx(0.25)
        assert shape.level_spread == pytest.approx(0.0)

    def test_tells_workers_that_race_from_steps_that_are_counted(self) -> None:
        racing = shape_of([(4.0 + k % 3, 2.0) for k in range(30)])
        counted = shape_of([(4.0, 2.0 + k % 3) for k in range(30)])

        assert racing.burst_spread > counted.burst_spread
        assert racing.pause_spread < counted.pause_spread
        assert racing.burst_variation > 0.1 > counted.burst_variation

    def test_sees_a_pause_that_is_shorter_after_a_longer_burst(self) -> None:
        assert shape_of([(4.0 + k % 3, 4.0 - k % 3) for k in range(30)]).together < -0.9

    def test_leaves_out_the_first_burst_whose_begin_nobody_saw(self) -> None:
        assert shape_of([(0.1, 2.0), *[(4.0, 2.0)] * 9]).shortest_burst == 0.0

    def test_is_of_the_last_ones_and_counts_them_all(self) -> None:
        shape = shape_of([(90.0, 50.0)] * 10 + [(4.0, 2.0)] * REMEMBERED)

        assert shape.longest_pause == 0.0
        assert shape.pauses == pytest.approx(math.log(10 + REMEMBERED))

    def test_of_another_job_forgets_the_one_before(self) -> None:
        cycles = cycles_of([(4.0, 2.0)] * 20)

        cycles.forget()

        assert (cycles.count, cycles.shape(1.0), cycles.latest_ns) == (0, None, ())

    @given(
        st.lists(st.tuples(st.floats(0, 1e6), st.floats(1e-9, 1e6)), min_size=3, max_size=99),
        st.floats(0, 1e6),
    )
    def test_is_of_numbers_whatever_the_cycles_are(
        self, some: list[tuple[float, float]], busy_s: float
    ) -> None:
        assert all(math.isfinite(value) for value in shape_of(some, busy_s))


class TestTheLatestPauses:
    def test_are_the_last_three_that_are_as_long_as_most(self) -> None:
        cycles = cycles_of([(4.0, 2.0), (4.0, 0.2)] * 10)

        assert len(cycles.latest_ns) == 3
        assert cycles.latest_ns[-1] == s(9 * 10.2 + 4.0)
        assert cycles.latest_ns[-1] - cycles.latest_ns[-2] == s(10.2)


class TestTheClock:
    def test_is_told_of_long_cycles_that_hardly_differ(self) -> None:
        assert cycles_of([(90.0, 7.0)] * 9).steady_ns == s(97.0)

    @pytest.mark.parametrize(
        "cycles",
        [[(90.0, 7.0)] * 7, [(9.0, 7.0)] * 20, [(90.0 + 40 * (k % 2), 7.0) for k in range(20)]],
        ids=["too few", "too short", "not alike"],
    )
    def test_is_not_told_of_others(self, cycles: list[tuple[float, float]]) -> None:
        assert cycles_of(cycles).steady_ns is None
