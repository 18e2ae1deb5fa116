"""Specification of rows in order: whatever order and clock the file has, time rises and is kept."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
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
TEN = 10 * HOUR


class _Rows(GpuLog):
    """A reader that has its rows already."""

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


def in_order(samples: Sequence[LogSample]) -> tuple[list[LogSample], LogFacts]:
    log = log_in_order(samples)
    return list(samples_of(log)), log.facts()


def settled(written: Sequence[LogSample]) -> tuple[list[LogSample], tuple[str, ...]]:
    """What becomes of these rows, and the notes on it; whatever is dropped has been counted."""
    samples, facts = in_order(written)
    assert len(samples) + facts.skipped_lines == len(written)
    return samples, facts.notes


def log_in_order(samples: Sequence[LogSample]) -> OrderedLog:
    return OrderedLog(_Rows(samples), name="gpu.csv")


def seconds(samples: Sequence[LogSample]) -> list[float]:
    return [sample.stamp_ns / S for sample in samples]


def every_second(start_s: float, count: int, period_s: float = 1.0) -> list[LogSample]:
    return [row(start_s + at * period_s) for at in range(count)]


Rows = Sequence[LogSample]
LOG = every_second(0, 300)
LONG = every_second(0, 20_000)
DAY_S = 24 * HOUR
STRAYS = (700, 703, 1_023, 1_024 + 64, 9_000)
FROM_SUMMER = [*every_second(TEN, 9_000), *every_second(TEN + 9_000 - HOUR, 14_000)]
TO_SUMMER = [*every_second(TEN - 999.5, 1_000), *every_second(TEN + HOUR + 0.5, 5_000)]


def with_one_there_twice(at: int) -> Rows:
    """One row late, and another twice: rows are read in blocks of 1,024, 128 of them held back."""
    log = every_second(0, 2_300)
    return [*log[:1_600], log[1_601], log[1_600], *log[1_602:at], log[at], *log[at:]]


def without(log: Rows, *places: int) -> Rows:
    return [one for at, one in enumerate(log) if at not in places]


ORDERS: dict[str, tuple[Any, ...]] = {
    **{
        f"rows of {gpus} GPUs that rise are handed on as they are": (log, log, ())
        for gpus in (1, 3)
        for log in [[row(at, gpu=gpu) for at in range(10_000 // gpus) for gpu in range(gpus)]]
    },
    "rows go on after a hole": (
        log := [*every_second(TEN, 100), *every_second(TEN + 2 * DAY_S, 100)], log, ()
    ),
    **{
        f"a late row is put back: {written}": (
            [row(at) for at in written], every_second(1, 5), ("late back",)
        )
        for written in ((1, 2, 4, 3, 5), (1, 2, 3, 5, 4))
    },
    "a late row may be in a block of them": (
        [*LOG[:100], *LOG[150:200], *LOG[100:150], *LOG[200:]], LOG, None
    ),
    "a row later than rows are held is dropped": (
        [*without(LONG[:9_000], 500), LONG[500], *LONG[9_000:]], without(LONG, 500), None,
    ),
    **{
        f"a late row leaves row {at:,} looked at": (
            with_one_there_twice(at), every_second(0, 2_300), ("late back", "1 row there twice")
        )
        for at in (1_930, 1_950, 1_970, 1_990, 2_010)
    },
    "a row that is there twice counts once": (
        [*every_second(0.5, 5), *every_second(2.5, 8)], every_second(0.5, 10),
        ("late back", "3 rows there twice"),
    ),
    "a row that is there twice with another value is dropped where the clock is fine enough": (
        [row(1.5), row(2.5), row(2.5, 0.0), row(3.5)], every_second(1.5, 3), ("1 row with a time",)
    ),
    "time that stands still is not known from two rows": (
        [row(TEN)] * 2, every_second(TEN, 2, 0.5), None
    ),
    "time that stands still in rows that contradict each other keeps the first": (
        [row(TEN + 0.25), row(TEN + 0.25, busy=0.5)], [row(TEN + 0.25)], None
    ),
    "time that stands still and goes on again is read on": (
        [*LOG[:100], *[LOG[99]] * 8_000, *LOG[100:]], LOG, None
    ),
    **{
        f"row {at} that is 36 years after all others is dropped": (
            [*LOG[:at], row(at + 36 * 365 * DAY_S), *LOG[at + 1 :]], without(LOG, at),
            ("1 row whose time is far after",),
        )
        for at in (1, 150, 298)
    },
    "a row that is 20 years before all others is dropped": (
        [*LOG[:150], row(150 - 20 * 365 * DAY_S), *LOG[151:]], without(LOG, 150), ("64 rows late",),
    ),
    "rows far after the others are dropped in every block": (
        [row(at + 90 * DAY_S * (at in STRAYS)) for at in range(20_000)], without(LONG, *STRAYS),
        None,
    ),
    "the end of summer time counts the hour that comes twice once": (
        FROM_SUMMER, every_second(TEN, 19_400),
        ("late back", "64 rows there twice", "3,536 rows that came more than 64 rows late"),
    ),
    "the begin of summer time is a hole": (TO_SUMMER, TO_SUMMER, ()),
    "a clock that is set back counts repeated time once": (
        [*every_second(TEN, 500), *every_second(TEN + 300, 2_000)], every_second(TEN, 2_300),
        ("late back", "65 rows there twice", "135 rows that came more than 64 rows late"),
    ),
    "a part that was put behind a later one is dropped": (
        [*every_second(TEN + 5_000, 500), *every_second(TEN, 100), *every_second(TEN + 5_500, 100)],
        every_second(TEN + 5_000, 600), ("100 rows that came more than 64 rows late",),
    ),
}  # fmt: skip
"""What is written and kept, a part of each note (``None``: not asked)."""


class TestAClock:
    @pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
    def test_is_read_so_that(self, order: tuple[Any, ...]) -> None:
        written, kept, message = order

        samples, notes = settled(written)

        assert samples == kept
        if message is not None:
            assert len(notes) == len(message)
            assert all(part in note for part, note in zip(message, notes, strict=True))

    def test_that_is_put_back_in_a_short_log_is_refused_with_where_to_cut_it(self) -> None:
        with pytest.raises(UnreadableLogError, match=r"of 15,000 rows.*cut where the clock"):
            settled(FROM_SUMMER[8_000:])


class TestALateRow:
    @given(st.data())
    @settings(max_examples=30)
    def test_within_the_window_changes_nothing(self, data: st.DataObject) -> None:
        log = [row(at * 0.25, busy=at % 7 / 7, gpu=at % 2) for at in range(150)]

        samples, facts = in_order(shuffled(log, data))

        assert facts.skipped_lines == 0
        for gpu in (0, 1):
            assert [one for one in samples if one.gpu == gpu] == log[gpu::2]

    @given(st.data())
    @settings(max_examples=15)
    def test_within_the_window_leaves_the_report_as_it_is(self, data: st.DataObject) -> None:
        header, *lines = smi_log([0 if at % 7 > 3 else 96 for at in range(120)]).splitlines()

        gpu = only_gpu(analysed(rows(header, *shuffled(lines, data))))

        assert gpu == only_gpu(analysed(rows(header, *lines)))


def shuffled(log: list[Any], data: st.DataObject) -> list[Any]:
    """The same rows, none of them further from its place than rows are held."""
    places = [at + data.draw(st.integers(0, WINDOW_ROWS - 1)) for at in range(len(log))]
    return [log[at] for at in sorted(range(len(log)), key=lambda at: places[at])]


class TestAStampOfWholeSeconds:
    def test_on_rows_that_are_faster_is_spread_over_its_second(self) -> None:
        kept, notes = settled([row(at // 5) for at in range(50)])

        assert seconds(kept) == pytest.approx([at / 5 for at in range(50)])
        assert any(" 0.2 s" in note for note in notes)

    @pytest.mark.parametrize(
        ("first", "end"), [(3, 47), (0, 20_000)], ids=["within a second", "where blocks meet"]
    )
    def test_begins_and_ends_anywhere(self, first: int, end: int) -> None:
        kept, _ = settled([row(at // 5) for at in range(first, end)])

        assert seconds(kept) == pytest.approx([at / 5 for at in range(first, end)])

    def test_may_have_rows_that_do_not_divide_it(self) -> None:
        kept, _ = settled([row(int(at * 0.4)) for at in range(1_000)])

        assert len(kept) == 1_000
        assert all(abs(s - at * 0.4) < 0.41 for at, s in enumerate(seconds(kept)))

    @pytest.mark.parametrize("a_minute", [6, 60, 120, 420, 900])
    def test_may_be_one_of_whole_minutes(self, a_minute: int) -> None:
        kept, _ = settled([row(TEN + at // a_minute * 60) for at in range(10 * a_minute)])

        assert seconds(kept) == pytest.approx(
            [TEN + at * 60 / a_minute for at in range(10 * a_minute)]
        )

    def test_is_not_taken_for_one_of_minutes_by_two_moments(self) -> None:
        log = [row(TEN + at // 4 * 60) for at in range(8)]

        assert seconds(in_order(log)[0])[3] < TEN + 1

    @pytest.mark.parametrize("more", [0, 1, 143])
    def test_is_reported_with_the_pace_of_most_rows_whatever_the_last_ones_have(
        self, more: int
    ) -> None:
        log = [row(TEN + at // 428 * 60) for at in range(428 * 7 + more)]

        kept, notes = settled(log)

        assert any(" 0.140187 s" in note for note in notes)
        assert seconds(kept)[-1] == pytest.approx(TEN + (len(log) - 1) * 60 / 428)


class TestTimeThatStandsStill:
    @pytest.mark.parametrize("stamp", [TEN, TEN + 0.25])
    @pytest.mark.parametrize("count", [3, 500, 20_000])
    def test_is_a_sentence(self, stamp: float, count: int) -> None:
        with pytest.raises(UnreadableLogError, match=f"still: all {count:,}"):
            in_order([row(stamp)] * count)

    def test_is_no_lack_of_rows_which_is_a_sentence_too(self) -> None:
        with pytest.raises(UnreadableLogError, match="no line"):
            in_order([])


class TestLaws:
    @given(
        st.lists(
            st.tuples(st.integers(0, 2), st.integers(0, 20_000), st.sampled_from([0.0, 1.0])),
            max_size=200,
        ),
        st.sampled_from([S, S // 4]),
    )
    def test_time_rises_and_every_row_is_handed_on_or_counted(
        self, given_rows: list[tuple[int, int, float]], unit_ns: int
    ) -> None:
        log = [LogSample(gpu, at * unit_ns, busy) for gpu, at, busy in given_rows]
        reader = log_in_order(log)
        samples: list[LogSample] = []
        try:
            samples.extend(samples_of(reader))
        except UnreadableLogError as refusal:
            if not re.search("several logs|sort ", str(refusal)):
                moments = {(one.gpu, one.stamp_ns) for one in log}
                assert len(moments) == len({one.gpu for one in log})
                return

        assert len(samples) + reader.facts().skipped_lines == len(log)
        for gpu in range(3):
            stamps = [one.stamp_ns for one in samples if one.gpu == gpu]
            assert stamps == sorted(set(stamps))


RUN_BACK = r"[\d,]+ of [\d,]+ rows are earlier than rows above them; sort"
SAME_TIMES = "no header, and .* have a time that other rows have"
HEADER = ["timestamp, utilization.gpu [%]"]


def log_of(seed: int = 0, count: int = 400, start_s: int = 0, digits: int = 3) -> list[str]:
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
    return [line for seed in range(logs) for line in log_of(seed, count)]


def in_turn(logs: int, digits: int = 3) -> list[str]:
    seconds_of_all = zip(*(log_of(n, digits=digits) for n in range(logs)), strict=True)
    return [line for of_a_second in seconds_of_all for line in of_a_second]


def backwards(header: list[str], count: int) -> list[str]:
    return header + log_of(count=count)[::-1]


REFUSED: dict[str, tuple[str, Callable[[], list[str]]]] = {
    "3 logs of the same minutes": (RUN_BACK, lambda: one_after_another(3, 100)),
    "40 logs of the same minutes": (RUN_BACK, lambda: one_after_another(40, 100)),
    "2 logs of the same time": (RUN_BACK, lambda: one_after_another(2)),
    "3 logs of the same time": (RUN_BACK, lambda: one_after_another(3)),
    "40 logs of the same time": (RUN_BACK, lambda: one_after_another(40)),
    "rows of different logs in turn": (SAME_TIMES, lambda: in_turn(60)),
    "more rows a second than anybody logs": (SAME_TIMES, lambda: in_turn(60, digits=0)),
    "dates that are in no order": (RUN_BACK, lambda: random.Random(3).sample(log_of(), 400)),
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
    "a clock set back": (1_600, lambda: log_of(count=900) + log_of(count=900, start_s=700)),
    "rows that run back, within the rows that are held": (60, lambda: log_of(count=60)[::-1]),
    "every row twice": (400, lambda: [line for line in log_of() for _ in range(2)]),
    "8 GPUs": (
        400, lambda: [line.replace(",", f", {gpu},") for line in log_of() for gpu in range(8)]
    ),
    "7 rows a second": (400, lambda: [line for line in log_of(digits=0) for _ in range(7)]),
    "under a header, a clock that is set back every hour": (
        8_712, lambda: HEADER + [line for n in range(24) for line in log_of(n, 363, 360 * n)]
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
