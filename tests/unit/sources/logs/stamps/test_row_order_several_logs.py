"""Specification of rows that are not of one log in the order of time: refused, not guessed at."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

import pytest

from gpumon.errors import UnreadableLogError
from tests.builders.logs import analysed, rows

RUN_BACK = r"[\d,]+ of [\d,]+ rows are earlier than rows above them; sort"
SAME_TIMES = "no header, and .* have a time that other rows have"
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
    "3 logs of the same minutes": (RUN_BACK, lambda: one_after_another(3, 100)),
    "40 logs of the same minutes": (RUN_BACK, lambda: one_after_another(40, 100)),
    "2 logs of the same time": (RUN_BACK, lambda: one_after_another(2)),
    "3 logs of the same time": (RUN_BACK, lambda: one_after_another(3)),
    "40 logs of the same time": (RUN_BACK, lambda: one_after_another(40)),
    "rows of different logs in turn": (SAME_TIMES, lambda: in_turn(60)),
    "more rows a second than anybody logs": (SAME_TIMES, lambda: in_turn(60, digits=0)),
    "dates that are in no order": (RUN_BACK, lambda: random.Random(3).sample(log(), 400)),
    "a clock that is set back again and again to where it began": (
        RUN_BACK, lambda: HEADER + one_after_another(60, 100)
    ),
    **{
        f"{count} rows that run back under {len(header)} header": (
            RUN_BACK, partial(backwards, header, count)
        )
        for header in (HEADER, [])
        for count in (400, 3_000)
    },
}  # fmt: skip
READ_ON: dict[str, tuple[float, Callable[[], list[str]]]] = {
    "a clock set back": (1_600, lambda: log(count=900) + log(count=900, start_s=700)),
    "rows that run back, within the rows that are held": (60, lambda: log(count=60)[::-1]),
    "every row twice": (400, lambda: [line for line in log() for _ in range(2)]),
    "8 GPUs": (
        400, lambda: [line.replace(",", f", {gpu},") for line in log() for gpu in range(8)]
    ),
    "7 rows a second": (400, lambda: [line for line in log(digits=0) for _ in range(7)]),
    "under a header, a clock that is set back every hour": (
        8_712, lambda: HEADER + [line for n in range(24) for line in log(n, 363, 360 * n)]
    ),
}  # fmt: skip


class TestLogsPutTogether:
    @pytest.mark.parametrize(("message", "made"), REFUSED.values(), ids=REFUSED)
    def test_are_refused(self, message: str, made: Callable[[], list[str]]) -> None:
        with pytest.raises(UnreadableLogError, match=message):
            analysed(rows(*made()))


class TestWhatHappensToOneLog:
    @pytest.mark.parametrize(("observed_s", "made"), READ_ON.values(), ids=READ_ON)
    def test_is_read_on(self, observed_s: float, made: Callable[[], list[str]]) -> None:
        observed_ns = analysed(rows(*made())).observed_ns

        assert observed_ns == pytest.approx(observed_s * 1e9, rel=0.01)
