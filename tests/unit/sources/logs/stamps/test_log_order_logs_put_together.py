"""Specification of rows that are not of one log in the order of time: refused, not guessed at."""

from __future__ import annotations

import random
from datetime import datetime, timedelta

import pytest

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.log_sample import LogOptions
from tests.builders_logs import analysed

TOLD_AGAIN = r"[\d,]+ of [\d,]+ rows are of a time that other rows had told of"
HEADER = "timestamp, utilization.gpu [%]"


def log(seed: int = 0, count: int = 400, start_s: int = 0, digits: int = 3) -> list[str]:
    """Rows of one GPU, a second apart."""
    values = random.Random(seed)
    moments = (
        datetime(2025, 6, 13) + timedelta(seconds=start_s + at, milliseconds=values.randint(0, 9))
        for at in range(count)
    )
    return [
        f"{moment:%Y/%m/%d %H:%M:%S}.{moment.microsecond // 1000:03d}"[: 20 + digits - (not digits)]
        + f", {values.choice([0, 0, 95, 97])} %"
        for moment in moments
    ]


def text(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


class TestWithoutAHeader:
    @pytest.mark.parametrize("count", [100, 400], ids=["within five minutes", "longer"])
    @pytest.mark.parametrize("logs", [3, 40])
    def test_logs_of_the_same_time_one_after_another_are_refused(
        self, count: int, logs: int
    ) -> None:
        joined = [line for seed in range(logs) for line in log(seed, count)]

        with pytest.raises(UnreadableLogError, match=TOLD_AGAIN):
            analysed(text(*joined))

    def test_two_are_refused_where_the_second_tells_of_what_the_first_told(self) -> None:
        with pytest.raises(UnreadableLogError, match=TOLD_AGAIN):
            analysed(text(*log(1), *log(2)))

    def test_rows_of_different_logs_in_turn_are_refused(self) -> None:
        logs = [log(seed) for seed in range(60)]

        with pytest.raises(UnreadableLogError, match=TOLD_AGAIN):
            analysed(text(*(rows[at] for at in range(400) for rows in logs)))

    def test_more_rows_a_second_than_anybody_logs_are_refused(self) -> None:
        logs = [log(seed, digits=0) for seed in range(60)]

        with pytest.raises(UnreadableLogError, match=r"no header, and .* share their time"):
            analysed(text(*(rows[at] for at in range(400) for rows in logs)))

    def test_dates_that_are_in_no_order_are_refused(self) -> None:
        rows = log()
        random.Random(3).shuffle(rows)

        with pytest.raises(UnreadableLogError):
            analysed(text(*rows))

    def test_are_read_once_the_user_says_which_column_it_is(self) -> None:
        told = LogOptions(columns={"utilization.gpu": 1})

        assert analysed(text(*log(1), *log(2)), told).observed_ns > 0

    @pytest.mark.parametrize(
        "lines",
        [
            pytest.param([*log(count=900), *log(count=900, start_s=700)], id="a clock set back"),
            pytest.param(
                [*log(count=8_000, start_s=7_200), *log(count=4_000, start_s=11_600)],
                id="the end of summer time",
            ),
            pytest.param([*log(start_s=4_000), *log(), *log(start_s=9_000)], id="parts put wrong"),
            pytest.param([line for line in log() for _ in range(2)], id="every row twice"),
            pytest.param(
                [line.replace(",", f", {gpu},") for line in log() for gpu in range(8)], id="8 GPUs"
            ),
            pytest.param([line for line in log(digits=0) for _ in range(7)], id="7 rows a second"),
        ],
    )  # fmt: skip
    def test_what_happens_to_one_log_is_read_on(self, lines: list[str]) -> None:
        assert analysed(text(*lines)).observed_ns >= 390 * 10**9


class TestWithAHeader:
    def test_a_clock_is_not_set_back_again_and_again_to_where_it_began(self) -> None:
        joined = [line for seed in range(60) for line in log(seed, 100)]

        with pytest.raises(UnreadableLogError, match=rf"runs back .* {TOLD_AGAIN}"):
            analysed(text(HEADER, *joined))

    def test_time_that_is_told_again_counts_once(self) -> None:
        report = analysed(text(HEADER, *log(1), *log(1)))

        assert report.observed_ns == pytest.approx(400e9, rel=0.01)

    def test_a_clock_that_is_set_back_every_hour_is_read_on(self) -> None:
        joined = [line for hour in range(24) for line in log(hour, 363, 360 * hour)]

        assert analysed(text(HEADER, *joined)).observed_ns == pytest.approx(8_712e9, rel=0.01)


class TestRowsThatRunBack:
    @pytest.mark.parametrize("header", [[HEADER], []], ids=["header", "no header"])
    @pytest.mark.parametrize("count", [60, 400, 3_000])
    def test_are_refused_with_what_to_do(self, header: list[str], count: int) -> None:
        with pytest.raises(
            UnreadableLogError, match=r"run back in time .* sort them by their time"
        ):
            analysed(text(*header, *reversed(log(count=count))))
