"""Specification of rows that are not of one log in the order of time: refused, not guessed at."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

import pytest

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.log_sample import LogOptions
from tests.builders.logs import analysed, rows

TOLD_AGAIN = r"[\d,]+ of [\d,]+ rows are of a time (that other rows had told of|before)"
RUN_BACK = r"run back in time .* sort them by their time"
HEADER = ["timestamp, utilization.gpu [%]"]


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


def one_after_another(logs: int, count: int = 400) -> list[str]:
    return [line for seed in range(logs) for line in log(seed, count)]


def in_turn(logs: int, digits: int = 3) -> list[str]:
    return [line for of_a_second in zip(*(log(n, digits=digits) for n in range(logs)), strict=True)
            for line in of_a_second]  # fmt: skip


def backwards(header: list[str], count: int) -> list[str]:
    return header + log(count=count)[::-1]


REFUSED: dict[str, tuple[str, Callable[[], list[str]]]] = {
    "3 logs of the same minutes": (TOLD_AGAIN, lambda: one_after_another(3, 100)),
    "40 logs of the same minutes": (TOLD_AGAIN, lambda: one_after_another(40, 100)),
    "2 logs of the same time": (TOLD_AGAIN, lambda: one_after_another(2)),
    "3 logs of the same time": (TOLD_AGAIN, lambda: one_after_another(3)),
    "40 logs of the same time": (TOLD_AGAIN, lambda: one_after_another(40)),
    "rows of different logs in turn": (TOLD_AGAIN, lambda: in_turn(60)),
    "more rows a second than anybody logs": (
        r"no header, and .* that other rows had told of", lambda: in_turn(60, digits=0)
    ),
    "dates that are in no order": (RUN_BACK, lambda: random.Random(3).sample(log(), 400)),
    "a clock that is set back again and again to where it began": (
        rf"runs back.*{TOLD_AGAIN}", lambda: HEADER + one_after_another(60, 100)
    ),
    **{
        f"{count} rows that run back under {len(header)} header": (
            RUN_BACK, partial(backwards, header, count)
        )
        for header in (HEADER, [])
        for count in (60, 400, 3_000)
    },
}  # fmt: skip
READ_ON: dict[str, tuple[float, Callable[[], list[str]]]] = {
    "a clock set back": (1_600, lambda: log(count=900) + log(count=900, start_s=700)),
    "parts put wrong, under a header": (
        800, lambda: HEADER + log(start_s=4_000) + log() + log(start_s=9_000)
    ),
    "every row twice": (400, lambda: [line for line in log() for _ in range(2)]),
    "8 GPUs": (
        400, lambda: [line.replace(",", f", {gpu},") for line in log() for gpu in range(8)]
    ),
    "7 rows a second": (400, lambda: [line for line in log(digits=0) for _ in range(7)]),
    "under a header, time that is told again": (400, lambda: HEADER + log(1) + log(1)),
    "under a header, a clock that is set back every hour": (
        8_712, lambda: HEADER + [line for n in range(24) for line in log(n, 363, 360 * n)]
    ),
}  # fmt: skip


class TestLogsPutTogether:
    @pytest.mark.parametrize(("said", "made"), REFUSED.values(), ids=REFUSED)
    def test_are_refused(self, said: str, made: Callable[[], list[str]]) -> None:
        with pytest.raises(UnreadableLogError, match=said):
            analysed(rows(*made()))

    def test_are_read_once_the_user_says_which_column_it_is(self) -> None:
        told = LogOptions(columns={"utilization.gpu": 1})

        assert analysed(rows(*one_after_another(2)), told).observed_ns > 0


class TestWhatHappensToOneLog:
    @pytest.mark.parametrize(("observed_s", "made"), READ_ON.values(), ids=READ_ON)
    def test_is_read_on(self, observed_s: float, made: Callable[[], list[str]]) -> None:
        observed_ns = analysed(rows(*made())).observed_ns

        assert observed_ns == pytest.approx(observed_s * 1e9, rel=0.01)
