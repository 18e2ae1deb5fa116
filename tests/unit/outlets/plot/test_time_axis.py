"""Specification of the time axis: round ticks, by the wall clock where there is one."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.outlets.plot.drawing import text_width
from gpumon.outlets.plot.time_axis import TICK_SIZE, TimeAxis, axis_of
from tests.builders_log_plot import logged
from tests.builders_time import every, s

DAY = 86_400


def axis(span_s: float, started_at: str | None = None, start_s: float = 0.0) -> TimeAxis:
    report = logged(every(1.0, [1.0]), started_at=started_at).report
    return axis_of(report, s(start_s), s(start_s + span_s))


def labels(span_s: float, started_at: str | None = None) -> list[str]:
    return [tick.label for tick in axis(span_s, started_at).ticks(640)]


class TestWithoutAWallClock:
    @pytest.mark.parametrize(
        ("span_s", "first", "last"),
        [(0.9, "0 s", "0.9 s"), (45, "0 s", "45 s"), (600, "0 min", "10 min"),
         (4 * 3600, "0 min", "240 min"), (30 * 3600, "0 h", "30 h"), (40 * DAY, "0 d", "40 d")],
    )  # fmt: skip
    def test_ticks_count_from_the_start(self, span_s: float, first: str, last: str) -> None:
        found = labels(span_s)

        assert (found[0], found[-1]) == (first, last)

    def test_says_so(self) -> None:
        assert axis(10).caption() == "time from the start of the log"

    def test_is_what_a_date_beyond_the_calendar_gets(self) -> None:
        assert axis(400 * DAY, "9999-12-01T00:00:00").caption() == "time from the start of the log"

    def test_is_what_a_time_that_is_none_gets(self) -> None:
        assert axis(10, "soon").origin is None


class TestWithAWallClock:
    def test_ticks_are_at_round_times_of_it(self) -> None:
        assert labels(1_200, "2026-03-01T10:01:40")[:3] == ["10:02", "10:04", "10:06"]

    def test_ticks_tell_seconds_where_minutes_do_not_do(self) -> None:
        assert labels(50, "2026-03-01T10:01:40.500")[0] == "10:01:45"

    def test_the_date_stands_in_the_caption_where_there_is_one(self) -> None:
        caption = axis(1_200, "2026-03-01T10:01:40").caption()

        assert caption == "2026-03-01, by the clock of the log"

    def test_the_date_stands_under_the_first_tick_of_each_day(self) -> None:
        ticks = axis(4 * 3600, "2026-03-01T22:00:00").ticks(640)

        dated = [(tick.label, tick.date) for tick in ticks if tick.date]
        assert dated == [("22:00", "2026-03-01"), ("00:00", "2026-03-02")]

    def test_days_are_ticks_at_midnight(self) -> None:
        assert labels(5 * DAY, "2026-02-26T13:00:00")[:3] == [
            "2026-02-27", "2026-02-28", "2026-03-01",
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("started_at", "zone"),
        [("2026-03-01T10:00:00+00:00", "UTC"), ("2026-03-01T10:00:00+05:30", "UTC+0530")],
    )
    def test_its_zone_is_said_where_it_is_known(self, started_at: str, zone: str) -> None:
        assert axis(60, started_at).caption() == f"2026-03-01, {zone}"

    def test_an_instant_is_told_in_words(self) -> None:
        assert axis(300, "2026-03-01T10:00:00").label(s(61.25)) == "10:01:01.2"
        assert axis(3 * DAY, "2026-03-01T10:00:00").label(s(DAY)) == "2026-03-02 10:00:00"


@given(
    st.floats(1e-5, 3e9),
    st.sampled_from([None, "2026-03-01T23:59:59.987", "1970-01-01T00:00:00", "0001-01-01T00:00"]),
    st.floats(0, 1e6),
)
def test_labels_never_touch_whatever_the_span(
    span_s: float, started_at: str | None, start_s: float
) -> None:
    shown = axis(span_s, started_at, start_s)
    ticks = shown.ticks(640)

    assert 1 <= len(ticks) <= 46
    for one, other in pairwise(ticks):
        apart = 640 * (other.at_ns - one.at_ns) / (shown.end_ns - shown.start_ns)
        widths = [text_width(text, TICK_SIZE) for text in (one.label, other.label)]
        assert sum(widths) / 2 < apart
    assert all(shown.start_ns <= tick.at_ns <= shown.end_ns for tick in ticks)
