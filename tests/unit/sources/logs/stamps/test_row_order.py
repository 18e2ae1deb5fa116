"""Tests of rows in order of time, whatever order and clock the file has."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.gpu_log import GpuLog
from gpumon.sources.logs.log_sample import LogFacts, LoggedGpu, LogOptions, LogSample
from gpumon.sources.logs.stamps.row_order import WINDOW_ROWS, OrderedLog
from tests.builders.logs import analysed, only_gpu, rows, samples_of, smi_log

S = 1_000_000_000
HOUR = 3_600
DAY_S = 24 * HOUR
TEN = 10 * HOUR


class _Rows(GpuLog):
    """A reader of given rows."""

    def __init__(self, samples: Sequence[LogSample]) -> None:
        super().__init__(iter(()), name="gpu.csv", options=LogOptions())
        self._samples = samples
        self._has_answer = True
        for gpu in {row.gpu for row in samples}:
            self._gpus.position(gpu, LoggedGpu())

    def _read(self) -> Iterator[LogSample]:
        yield from self._samples


def row(at_s: float, busy: float | None = 1.0, gpu: int = 0) -> LogSample:
    return LogSample(gpu, round(at_s * S), busy)


def in_order(written: Sequence[LogSample]) -> tuple[list[LogSample], LogFacts]:
    log = OrderedLog(_Rows(written), name="gpu.csv")
    return list(samples_of(log)), log.facts()


def settled(written: Sequence[LogSample]) -> tuple[list[LogSample], tuple[str, ...]]:
    """The rows that are kept, and the notes; dropped rows must be counted."""
    samples, facts = in_order(written)
    assert len(samples) + facts.skipped_lines == len(written)
    return samples, facts.notes


def seconds(samples: Sequence[LogSample]) -> list[float]:
    return [sample.stamp_ns / S for sample in samples]


def every_second(start_s: float, count: int, period_s: float = 1.0) -> list[LogSample]:
    return [row(start_s + at * period_s) for at in range(count)]


Rows = Sequence[LogSample]
LOG = every_second(0, 300)
LONG = every_second(0, 20_000)
FROM_SUMMER = [*every_second(TEN, 9_000), *every_second(TEN + 9_000 - HOUR, 14_000)]
TO_SUMMER = [*every_second(TEN - 999.5, 1_000), *every_second(TEN + HOUR + 0.5, 5_000)]


def with_a_copy(at: int) -> Rows:
    """A late row and a copy: rows are read in blocks of 1,024, and 128 of them held back."""
    log = every_second(0, 2_300)
    return [*log[:1_600], log[1_601], log[1_600], *log[1_602:at], log[at], *log[at:]]


def without(log: Rows, *dropped: int) -> Rows:
    return [one for at, one in enumerate(log) if at not in dropped]


ORDERS: dict[str, tuple[Any, ...]] = {
    "rows that rise are not changed": (
        log := [row(at, gpu=gpu) for at in range(3_000) for gpu in range(3)], log, ()
    ),
    "a late row is put back": (
        [row(at) for at in (1, 2, 4, 3, 5)], every_second(1, 5), ("late back",)
    ),
    "a row that is too late is dropped": (
        [*without(LONG[:9_000], 500), LONG[500], *LONG[9_000:]], without(LONG, 500), None,
    ),
    **{
        f"a late row does not hide the copy of row {at:,}": (
            with_a_copy(at), every_second(0, 2_300), ("late back", "1 duplicate row")
        )
        for at in (1_930, 1_970, 2_010)
    },
    "copies count once": (
        [*every_second(0.5, 5), *every_second(2.5, 8)], every_second(0.5, 10),
        ("late back", "3 duplicate rows"),
    ),
    "a row with the time of another one is dropped if the clock is fine": (
        [row(1.5), row(2.5), row(2.5, 0.0), row(3.5)], every_second(1.5, 3), ("1 row with a time",)
    ),
    "the hour that comes twice at the end of summer time counts once": (
        FROM_SUMMER, every_second(TEN, 19_400),
        ("late back", "64 duplicate rows", "3,536 rows that came more than 64 rows late"),
    ),
    "a clock that stood still for a while is read on": (
        [*LOG[:100], *[LOG[99]] * 8_000, *LOG[100:]], LOG, None
    ),
    "the begin of summer time is a hole": (TO_SUMMER, TO_SUMMER, ()),
    "time that a clock repeats after it is set back counts once": (
        [*every_second(TEN, 500), *every_second(TEN + 300, 2_000)], every_second(TEN, 2_300),
        ("late back", "65 duplicate rows", "135 rows that came more than 64 rows late"),
    ),
}  # fmt: skip
"""Rows of the file, rows that are kept, and a part of each note (``None``: any)."""


class TestTheOrder:
    @pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
    def test_is_restored(self, order: tuple[Any, ...]) -> None:
        written, kept, parts = order

        samples, notes = settled(written)

        assert samples == kept
        if parts is not None:
            assert len(notes) == len(parts)
            assert all(part in note for part, note in zip(parts, notes, strict=True))

    @given(st.data())
    @settings(max_examples=20)
    def test_within_the_window_does_not_change_the_report(self, data: st.DataObject) -> None:
        header, *lines = smi_log([0 if at % 7 > 3 else 96 for at in range(120)]).splitlines()
        places = [at + data.draw(st.integers(0, WINDOW_ROWS - 1)) for at in range(len(lines))]
        shuffled = [lines[at] for at in sorted(range(len(lines)), key=places.__getitem__)]

        assert only_gpu(analysed(rows(header, *shuffled))) == only_gpu(
            analysed(rows(header, *lines))
        )

    @given(
        st.lists(
            st.tuples(st.integers(0, 2), st.integers(0, 20_000), st.sampled_from([0.0, 1.0])),
            max_size=200,
        ),
        st.sampled_from([S, S // 4]),
    )
    def test_rises_and_every_row_is_kept_or_counted(
        self, given_rows: list[tuple[int, int, float]], unit_ns: int
    ) -> None:
        written = [LogSample(gpu, at * unit_ns, busy) for gpu, at, busy in given_rows]
        reader = OrderedLog(_Rows(written), name="gpu.csv")
        samples: list[LogSample] = []
        try:
            samples.extend(samples_of(reader))
        except UnreadableLogError as refusal:
            if not re.search("several logs|sort ", str(refusal)):
                times = {(one.gpu, one.stamp_ns) for one in written}
                assert len(times) == len({one.gpu for one in written})
                return

        assert len(samples) + reader.facts().skipped_lines == len(written)
        for gpu in range(3):
            stamps = [one.stamp_ns for one in samples if one.gpu == gpu]
            assert stamps == sorted(set(stamps))


class TestACoarseClock:
    @pytest.mark.parametrize(("first", "end"), [(0, 50), (0, 47), (0, 20_000)])
    def test_of_seconds_is_spread_over_them(self, first: int, end: int) -> None:
        kept, notes = settled([row(at // 5) for at in range(first, end)])

        assert seconds(kept) == pytest.approx([at / 5 for at in range(first, end)])
        assert any(" 0.2 s" in note for note in notes)

    @pytest.mark.parametrize("a_minute", [6, 60, 900])
    def test_may_be_one_of_minutes(self, a_minute: int) -> None:
        kept, _ = settled([row(TEN + at // a_minute * 60) for at in range(10 * a_minute)])

        assert seconds(kept) == pytest.approx(
            [TEN + at * 60 / a_minute for at in range(10 * a_minute)]
        )

    def test_of_minutes_is_not_known_from_two_times(self) -> None:
        assert seconds(in_order([row(TEN + at // 4 * 60) for at in range(8)])[0])[3] < TEN + 1

    @pytest.mark.parametrize("more", [0, 1, 143])
    def test_has_the_period_of_most_rows_whatever_the_last_ones_have(self, more: int) -> None:
        log = [row(TEN + at // 428 * 60) for at in range(428 * 7 + more)]

        kept, notes = settled(log)

        assert any(" 0.140187 s" in note for note in notes)
        assert seconds(kept)[-1] == pytest.approx(TEN + (len(log) - 1) * 60 / 428)

    @pytest.mark.parametrize("stamp", [TEN, TEN + 0.25])
    @pytest.mark.parametrize("count", [3, 20_000])
    def test_that_stands_still_is_refused(self, stamp: float, count: int) -> None:
        with pytest.raises(UnreadableLogError, match=f"still: all {count:,}"):
            in_order([row(stamp)] * count)


RUN_BACK = r"[\d,]+ of [\d,]+ rows are earlier than rows above them; sort"
SAME_TIMES = "no header, and .* have a time that other rows have"
HEADER = ["timestamp, utilization.gpu [%]"]


def log_of(seed: int = 0, count: int = 400, start_s: int = 0, digits: int = 3) -> list[str]:
    """Rows of one GPU, a second apart."""
    values = random.Random(seed)
    times = (
        datetime(2025, 6, 13) + timedelta(seconds=start_s + at, milliseconds=values.randint(0, 9))
        for at in range(count)
    )
    return [
        f"{time:%Y/%m/%d %H:%M:%S}.{time.microsecond // 1000:03d}"[: 20 + digits - (not digits)]
        + f", {values.choice([0, 0, 95, 97])} %"
        for time in times
    ]


def one_after_another(logs: int, count: int = 400) -> list[str]:
    return [line for seed in range(logs) for line in log_of(seed, count)]


def in_turn(logs: int, digits: int = 3) -> list[str]:
    seconds_of_all = zip(*(log_of(n, digits=digits) for n in range(logs)), strict=True)
    return [line for of_a_second in seconds_of_all for line in of_a_second]


REFUSED: dict[str, tuple[str, Callable[[], list[str]]]] = {
    "a log and another one of the same time": (RUN_BACK, lambda: one_after_another(2)),
    "a clock that is set back again and again to its first time": (
        RUN_BACK, lambda: HEADER + one_after_another(60, 100)
    ),
    "rows of different logs in turn": (SAME_TIMES, lambda: in_turn(60)),
    "more rows a second than any tool logs": (SAME_TIMES, lambda: in_turn(60, digits=0)),
    "rows that run back without a header": (RUN_BACK, lambda: log_of(count=3_000)[::-1]),
    "an hour that comes twice in a short log": (
        "of 5,400 rows.*cut where the clock",
        lambda: HEADER + log_of(count=2_700) + log_of(count=2_700),
    ),
}  # fmt: skip
READ: dict[str, tuple[float, Callable[[], list[str]]]] = {
    "a clock that is set back once": (
        1_600, lambda: log_of(count=900) + log_of(count=900, start_s=700)
    ),
    "rows that run back within the window": (60, lambda: log_of(count=60)[::-1]),
    "8 GPUs": (
        400, lambda: [line.replace(",", f", {gpu},") for line in log_of() for gpu in range(8)]
    ),
    "a clock that is set back every hour, under a header": (
        8_712, lambda: HEADER + [line for n in range(24) for line in log_of(n, 363, 360 * n)]
    ),
}  # fmt: skip


class TestALog:
    @pytest.mark.parametrize(("reason", "made"), REFUSED.values(), ids=REFUSED)
    def test_is_refused_if_it_is_several(self, reason: str, made: Callable[[], list[str]]) -> None:
        with pytest.raises(UnreadableLogError, match=reason):
            analysed(rows(*made()))

    @pytest.mark.parametrize(("observed_s", "made"), READ.values(), ids=READ)
    def test_is_read_if_it_may_be_one(
        self, observed_s: float, made: Callable[[], list[str]]
    ) -> None:
        assert analysed(rows(*made())).observed_ns == pytest.approx(observed_s * 1e9, rel=0.01)
