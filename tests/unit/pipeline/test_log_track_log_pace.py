"""Specification of a log's pace: followed where it changes, and a hole is no change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.report.report import Report
from gpumon.core.settings.detector import DetectorSettings
from gpumon.pipeline.log_analysis import LogAnalysis
from gpumon.sources.logs.log_sample import LogFacts, LoggedGpu, LogSample
from gpumon.sources.logs.stamps.log_clock import NO_CLOCK
from tests.builders_log_rows import report_of
from tests.builders_time import s


def busy_log(*intervals_s: Iterable[float]) -> Report:
    """A GPU that is busy in every row; rows come so far apart."""
    stamps = accumulate(chain([1_000.0], *intervals_s))
    return report_of([LogSample(0, s(at), 1.0) for at in stamps])


def observed_s(one: Report) -> float:
    return one.observed_ns / 1e9


class TestALogWhosePeriodChanges:
    def test_is_observed_all_the_time(self) -> None:
        report = busy_log(repeat(1, 200), repeat(60, 30))

        assert observed_s(report) == 1 + 200 + 30 * 60
        assert not [note for note in report.notes if "hole" in note]

    def test_is_so_where_rows_come_closer(self) -> None:
        report = busy_log(repeat(60, 100), repeat(1, 300))

        assert observed_s(report) == 60 + 6_000 + 300

    def test_has_holes_judged_by_its_period_of_the_time(self) -> None:
        report = busy_log(repeat(60, 100), repeat(1, 300), [30], repeat(1, 20))

        assert observed_s(report) == 60 + 6_000 + 300 + 1 + 20
        assert any("29.0 s in 1 hole " in note for note in report.notes)

    def test_has_the_period_of_most_of_its_time(self) -> None:
        assert busy_log(repeat(1, 200), repeat(60, 30)).period_ns == s(60)
        assert busy_log(repeat(1, 2_000), repeat(60, 30)).period_ns == s(1)

    @pytest.mark.parametrize("coarse", [40, 400])
    def test_has_none_that_hardly_a_row_has(self, coarse: int) -> None:
        """Forty rows of a minute take more time than ten thousand that come seven a second."""
        report = busy_log(repeat(60, coarse), repeat(0.14, 100 * coarse))

        assert report.period_ns == s(0.14)
        assert any("60 s for" in note for note in report.notes)

    def test_has_none_that_breaks_of_one_length_have(self) -> None:
        assert busy_log(*([*repeat(0.14, 996), *repeat(60, 4)] for _ in range(5))).period_ns == s(
            0.14
        )

    def test_says_so(self) -> None:
        report = busy_log(repeat(1, 599), repeat(60, 120))

        assert (
            "The time between two lines is not always the same: 1 s for 10 min and 60 s for "
            "2 h of GPU time." in report.notes
        )

    def test_is_so_within_its_first_rows(self) -> None:
        report = busy_log(repeat(1, 8), repeat(60, 100))

        assert observed_s(report) == 1 + 8 + 6_000
        assert report.period_ns == s(60)

    def test_may_change_again_and_again(self) -> None:
        report = busy_log(*([*repeat(1, 100), *repeat(15, 20)] for _ in range(5)))

        assert observed_s(report) == 1 + 5 * (100 + 300)

    def test_has_changed_with_the_fourth_row_that_is_as_far_from_the_one_before(self) -> None:
        report = busy_log(repeat(1, 100), repeat(60, 4), repeat(1, 100))

        assert observed_s(report) == 1 + 200 + 4 * 60


class TestAHole:
    @pytest.mark.parametrize("count", [1, 2, 3])
    def test_is_none_of_a_new_period_where_so_few_follow_each_other(self, count: int) -> None:
        report = busy_log(repeat(1, 100), repeat(60, count), repeat(1, 100))

        assert observed_s(report) == 1 + 200 + count

    def test_is_a_hole_where_the_silences_are_of_any_length(self) -> None:
        report = busy_log(repeat(1, 100), [40, 900, 70, 4_000, 30, 800], repeat(1, 100))

        assert observed_s(report) == 1 + 200 + 6

    def test_at_the_end_of_a_log_is_one(self) -> None:
        assert observed_s(busy_log(repeat(1, 100), [60, 60])) == 1 + 100 + 2

    def test_is_what_the_user_says_it_is(self) -> None:
        rows = [LogSample(0, s(at), 1.0) for at in accumulate([1_000, *[1] * 50, *[60] * 50])]
        analysis = LogAnalysis(DetectorSettings(), period_ns=s(1))
        analysis.take(rows)
        facts = LogFacts(
            clock=NO_CLOCK, gpus=(LoggedGpu(),), skipped_lines=0, period_ns=None, notes=()
        )

        assert observed_s(analysis.report("gpu.csv", facts)) == 101


class TestLaws:
    @given(
        st.lists(
            st.tuples(st.sampled_from([0.1, 1.0, 5.0, 60.0]), st.integers(4, 90)),
            min_size=1, max_size=6,
        ),
        st.lists(st.floats(0.9, 1.1), min_size=3, max_size=11),
    )  # fmt: skip
    def test_no_second_is_lost_or_counted_twice_where_periods_differ_by_more_than_jitter(
        self, stretches: Sequence[tuple[float, int]], jitter: Sequence[float]
    ) -> None:
        intervals = [
            round(period_s * jitter[at % len(jitter)], 3)
            for period_s, count in stretches
            for at in range(count)
        ]

        report = busy_log(intervals)

        lost_s = sum(intervals) - observed_s(report)
        first_s = max(period_s for period_s, _ in stretches) * 1.1
        assert -first_s - 1e-6 <= lost_s <= 1e-6


class TestARowWhoseTimeDoesNotRise:
    def test_is_dropped_and_counted_though_a_reader_should_have_put_it_in_order(self) -> None:
        rows = [LogSample(0, s(at), 1.0) for at in (1, 2, 3, 3, 2.5, 4, 5)]

        report = report_of(rows)

        assert observed_s(report) == 5
        assert report.skipped_lines == 2
        assert report.notes == ("Dropped 2 rows whose time did not rise.",)
