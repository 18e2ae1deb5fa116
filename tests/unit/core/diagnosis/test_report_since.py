"""Specification of the time between two reports of one daemon."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.accounting.intervals import Interval
from gpumon.core.accounting.ledger import GpuLedger
from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.diagnosis.report_since import report_since, totals_since
from gpumon.core.phase import IdleCause
from tests.builders.cycles import cycles, late_waves, on_and_off
from tests.builders.report import report, run
from tests.builders.time import every, rhythm, s

WAIT, STEP = IdleCause.INPUT_WAIT, IdleCause.WITHIN_STEP


def at(ratios: list[float], *seconds: int) -> list[GpuTotals]:
    """Totals after so many one-second samples."""
    ledger, states = GpuLedger(), []
    samples = every(1.0, ratios)
    for earlier, later in zip((0, *seconds), seconds, strict=False):
        ledger.observe(samples[earlier:later])
        states.append(ledger.snapshot())
    return states


class TestTheTimeBetween:
    def test_holds_what_was_counted_meanwhile(self) -> None:
        before, after = at([1.0] * 4 + [0.5] * 6, 4, 10)

        between = totals_since(before, after)

        assert between.observed_ns == s(6)
        assert between.busy_ns == s(3)
        assert between.idle_ns == {IdleCause.UNKNOWN: s(3)}

    @pytest.mark.parametrize(
        "whole",
        [
            *at([1.0, 0.0, 1.0, 0.5] * 9, 1, 36),
            GpuTotals(observed_ns=s(8), idle_ns={WAIT: s(8)}),
            GpuTotals(
                observed_ns=s(40),
                busy_ns=s(20),
                idle_ns={WAIT: s(14), STEP: s(6)},
                input_wait_by_reason_ns={"gil_bound": s(14)},
                first_input_wait_ns=s(2),
                within_step_by_reason_ns={"gil_bound": s(6)},
                may_be_less_ns={STEP: s(6)},
                may_be_more_ns={WAIT: s(6)},
                hanging_idle_ns={WAIT: s(3)},
            ),
        ],
        ids=["busy", "with pauses", "waiting", "hanging for a part"],
    )
    def test_since_the_beginning_is_all_of_it(self, whole: GpuTotals) -> None:
        assert totals_since(GpuTotals(), whole) == whole

    def test_has_nothing_of_idle_time_that_was_explained_later(self) -> None:
        before = GpuTotals(observed_ns=s(9), idle_ns={STEP: s(3), IdleCause.UNKNOWN: s(6)})
        after = before._replace(
            suspected_ns=s(6), hanging_idle_ns={STEP: s(3)}, may_be_less_ns={STEP: 1}
        )

        between = totals_since(before, after)

        assert between.suspected_ns == 0
        assert between.hanging_idle_ns == between.may_be_less_ns == {STEP: 0}

    def test_holds_only_the_pauses_that_ended_meanwhile(self) -> None:
        before, after = at(on_and_off(late_waves(60)), 251, 502)

        between = totals_since(before, after)

        assert between.gaps.count == 30
        assert between.starved_intervals[0] == Interval(s(253), s(256))

    def test_counts_a_pause_that_a_blip_split_before_and_that_went_on_meanwhile(self) -> None:
        pause = [0.0] * 20
        ratios = [1.0] * 30 + pause + [1.0] + pause + [1.0] * 9 + pause + [1.0]
        before, after, later = at(ratios, 51, 80, 101)

        assert totals_since(before, after).pauses.count == 1
        assert totals_since(before, after).pauses.total_ns == s(20)
        assert totals_since(before, later).pauses.count == 1

    @given(
        st.lists(st.sampled_from([0.0, 0.0, 0.02, 0.2, 0.5, 1.0]), min_size=2, max_size=90),
        st.data(),
    )
    def test_closes_like_the_totals_and_has_nothing_of_before(
        self, ratios: list[float], data: st.DataObject
    ) -> None:
        middle = data.draw(st.integers(1, len(ratios) - 1))
        samples, ledger = every(1.0, ratios), GpuLedger()
        ledger.observe(samples[:middle])
        before, unsettled_before = ledger.snapshot(), ledger.unsettled()
        ledger.observe(samples[middle:])

        found = totals_since(
            before,
            ledger.snapshot(),
            unsettled_before=unsettled_before,
            unsettled_after=ledger.unsettled(),
        )

        assert found.observed_ns == s(len(ratios) - middle)
        assert found.busy_ns + found.idle_total_ns + found.pending_ns == found.observed_ns
        assert found.busy_ns == sum(one.busy_ns for one in samples[middle:])
        assert min([*found.idle_ns.values(), found.pending_ns]) >= 0
        assert found.in_use_busy_ns <= found.in_use_ns <= found.observed_ns
        assert found.low_ns + found.high_ns <= found.in_use_ns
        assert found.gaps.total_ns <= before.observed_ns + found.observed_ns

    @given(cycles(), st.data())
    def test_diagnoses_no_more_pauses_than_fell_into_it(
        self, some: list[tuple[int, int]], data: st.DataObject
    ) -> None:
        ratios = on_and_off(some)
        middle = data.draw(st.integers(1, len(ratios) - 1))
        before, after = at(ratios, middle, len(ratios))

        between = totals_since(before, after)

        diagnosed_ns = between.suspected_ns + between.irregular_ns
        assert diagnosed_ns <= between.idle_ns.get(IdleCause.UNKNOWN, 0)
        assert 0 <= between.irregular_ns <= after.irregular_ns

    def test_has_the_cycle_of_its_own_pauses_alone(self) -> None:
        clockwork = rhythm(40, 5, 12)
        before, pausing, working = at([*clockwork, *clockwork, *[1.0] * 40], 540, 1_090, 1_110)

        assert totals_since(before, pausing).cycle_ns == s(45)
        assert totals_since(pausing, working).cycle_ns is None


class TestTheRuns:
    @pytest.mark.parametrize(("was_alive", "is_reported"), [(True, True), (False, False)])
    def test_are_those_that_were_not_over_whatever_is_still_counted_of_them(
        self, was_alive: bool, is_reported: bool
    ) -> None:
        earlier = replace(run(), alive=was_alive, step_busy_ratios={"GPU-0": 0.996})
        later = replace(run(), alive=False, step_busy_ratios={"GPU-0": 0.995})
        new = replace(run(), run="new")

        runs = report_since(report(runs=(earlier,)), report(runs=(later, new))).runs

        assert runs == ((later, new) if is_reported else (new,))
