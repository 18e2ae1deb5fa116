"""Specification of the shape of a job's pauses, from its last cycles."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.accounting.cycles import Cycle, Cycles, PauseShape
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from tests.builders.time import s

REMEMBERED = DEFAULT_SETTINGS.remembered_cycles


def cycles_of(bursts_and_pauses: Iterable[tuple[float, float]], busy_s: float = 0.0) -> Cycles:
    cycles = Cycles(DEFAULT_SETTINGS)
    for burst_s, pause_s in bursts_and_pauses:
        cycles.add(Cycle(burst_s, pause_s, busy_s))
    return cycles


def shape_of(bursts_and_pauses: Iterable[tuple[float, float]], busy_s: float = 0.0) -> PauseShape:
    shape = cycles_of(bursts_and_pauses, busy_s).shape(1.0)
    assert shape is not None
    return shape


class TestTheShape:
    def test_has_medians_widths_and_shares(self) -> None:
        shape = shape_of([(4.0, 1.5)] * 20, busy_s=0.5)

        assert (shape.pauses, shape.grain_s, shape.burst_s, shape.pause_s) == (20, 1.0, 4.0, 1.5)
        assert (shape.burst_width_s, shape.pause_width_s) == (0.0, 0.0)
        assert (shape.paused_ratio, shape.level_ratio) == pytest.approx((0.25, 0.25))

    def test_has_the_width_of_the_middle_two_thirds(self) -> None:
        shape = shape_of([(float(burst_s), 2.0) for burst_s in range(10, 71)])

        assert shape.burst_s == 41.0
        assert shape.burst_width_s == 39.0

    def test_leaves_out_the_first_burst_whose_start_is_unknown(self) -> None:
        assert shape_of([(0.1, 2.0), *[(4.0, 2.0)] * 3]).burst_width_s == 0.0

    def test_is_of_the_last_ones_and_counts_them_all(self) -> None:
        shape = shape_of([(90.0, 50.0)] * 10 + [(4.0, 2.0)] * REMEMBERED)

        assert (shape.pause_width_s, shape.pauses) == (0.0, 10 + REMEMBERED)

    @given(
        st.lists(st.tuples(st.floats(0, 1e6), st.floats(1e-9, 1e6)), min_size=3, max_size=99),
        st.floats(0, 1e6),
    )
    def test_is_finite_for_any_cycles(self, some: list[tuple[float, float]], busy_s: float) -> None:
        assert all(math.isfinite(value) for value in shape_of(some, busy_s))


class TestHowMuchBurstsVary:
    """Readings come once a second."""

    def test_is_their_width_over_their_median_if_samples_show_it(self) -> None:
        assert shape_of([(10.0 + k % 5, 2.0) for k in range(30)]).burst_variation == 3 / 12

    @pytest.mark.parametrize(
        ("burst_s", "variation"), [(10.0, None), (49.0, None), (51.0, 1 / 51.0), (200.0, 1 / 200.0)]
    )
    @pytest.mark.parametrize("difference_s", [0.0, 1.0, 2.0])
    def test_is_otherwise_at_most_the_sampling_period_or_unknown(
        self, burst_s: float, variation: float | None, difference_s: float
    ) -> None:
        shape = shape_of([(burst_s + difference_s * (k % 2), 2.0) for k in range(31)])

        if variation is None:
            assert shape.burst_variation is None
        else:
            assert shape.burst_variation == pytest.approx(variation, rel=0.05)

    def test_is_unknown_of_a_low_level_in_short_pauses(self) -> None:
        short = shape_of([(10.0, 2.0)] * 30, busy_s=1.0)
        long = shape_of([(10.0, 4.0)] * 30, busy_s=1.0)

        assert short.resolved_level_ratio is None
        assert long.resolved_level_ratio == pytest.approx(0.2)


class TestSteadyCycles:
    def test_is_known_for_long_cycles_that_hardly_differ(self) -> None:
        assert cycles_of([(90.0, 7.0)] * 9).steady_ns == s(97.0)

    @pytest.mark.parametrize(
        "cycles",
        [[(90.0, 7.0)] * 7, [(9.0, 7.0)] * 20, [(90.0 + 40 * (k % 2), 7.0) for k in range(20)]],
        ids=["too few", "too short", "not alike"],
    )
    def test_is_unknown_for_others(self, cycles: list[tuple[float, float]]) -> None:
        assert cycles_of(cycles).steady_ns is None
