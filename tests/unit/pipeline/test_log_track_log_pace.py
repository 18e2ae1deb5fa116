"""Specification of a log's pace: it may change, but a gap is no change."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.report.report import Report
from gpumon.core.settings.detector import DetectorSettings
from gpumon.pipeline.log_analysis import LogAnalysis
from gpumon.sources.logs.log_sample import LoggedGpu, LogSample
from tests.builders.logs import analysed, blocks_of, facts_of, report_of
from tests.builders.time import s

Stretch = tuple[float, int]
"""Seconds between two rows, and how many times in turn."""


def busy_log(*stretches: Stretch) -> Report:
    """A GPU that is busy in every row; rows come so far apart."""
    return report_of(busy_rows(*stretches))


def busy_rows(*stretches: Stretch) -> list[LogSample]:
    intervals_s = chain.from_iterable([period_s] * count for period_s, count in stretches)
    return [LogSample(0, s(at), 1.0) for at in accumulate(chain([1_000.0], intervals_s))]


def observed_s(one: Report) -> float:
    return one.observed_ns / 1e9


class TestALogWhosePeriodChanges:
    @pytest.mark.parametrize(
        ("stretches", "seconds"),
        [
            ([(1, 200), (60, 30)], 1 + 200 + 30 * 60),
            ([(60, 100), (1, 300)], 1 + 6_000 + 300),
            ([(1, 8), (60, 100)], 1 + 8 + 6_000),
            ([(1, 100), (15, 20)] * 5, 1 + 5 * (100 + 300)),
            ([(1, 100), (60, 4), (1, 100)], 1 + 200 + 4 * 60),
        ],
        ids=["", "where rows come closer", "within its first rows", "though it changes again",
             "from the fourth row on that is as far from the one before"],
    )  # fmt: skip
    def test_is_observed_all_the_time(self, stretches: list[Stretch], seconds: float) -> None:
        report = busy_log(*stretches)

        assert observed_s(report) == seconds
        assert not [note for note in report.notes if "hole" in note]

    def test_begins_a_second_before_its_first_row_at_most(self) -> None:
        rows = "".join(f"2026/03/02 {hour:02}:00:00.000, 97 %\n" for hour in range(9, 14))
        report = analysed(f"timestamp, utilization.gpu [%]\n{rows}")

        assert observed_s(report) == 4 * 3_600 + 1
        assert report.started_at == "2026-03-02T08:59:59.000"

    def test_has_gaps_by_its_period_at_that_time(self) -> None:
        report = busy_log((60, 100), (1, 300), (30, 1), (1, 20))

        assert observed_s(report) == 1 + 6_000 + 300 + 1 + 20
        assert any("29.0 s in 1 " in note for note in report.notes)

    @pytest.mark.parametrize(
        ("stretches", "period_s"),
        [
            ([(1, 200), (60, 30)], 60),
            ([(1, 2_000), (60, 30)], 1),
            ([(1, 8), (60, 100)], 60),
            ([(0.14, 996), (60, 4)] * 5, 0.14),
        ],
        ids=["the longer", "the shorter", "the later", "not that of breaks of one length"],
    )  # fmt: skip
    def test_has_the_period_of_most_of_its_time(
        self, stretches: list[Stretch], period_s: float
    ) -> None:
        assert busy_log(*stretches).period_ns == s(period_s)

    @pytest.mark.parametrize("coarse", [40, 400])
    def test_has_none_that_hardly_a_row_has(self, coarse: int) -> None:
        """Forty rows of a minute take more time than ten thousand that come seven a second."""
        report = busy_log((60, coarse), (0.14, 100 * coarse))

        assert report.period_ns == s(0.14)
        assert any("60 s for" in note for note in report.notes)


class TestAHole:
    @pytest.mark.parametrize(
        ("silences_s", "then"),
        [([60], 100), ([60] * 2, 100), ([60] * 3, 100), ([40, 900, 70, 4_000, 30, 800], 100),
         ([60, 60], 0)],
        ids=["one", "two", "three", "of any length", "at the end"],
    )  # fmt: skip
    def test_is_where_too_few_alike_follow_each_other(
        self, silences_s: list[float], then: int
    ) -> None:
        report = busy_log((1, 100), *((one, 1) for one in silences_s), (1, then))

        assert observed_s(report) == 1 + 100 + len(silences_s) + then

    def test_is_what_the_user_says_it_is(self) -> None:
        analysis = LogAnalysis(DetectorSettings(), period_ns=s(1))
        analysis.ingest(blocks_of(busy_rows((1, 50), (60, 50))))

        assert observed_s(analysis.report("gpu.csv", facts_of([LoggedGpu()]))) == 101


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

        report = busy_log(*((interval, 1) for interval in intervals))

        lost_s = sum(intervals) - observed_s(report)
        first_s = max(period_s for period_s, _ in stretches) * 1.1
        assert -first_s - 1e-6 <= lost_s <= 1e-6


class TestARowWhoseTimeDoesNotRise:
    def test_is_dropped_and_counted_though_a_reader_should_have_put_it_in_order(self) -> None:
        rows = [LogSample(0, s(at), 1.0) for at in (1, 2, 3, 3, 2.5, 4, 5)]

        report = report_of(rows)

        assert observed_s(report) == 5
        assert report.skipped_lines == 2
        assert any("2 rows" in note for note in report.notes)
