"""Specification of what a cause cost: for certain and at most, as a range only where it is wide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.diagnosis.loss_range import (
    cost_in_percent,
    cost_in_time,
    cost_ns,
    cost_of_use,
    is_split_open,
    is_wide,
    max_cost_ns,
    possible_causes,
    speedup_upper_bound,
)
from gpumon.core.phase import UNPROVED, IdleCause
from tests.builders.report import gpu
from tests.builders.time import s

WAIT, STEP, SAVE = IdleCause.INPUT_WAIT, IdleCause.WITHIN_STEP, IdleCause.CHECKPOINT
UNKNOWN, NOT_IN_USE = IdleCause.UNKNOWN, IdleCause.NOT_IN_USE


def used(
    idle_s: Mapping[IdleCause, float],
    *,
    less_s: Mapping[IdleCause, float] | None = None,
    more_s: Mapping[IdleCause, float] | None = None,
    **changes: Any,
) -> GpuTotals:
    """100 s in use, with what of the idle time may be less of a cause, and more of one."""
    totals = gpu(100 - sum(idle_s.values()), idle_s).totals
    return totals._replace(
        may_be_less_ns={cause: s(one) for cause, one in (less_s or {}).items()},
        may_be_more_ns={cause: s(one) for cause, one in (more_s or {}).items()},
        **changes,
    )


OPEN = used({WAIT: 30, STEP: 4}, less_s={WAIT: 27}, more_s={STEP: 27})
"""3 to 30 s of input, and 4 to 31 s within the step."""


class TestWhatACauseCost:
    @pytest.mark.parametrize(
        ("cause", "bounds_s"), [(WAIT, (3, 30)), (STEP, (4, 31)), (SAVE, (0, 0))]
    )
    def test_lies_between_what_is_certain_and_what_is_possible(
        self, cause: IdleCause, bounds_s: tuple[float, float]
    ) -> None:
        assert (cost_ns(OPEN, cause), max_cost_ns(OPEN, cause)) == tuple(map(s, bounds_s))

    @pytest.mark.parametrize("cause", IdleCause)
    def test_is_one_figure_where_nothing_is_open(self, cause: IdleCause) -> None:
        totals = used({cause: 20}) if cause is not NOT_IN_USE else used({WAIT: 20})

        assert cost_ns(totals, cause) == max_cost_ns(totals, cause)
        assert not is_wide(totals, cause)
        assert " to " not in cost_in_time(totals, cause)
        assert " to " not in cost_in_percent(totals, cause)

    def test_leaves_out_the_first_batch_of_both_bounds(self) -> None:
        totals = used({WAIT: 30}, less_s={WAIT: 10}, first_input_wait_ns=s(12))

        assert (cost_ns(totals, WAIT), max_cost_ns(totals, WAIT)) == (s(8), s(18))

    def test_leaves_out_what_passed_in_a_hang(self) -> None:
        totals = used({WAIT: 30})._replace(hanging_idle_ns={WAIT: s(25)})

        assert cost_ns(totals, WAIT) == max_cost_ns(totals, WAIT) == s(5)

    def test_is_all_of_the_time_that_nothing_explains(self) -> None:
        totals = used({UNKNOWN: 30}, less_s={UNKNOWN: 20})

        assert cost_ns(totals, UNKNOWN) == s(30)
        assert not is_wide(totals, UNKNOWN)


class TestItsText:
    @pytest.mark.parametrize(
        ("less_s", "in_time", "in_percent"),
        [(0, "20 s", "20 %"), (2.9, "17.1 s", "17 %"), (3.1, "16.9 to 20 s", "17 to 20 %"),
         (20, "0 to 20 s", "0 to 20 %")],
        ids=["certain", "narrow", "wide", "all open"],
    )  # fmt: skip
    def test_are_a_range_only_where_that_is_wide(
        self, less_s: float, in_time: str, in_percent: str
    ) -> None:
        totals = used({WAIT: 20}, less_s={WAIT: less_s} if less_s else {})

        assert cost_in_time(totals, WAIT) == in_time
        assert cost_in_percent(totals, WAIT) == in_percent
        assert cost_of_use(totals, WAIT) == f"{in_time} of 1 min 40 s"

    def test_are_never_rounded_to_a_limit(self) -> None:
        totals = used({WAIT: 19.98}, less_s={WAIT: 15.01})

        assert cost_in_percent(totals, WAIT, 0.05, 0.2) == "4.97 to 19.98 %"


class TestASplit:
    def test_is_open_where_either_cause_can_be_the_greater(self) -> None:
        assert is_split_open(OPEN)

    @pytest.mark.parametrize(
        "totals",
        [used({}), used({WAIT: 30}), used({WAIT: 30, STEP: 4}, less_s={WAIT: 2}, more_s={STEP: 2})],
        ids=["no loss", "one cause", "a narrow range"],
    )
    def test_is_not_open_where_both_bounds_say_the_same(self, totals: GpuTotals) -> None:
        assert not is_split_open(totals)

    def test_has_the_causes_that_are_possible_the_greatest_first(self) -> None:
        assert possible_causes(OPEN) == [STEP, WAIT]

    @pytest.mark.parametrize("cause", UNPROVED)
    def test_has_no_cause_that_explains_nothing(self, cause: IdleCause) -> None:
        totals = used({WAIT: 10})
        totals = totals._replace(idle_ns={**totals.idle_ns, cause: s(50)})

        assert possible_causes(totals) == [WAIT]


class TestTheSpeedup:
    @given(st.integers(0, 10**15), st.integers(0, 10**15))
    def test_is_at_least_1_and_never_infinite(self, in_use_ns: int, lost_ns: int) -> None:
        assert 1.0 <= speedup_upper_bound(in_use_ns, lost_ns) < float("inf")
