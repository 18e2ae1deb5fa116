"""The report of the last seconds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.accounting.ledger import GpuLedger
from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.diagnosis.since import totals_since
from gpumon.core.phase import IdleCause
from gpumon.core.report.report import Report
from gpumon.core.sample import BusySample, Frame, ProcessSample
from gpumon.core.state import MonitorState
from gpumon.pipeline.history import ReportHistory
from gpumon.pipeline.reports import report_of
from tests.builders.monitor import STEP, WAIT, Story
from tests.builders.time import every, s

DAY_NS = s(24 * 3600)
NOTEBOOK = (ProcessSample(7, 1 << 30, uid=1000),)


class Kept(Story):
    """A monitor whose states are kept each second, as by a daemon."""

    def __init__(self) -> None:
        super().__init__()
        self.history = ReportHistory()

    def _advance(self, *frames: Frame, error: str | None = None) -> MonitorState:
        state = super()._advance(*frames, error=error)
        self.history.keep(state)
        return state

    def last(self, seconds: float) -> Report:
        return self.history.since(report_of(self.state), self.state.taken_at_ns, seconds)


@pytest.fixture
def kept() -> Kept:
    return Kept()


def totals(report: Report) -> GpuTotals:
    return report.gpus[0].totals


class TestTheLastSeconds:
    def test_leave_out_what_was_before_and_begin_where_they_say(self, kept: Kept) -> None:
        kept.pass_seconds(300, 0.5)
        kept.pass_seconds(100, 1.0)

        found = kept.last(60)

        assert found.gpus[0].verdict.name.value == "healthy"
        assert totals(found).observed_ns == kept.state.taken_at_ns - found.origin_ns == s(60)

    def test_are_as_many_as_requested_up_to_ten_minutes(self, kept: Kept) -> None:
        kept.pass_seconds(1_000, 1.0)

        for wanted in (1, 5, 60, 64, 65, 100, 200, 300, 599, 600):
            assert 0.96 * wanted <= totals(kept.last(wanted)).observed_ns / s(1) <= wanted
        assert kept.last(60).notes[-1] == "This covers the last 60 s."
        assert "only some times older than ten minutes are kept" in kept.last(900).notes[-1]

    def test_are_all_there_is_of_a_younger_daemon_which_is_noted(self, kept: Kept) -> None:
        kept.pass_seconds(30, 1.0)

        found = kept.last(3600)

        assert totals(found).observed_ns == s(30)
        assert found.notes[-1] == "gpumon started 30 s ago: nothing earlier is kept."


class TestRunsThatHaveEnded:
    def test_are_left_out_where_that_was_before(self, kept: Kept) -> None:
        kept.pass_seconds(10, 1.0)
        for name in ("first", "second"):
            kept.ring(name)
            kept.pass_second(1.0, phases=[(0.0, STEP)], key=name)
            kept.pass_seconds(99, 1.0)
            kept.end_ring(name)
        kept.pass_seconds(50, 1.0)

        listed = {wanted: [run.run for run in kept.last(wanted).runs] for wanted in (40, 120, 240)}

        assert listed == {40: [], 120: ["second"], 240: ["first", "second"]}

        kept.rings.clear()
        kept.pass_second(1.0)
        assert not kept.history._ended_ns


class TestAPauseThatBeganBefore:
    def test_is_cut_where_the_window_begins(self, kept: Kept) -> None:
        kept.pass_seconds(100, 1.0)
        kept.pass_seconds(50, 0.0)
        kept.pass_seconds(20, 1.0)

        found = totals(kept.last(30))

        assert (found.observed_ns, found.busy_ns) == (s(30), s(20))
        assert found.idle_ns == {IdleCause.UNKNOWN: s(10)}
        assert found.gaps.total_ns == found.gaps.longest_ns == found.lost_ns == s(10)

    def test_is_no_part_of_a_window_that_began_after_it(self, kept: Kept) -> None:
        kept.processes[0] = NOTEBOOK
        kept.pass_seconds(100, 1.0)
        kept.pass_seconds(500, 0.0)
        kept.pass_seconds(61, 1.0)

        found = kept.last(60)

        assert (totals(found).observed_ns, totals(found).busy_ns) == (s(60), s(60))
        assert totals(found).lost_ns == 0
        assert found.gpus[0].verdict.name.value == "healthy"

    def test_counts_as_far_as_it_is_inside_while_it_lasts(self, kept: Kept) -> None:
        kept.pass_seconds(100, 1.0)
        kept.pass_seconds(40, 0.0)

        found = totals(kept.last(30))

        assert (found.observed_ns, found.pending_ns, found.idle_ns) == (s(30), s(30), {})

    def test_is_cut_where_a_first_batch_came_late(self, kept: Kept) -> None:
        kept.ring()
        kept.pass_second(0.0, phases=[(0.0, WAIT)])
        kept.pass_seconds(99, 0.0)
        kept.pass_second(1.0, phases=[(0.0, STEP)])
        kept.pass_seconds(9, 1.0)

        found = totals(kept.last(30))

        assert found.observed_ns == found.in_use_ns == s(30)
        assert found.idle_ns == {IdleCause.INPUT_WAIT: s(20)}
        assert sum(found.input_wait_by_reason_ns.values()) == s(20)

    @given(
        st.lists(st.sampled_from([0.0, 0.0, 0.02, 0.2, 0.5, 1.0]), min_size=2, max_size=90),
        st.data(),
    )
    def test_leaves_the_sums_closed_and_nothing_of_before(
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
        assert found.busy_ns == _busy_ns(samples[middle:])
        assert min([*found.idle_ns.values(), found.pending_ns]) >= 0
        assert found.in_use_busy_ns <= found.in_use_ns <= found.observed_ns
        assert found.low_ns + found.high_ns <= found.in_use_ns
        assert found.gaps.total_ns <= before.observed_ns + found.observed_ns


def _busy_ns(samples: list[BusySample]) -> int:
    return sum(round((end - start) * ratio) for start, end, ratio in samples)


class TestADay:
    def test_costs_a_few_hundred_snapshots_and_an_hour_is_still_near(self, kept: Kept) -> None:
        state = kept.pass_second(1.0)
        for at_ns in range(0, DAY_NS, s(10)):
            kept.history.keep(state._replace(taken_at_ns=at_ns, gpus=()))
        now = report_of(state)

        hour, day = (kept.history.since(now, DAY_NS, h * 3600) for h in (1, 23))

        assert s(3300) <= DAY_NS - hour.origin_ns <= s(3600)
        assert s(21.5 * 3600) <= DAY_NS - day.origin_ns <= s(23 * 3600)
        levels = kept.history._store._levels
        assert len({id(one) for level in levels for one in level.snapshots}) <= 400
