"""Specification of joining fast rows into the driver's windows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.sample import BusySample
from gpumon.pipeline.log_track import merge_equal_samples
from tests.builders.logs import analysed, only_gpu, smi_log
from tests.builders.time import s

TENTH = s(0.1)


def rows(*ratios: float) -> list[BusySample]:
    return [BusySample(n * TENTH, (n + 1) * TENTH, ratio) for n, ratio in enumerate(ratios)]


class TestRowsThatSayTheSame:
    @pytest.mark.parametrize(
        ("reported", "joined_s"),
        [
            (rows(0.4, 0.4, 0.4, 0.0), [(0.0, 0.3, 0.4), (0.3, 0.4, 0.0)]),
            (rows(*[0.0] * 25), [(0, 1, 0.0), (1, 2, 0.0), (2, 2.5, 0.0)]),
            (rows(0.4, 0.0, 0.4)[::2], [(0.0, 0.1, 0.4), (0.2, 0.3, 0.4)]),
        ],
        ids=["", "of the longest window at most", "where no hole is between"],
    )
    def test_are_one_sample(
        self, reported: list[BusySample], joined_s: list[tuple[float, float, float]]
    ) -> None:
        assert merge_equal_samples(reported) == [
            (s(begin), s(end), ratio) for begin, end, ratio in joined_s
        ]

    @given(st.lists(st.sampled_from([0.0, 0.2, 0.4, 1.0]), max_size=60))
    def test_keep_every_sum(self, ratios: list[float]) -> None:
        given_rows, joined = rows(*ratios), merge_equal_samples(rows(*ratios))

        assert sum(one.end_ns - one.start_ns for one in joined) == len(given_rows) * TENTH
        assert sum((one.end_ns - one.start_ns) * one.busy_ratio for one in joined) == pytest.approx(
            sum(TENTH * ratio for ratio in ratios)
        )


class TestALogOfTenRowsASecond:
    def test_counts_the_whole_window_in_which_a_pause_begins(self) -> None:
        # Windows of half a second: busy, half busy as the pause begins, idle, half busy again.
        cycle = [96] * 15 + [40] * 5 + [0] * 10 + [40] * 5
        totals = only_gpu(analysed(smi_log(cycle * 12 + [96] * 5, period_s=0.1))).totals

        assert totals.gaps.total_ns / 1e9 == pytest.approx(12 * (1.0 + 2 * 0.5 * 0.6), rel=0.02)
