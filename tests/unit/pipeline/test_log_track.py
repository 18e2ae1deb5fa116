"""One GPU of a log: the time that its rows cover, however they come."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain, pairwise
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.core.log_summary.activity import ChangeBudget, GpuActivity
from gpumon.core.report.report import Report
from gpumon.core.sample import BusySample
from gpumon.core.settings.detector import DEFAULT_SETTINGS, DetectorSettings
from gpumon.pipeline.log_analysis import LogAnalysis
from gpumon.pipeline.log_track import GpuTrack, merge_equal_samples
from gpumon.sources.logs.log_sample import LoggedGpu, LogSample
from tests.builders.logs import analysed, blocks_of, facts_of, only_gpu, report_of, smi_log
from tests.builders.time import s

GIB, TENTH, BEGAN_S = 1 << 30, s(0.1), 1_000


def tenths(*ratios: float) -> list[BusySample]:
    return [BusySample(n * TENTH, (n + 1) * TENTH, ratio) for n, ratio in enumerate(ratios)]


class TestEqualRowsOfOneDriverWindow:
    @pytest.mark.parametrize(
        ("reported", "joined_s"),
        [
            (tenths(0.4, 0.4, 0.4, 0.0), [(0.0, 0.3, 0.4), (0.3, 0.4, 0.0)]),
            (tenths(*[0.0] * 25), [(0, 1, 0.0), (1, 2, 0.0), (2, 2.5, 0.0)]),
            (tenths(0.4, 0.0, 0.4)[::2], [(0.0, 0.1, 0.4), (0.2, 0.3, 0.4)]),
        ],
        ids=["", "of the longest window at most", "where no hole is between"],
    )
    def test_are_one_sample(
        self, reported: list[BusySample], joined_s: list[tuple[float, float, float]]
    ) -> None:
        assert merge_equal_samples(reported) == [
            (s(begin), s(end), ratio) for begin, end, ratio in joined_s
        ]

    def test_count_the_complete_window_in_which_a_pause_begins(self) -> None:
        # Windows of half a second: busy, half busy as the pause begins, idle, half busy again.
        cycle = [96] * 15 + [40] * 5 + [0] * 10 + [40] * 5
        totals = only_gpu(analysed(smi_log(cycle * 12 + [96] * 5, period_s=0.1))).totals

        assert totals.gaps.total_ns / 1e9 == pytest.approx(12 * (1.0 + 2 * 0.5 * 0.6), rel=0.02)


Stretch = tuple[float, int]
"""Seconds between two rows, and how many times in turn."""


def busy_rows(*stretches: Stretch) -> list[LogSample]:
    """Rows of a busy GPU, so far apart."""
    intervals_s = chain.from_iterable([period_s] * count for period_s, count in stretches)
    return [LogSample(0, s(at), 1.0) for at in accumulate(chain([1_000.0], intervals_s))]


def busy_log(*stretches: Stretch) -> Report:
    return report_of(busy_rows(*stretches))


def observed_s(one: Report) -> float:
    return one.observed_ns / 1e9


class TestALogWhosePeriodChanges:
    @pytest.mark.parametrize(
        ("stretches", "seconds", "period_s"),
        [
            ([(1, 200), (60, 30)], 1 + 200 + 30 * 60, 60),
            ([(1, 2_000), (60, 30)], 1 + 2_000 + 30 * 60, 1),
            ([(60, 100), (1, 300)], 1 + 6_000 + 300, 60),
            ([(1, 8), (60, 100)], 1 + 8 + 6_000, 60),
            ([(1, 100), (15, 20)] * 5, 1 + 5 * (100 + 300), 15),
            ([(1, 100), (60, 4), (1, 100)], 1 + 200 + 4 * 60, 1),
        ],
        ids=["", "for little of its time", "where rows come closer", "within its first rows",
             "again and again", "from the fourth row on that is as far from the one before"],
    )  # fmt: skip
    def test_is_observed_all_the_time_and_has_the_period_of_most_of_it(
        self, stretches: list[Stretch], seconds: float, period_s: float
    ) -> None:
        report = busy_log(*stretches)

        assert (observed_s(report), report.period_ns) == (seconds, s(period_s))
        assert not [note for note in report.notes if "hole" in note]

    @pytest.mark.parametrize("coarse", [40, 400])
    def test_has_no_period_that_hardly_a_row_has(self, coarse: int) -> None:
        """Forty rows of a minute take more time than ten thousand that come seven a second."""
        report = busy_log((60, coarse), (0.14, 100 * coarse))

        assert report.period_ns == s(0.14)
        assert any("60 s for" in note for note in report.notes)
        assert busy_log(*[(0.14, 996), (60, 4)] * 5).period_ns == s(0.14)

    def test_begins_a_second_before_its_first_row_at_most(self) -> None:
        rows = "".join(f"2026/03/02 {hour:02}:00:00.000, 97 %\n" for hour in range(9, 14))
        report = analysed(f"timestamp, utilization.gpu [%]\n{rows}")

        assert observed_s(report) == 4 * 3_600 + 1
        assert report.started_at == "2026-03-02T08:59:59.000"

    @given(
        st.lists(
            st.tuples(st.sampled_from([0.1, 1.0, 5.0, 60.0]), st.integers(4, 90)),
            min_size=1, max_size=6,
        ),
        st.lists(st.floats(0.9, 1.1), min_size=3, max_size=11),
    )  # fmt: skip
    @settings(max_examples=50)
    def test_loses_no_second_and_counts_none_twice(
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


class TestAHole:
    @pytest.mark.parametrize(
        ("silences_s", "then"),
        [([60], 100), ([60] * 3, 100), ([40, 900, 70, 4_000, 30, 800], 100), ([60, 60], 0)],
        ids=["one", "three", "of any length", "at the end"],
    )  # fmt: skip
    def test_is_where_too_few_equal_intervals_follow_each_other(
        self, silences_s: list[float], then: int
    ) -> None:
        report = busy_log((1, 100), *((one, 1) for one in silences_s), (1, then))

        assert observed_s(report) == 1 + 100 + len(silences_s) + then

    def test_is_longer_than_the_period_at_that_time(self) -> None:
        report = busy_log((60, 100), (1, 300), (30, 1), (1, 20))

        assert observed_s(report) == 1 + 6_000 + 300 + 1 + 20
        assert any("29.0 s in 1 " in note for note in report.notes)

    def test_is_longer_than_the_period_that_the_user_gives(self) -> None:
        analysis = LogAnalysis(DetectorSettings(), period_ns=s(1))
        analysis.ingest(blocks_of(busy_rows((1, 50), (60, 50), (0.25, 40), (1, 1), (0.25, 4))))

        assert observed_s(analysis.report("gpu.csv", facts_of([LoggedGpu()]))) == 101 + 12


def test_a_row_whose_time_does_not_rise_is_dropped_and_counted() -> None:
    rows = [LogSample(0, s(at), 1.0) for at in (1, 2, 3, 3, 2.5, 4, 5)]

    report = report_of(rows)

    assert (observed_s(report), report.skipped_lines) == (5, 2)
    assert any("2 rows" in note for note in report.notes)


class Row(NamedTuple):
    """A row, and how many times it comes in turn."""

    busy_ratio: float | None
    used_bytes: int | None
    times: int


stories = st.lists(
    st.builds(
        Row,
        st.sampled_from([0.0, 0.0, 0.02, 0.3, 0.6, 0.97, None]),
        st.sampled_from([0, 12 * GIB, 12 * GIB, None]),
        st.integers(1, 30),
    ),
    max_size=60,
)
periods_s = st.sampled_from([0.1, 0.25, 1.0, 5.0, 60.0])


def tracked(story: list[Row], period_s: float, *, gpus: int = 1, block: int = 1) -> GpuTrack:
    """One GPU of a log of so many, with its rows in blocks."""
    track = GpuTrack(DEFAULT_SETTINGS, None, ChangeBudget())
    track.share_memory(gpus)
    rows = [row for row in story for _ in range(row.times)]
    stamps_ns = [s(BEGAN_S + at * period_s) for at in range(len(rows))]
    for at in range(0, len(rows), block):
        part = rows[at : at + block]
        ratios, used = [row.busy_ratio for row in part], [row.used_bytes for row in part]
        track.ingest_rows(stamps_ns[at : at + block], ratios, used)
    track.finish()
    return track


class TestLaws:
    @given(stories, periods_s, st.sampled_from([1, 1_000]))
    @settings(max_examples=50)
    def test_ledger_lane_and_states_agree(
        self, story: list[Row], period_s: float, gpus: int
    ) -> None:
        track = tracked(story, period_s, gpus=gpus)

        totals, lane = track.ledger.snapshot(), track.lane.snapshot()
        spans = [(until - at, state) for (at, state), (until, _) in pairwise(track.changes)]
        assert totals.busy_ns + totals.idle_total_ns == totals.observed_ns
        assert totals.pending_ns == 0
        assert sum(lane.observed_ns) == totals.observed_ns
        assert sum(lane.busy_ns) == totals.busy_ns
        assert sum(ns for ns, state in spans if state) == totals.observed_ns
        assert sum(ns for ns, state in spans if state >= GpuActivity.PAUSED) == totals.in_use_ns

    @given(stories, periods_s, st.integers(1, 300), st.sampled_from([1, 1_000]))
    @settings(max_examples=50)
    def test_blocks_and_other_gpus_change_nothing(
        self, story: list[Row], period_s: float, block: int, gpus: int
    ) -> None:
        alone = tracked(story, period_s)
        beside = tracked(story, period_s, block=block, gpus=gpus)

        ledgers = [
            track.ledger.snapshot()._replace(episodes=0, starved_now=False)
            for track in (alone, beside)
        ]
        assert ledgers[0] == ledgers[1]
        assert list(alone.changes) == list(beside.changes)
        assert alone.lane.snapshot() == beside.lane.snapshot()
        assert (alone.held, alone.holes_ns, alone.samples) == (
            beside.held, beside.holes_ns, beside.samples,
        )  # fmt: skip
