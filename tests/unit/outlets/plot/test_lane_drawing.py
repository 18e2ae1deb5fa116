"""Specification of a lane's columns: shares of time, to the pixel."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.core.accounting.intervals import Interval
from gpumon.core.log_summary.busy_lane import BusyLane, Lane
from gpumon.core.phase import TrainingPhase
from gpumon.core.report.lanes import RunLane
from gpumon.outlets.plot.lane_drawing import (
    close_together,
    columns_of,
    in_training,
    out_of_use,
    outside,
    unobserved_runs,
)
from tests.builders.plot import logged
from tests.builders.time import every, rhythm, s


def lane(ratios: list[float], period_s: float = 1.0) -> Lane:
    return logged(every(period_s, ratios)).lanes.gpus[0]


class TestColumns:
    def test_are_not_observed_before_a_lane_and_after_it(self) -> None:
        columns = columns_of(lane([1.0] * 4), (), Interval(s(-4), s(8)), 3)

        assert columns.observed.tolist() == pytest.approx([0.0, 1.0, 0.0])
        assert list(unobserved_runs(columns)) == [(0, 1), (2, 3)]

    def test_are_lost_by_the_idle_time_of_marked_stretches(self) -> None:
        marked = [Interval(s(1), s(2)), Interval(s(2), s(4))]
        columns = columns_of(lane([1.0, 0.0, 0.25, 0.0]), marked, Interval(0, s(4)), 4)

        assert columns.lost.tolist() == pytest.approx([0, 1, 0.75, 1], abs=0.01)

    @settings(max_examples=40)
    @given(st.lists(st.floats(0, 1), min_size=1, max_size=50), st.integers(1, 300))
    def test_hold_all_the_time_of_the_lane_whatever_their_number(
        self, ratios: list[float], count: int
    ) -> None:
        shown = BusyLane(8)
        shown.observe(every(1.0, ratios))
        cells = shown.snapshot()
        span = Interval(0, s(len(ratios)))

        columns = columns_of(cells, (), span, count)

        width_ns = span.duration_ns / count
        assert columns.busy.sum() * width_ns == pytest.approx(sum(cells.busy_ns), abs=1_000)
        assert (columns.busy <= columns.observed + 1e-6).all()
        assert (columns.observed <= 1 + 1e-6).all()


class TestTimeOutOfUse:
    def test_is_what_the_report_says(self) -> None:
        ratios = [0.0] * 33 + rhythm(7, 5, 30) + [0.0] * 77 + rhythm(6, 2, 9) + [0.02] * 40
        report, lanes = logged(every(1.0, ratios))
        (shown,) = lanes.gpus

        away_ns = sum(one.duration_ns for one in out_of_use(shown, s(60)))

        reported_ns = sum(
            idle_ns
            for cause, idle_ns in report.gpus[0].totals.idle_ns.items()
            if cause.value == "not_in_use"
        )
        assert away_ns == pytest.approx(reported_ns, abs=s(40 * 0.02) + 4 * shown.cell_ns)


def test_stretches_that_are_close_together_are_drawn_as_one() -> None:
    kept = close_together([Interval(0, 5), Interval(6, 9), Interval(30, 31)], gap_ns=1)

    assert list(kept) == [Interval(0, 9), Interval(30, 31)]


def run_lane(**phases_s: list[float]) -> RunLane:
    """A run that was so long in each phase, second by second, from 10 s on."""
    cells = {TrainingPhase(name): tuple(map(s, lengths)) for name, lengths in phases_s.items()}
    count = len(next(iter(cells.values())))
    return RunLane("train", 1, s(10), s(10 + count), s(1), cells)


class TestARunInTraining:
    def test_is_in_a_phase_that_says_what_it_does_for_most_of_a_cell(self) -> None:
        lane = run_lane(start_up=[1, 0.4, 0, 0], input_wait=[0, 0.6, 1, 0.3], other=[0, 0, 0, 0.7])

        assert [*in_training(lane)] == [Interval(s(11), s(12)), Interval(s(12), s(13))]

    def test_is_in_none_where_nothing_is_reported(self) -> None:
        assert [*in_training(RunLane("train", 1, 0, s(2), s(1), {}))] == []


class TestWhatLiesOutside:
    @pytest.mark.parametrize(
        ("others", "left"),
        [
            ([], [(10, 20), (30, 40)]),
            ([(0, 5), (25, 28), (50, 60)], [(10, 20), (30, 40)]),
            ([(12, 15)], [(10, 12), (15, 20), (30, 40)]),
            ([(5, 15), (13, 18)], [(18, 20), (30, 40)]),
            ([(0, 99)], []),
            ([(10, 20), (35, 40)], [(30, 35)]),
        ],
    )
    def test_is_what_no_other_stretch_holds(
        self, others: list[tuple[int, int]], left: list[tuple[int, int]]
    ) -> None:
        stretches = [Interval(10, 20), Interval(30, 40)]

        assert [*outside(stretches, [Interval(*one) for one in others])] == left
