"""Specification of time stamps: however a moment is written, and nothing that only looks so."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.sources.logs.stamps.log_clock import LogClock
from gpumon.sources.logs.stamps.stamp_parsers import (
    ClockStamps,
    date_in,
    find_ctime,
    looks_like_date,
    parser_for,
)
from tests.builders.logs import Example, example, verified


def ns(text: str) -> int | None:
    parser = parser_for(text)
    return None if parser is None else parser.parse(text)


def iso(text: str) -> str | None:
    parser = parser_for(text)
    assert parser is not None
    stamp_ns = parser.parse(text)
    assert stamp_ns is not None
    return parser.clock.iso(stamp_ns)


class TestAStampWithADate:
    @pytest.mark.parametrize(
        "written",
        ["2025/13/01 00:00:00", "2025/02/30 00:00:00", "2025/01/01 24:00:00",
         "2025/01/01 00:60:00", "2025/01/01 00:00:61", "2025/01-01 00:00:00", "yesterday", "",
         "13/13/2025 00:00:00", "Jun 31 00:00:00", "13/06/2025 24:00:00", "20251313-000000",
         "13:00 PM", "00:61:00"],
    )  # fmt: skip
    def test_that_no_calendar_knows_is_refused(self, written: str) -> None:
        assert parser_for(written) is None

    @given(st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1)))
    def test_agrees_with_the_standard_library(self, moment: datetime) -> None:
        written = f"{moment:%Y/%m/%d %H:%M:%S}.{moment.microsecond:06d}"
        whole_s = round(moment.replace(microsecond=0, tzinfo=timezone.utc).timestamp())

        assert ns(written) == whole_s * 10**9 + moment.microsecond * 1_000

    @given(
        st.datetimes(datetime(2000, 1, 1), datetime(2099, 1, 1)),
        st.sampled_from(["%d.%m.%Y %H:%M:%S", "%b %d, %Y %I:%M:%S %p", "%a %b %d %H:%M:%S %Y"]),
    )
    def test_of_another_shape_agrees_too(self, moment: datetime, shape: str) -> None:
        moment = moment.replace(microsecond=0)

        assert iso(moment.strftime(shape)) == moment.isoformat(timespec="milliseconds")


class TestABareNumber:
    def test_keeps_every_nanosecond(self) -> None:
        assert ns("1718238472.123456789") == 1_718_238_472_123_456_789

    @pytest.mark.parametrize("written", ["-1", "nan", "inf", "1e9", "1_000", "٣", "1.2.3", "0x10"])
    def test_in_any_other_shape_is_refused(self, written: str) -> None:
        assert parser_for(written) is None


class TestAClock:
    def test_says_nothing_of_a_date_beyond_the_calendar(self) -> None:
        assert LogClock(is_wall=True).iso(10**25) is None

    @pytest.mark.parametrize(("later", "hours"), [("08:30:00", 32.5), ("09:00:00", 9.0)])
    def test_is_of_the_next_day_where_it_is_more_than_twelve_hours_less(
        self, later: str, hours: float
    ) -> None:
        stamps = ClockStamps(is_elapsed=False)
        stamps.parse("20:45:00")

        assert stamps.parse(later) == hours * 3600 * 1_000_000_000


def stamps(*texts: str, heading: str = "time", **expected: Any) -> Example:
    """A table of such moments, and what is expected of them."""
    lines = (f"{text};{at}" for at, text in enumerate(texts, start=5))
    return example(f"{heading};util", *lines, **expected)


DATES = (
    "13/06/2025 00:27:52", "06/13/2025 00:27:52", "6/13/25 12:27:52 AM", "13.06.2025 00:27:52",
    "13-06-2025, 00:27:52", "Fri Jun 13 00:27:52 2025", "Fri Jun 13 00:27:52 CEST 2025",
    "Fri Jun 13 12:27:52 AM CEST 2025", "Jun 13, 2025 12:27:52 a.m.", "Fri 13 Jun 2025 00:27:52",
    "13-Jun-2025 00:27:52", "20250613-002752", "20250613T002752", "20250613002752",
    "20250613 00:27:52", "2025年06月13日 00:27:52", "2025年6月13日0时27分52秒",
    "2025/6/13 上午12:27:52", "13. Jun. 2025 00:27:52", "13 juin 2025 à 00:27:52",
    "2025.06.13 00:27:52", "2025-06-13 12:27:52 AM", "2025-06-13 00:27:52,000",
)  # fmt: skip
"""The same moment in any usual shape."""
COLUMNS = {
    **{
        f"dates are the moment that was written: {written}": stamps(written, began=meant)
        for written, meant in (
            ("2025/06/13 00:27:52.195", "2025-06-13T00:27:52.195"),
            ("2025-06-13T00:27:52Z", "2025-06-13T00:27:52.000+00:00"),
            ("2025-06-13 00:27:52.5+02:00", "2025-06-13T00:27:52.500+02:00"),
            ("2025-06-13T00:27:52,123456-0330", "2025-06-13T00:27:52.123-03:30"),
            ("2025/6/3 1:02:03", "2025-06-03T01:02:03.000"),
            ("13/06/2025 00:27:52 +02:00", "2025-06-13T00:27:52.000+02:00"),
        )
    },
    "dates after midnight are a second later": stamps(
        "2025/12/31 23:59:59.500", "2026/01/01 00:00:00.500", at_s=[0, 1]
    ),
    "numbers that are small count from the start and name no date": stamps(
        "599.332", "601", is_wall=False, at_s=[0, 1.668], began=None
    ),
    **{
        f"numbers that are large count from the epoch in their unit: {zeros}": stamps(
            f"1718238472{zeros}", began="2024-06-13T00:27:52.000+00:00"
        )
        for zeros in ("", "000", "000000", "000000000")
    },
    **{
        date: stamps(date, date.replace("52", "53"), at_s=[0, 1], began="2025-06-13T00:27:52.000")
        for date in DATES
    },
    "dates without a year name no beginning and pass New Year": stamps(
        "Dec 31 23:59:59", "Jan  1 00:00:00", at_s=[0, 1], began=None, noted="no year"
    ),
    "days and months are shown by a later row": stamps(
        "06/12/2025 23:59:59", "06/13/2025 00:00:00",
        at_s=[0, 1], began="2025-06-12T23:59:59.000", notes=(),
    ),
    "days and months are settled by the first midnight": stamps(
        "06/05/2025 23:59:58", "06/05/2025 23:59:59", "06/06/2025 00:00:00",
        at_s=[0, 1, 2], notes=(),
    ),
    **{
        f"days and months that nothing shows are noted: {date}": stamps(
            f"{date} 10:00:00", f"{date} 10:00:01", began=f"{day}T10:00:00.000",
            noted="could begin with day or month: read as day/month",
        )
        for date, day in (
            ("06/05/2025", "2025-05-06"),
            ("06/12/2025", "2025-12-06"),  # there is a twelfth month
            ("12/05/2025", "2025-05-12"),
        )
    },
    "times of day restart at midnight": stamps(
        "23:59:58", "23:59:59.5", "00:00:01", "00:00:02",
        at_s=[0, 1.5, 3, 4], began=None, noted="no date",
    ),
    "times of day may have twelve hours": stamps(
        "11:59:59 AM", "12:00:00 PM", "12:00:01 PM", "1:00:01 PM", at_s=[0, 1, 2, 3602]
    ),
    "times of day restart at midnight on a clock of twelve hours": stamps(
        "11:59:59 PM", "12:00:00 AM", at_s=[0, 1]
    ),
    "times from the start go on beyond a day": stamps(
        "23:59:59", "24:00:00", "24:00:01", heading="elapsed", at_s=[0, 1, 2], notes=()
    ),
    "times from the start may count days": stamps(
        "23:59:59", "1 day, 0:00:00", "1 day, 0:00:01", heading="elapsed", at_s=[0, 1, 2]
    ),
    "numbers since the epoch are dates in the unit of their heading": stamps(
        "1718238472000", heading="time_ms", began="2024-06-13T00:27:52.000+00:00"
    ),
    **{
        f"numbers count what the heading says: {heading}": stamps(
            *(str(step * at) for at in (7, 8, 9)),
            heading=heading, at_s=[0, step_s, 2 * step_s], began=None,
        )
        for heading, step, step_s in (
            ("time_ms", 500, 0.5), ("elapsed [us]", 500_000, 0.5), ("time_ns", 10**8, 0.1),
            ("elapsed (min)", 1, 60.0), ("hours", 1, 3_600.0), ("Relative_Time_s", 2, 2.0),
            ("time_milliseconds", 20, 0.02),
        )
    },
    "numbers may name seconds as their unit": stamps("0 s", "1 s", "2.5 s", at_s=[0, 1, 2.5]),
    "numbers that name another unit are refused": stamps(
        "0 ms", "1 ms", refused="the time '0 ms' has no form gpumon knows"
    ),
}  # fmt: skip


class TestAColumnOfStamps:
    test_is_read_as_expected = verified(COLUMNS)


MOMENTS = st.datetimes(datetime(1971, 1, 1), datetime(2099, 12, 31)).map(
    lambda moment: moment.replace(microsecond=0)
)


class TestADate:
    @given(
        MOMENTS,
        st.sampled_from(
            ["%a %b %e %H:%M:%S %Y", "%a %b %d %I:%M:%S %p CET %Y", "%A, %d %B %Y %H:%M:%S",
             "%a %d %b %Y %I:%M:%S %p EST", "%Y-%m-%d %H:%M:%S", "%Y/%m/%dT%H:%M:%S"]
        ),
    )  # fmt: skip
    def test_is_the_moment_that_was_written(self, moment: datetime, form: str) -> None:
        printed = date_in(moment.strftime(form))

        assert printed is not None
        assert printed.clock.iso(printed.stamp_ns) == moment.isoformat(timespec="milliseconds")

    @pytest.mark.parametrize(
        ("zone", "hours_east"), [("UTC", 0), ("GMT", 0), ("+0100", 1), ("-08:00", -8)]
    )
    def test_counts_from_utc_where_its_zone_has_the_distance(
        self, zone: str, hours_east: int
    ) -> None:
        there = date_in(f"Sat Jan 24 21:52:14 {zone} 2026")
        here = date_in("Sat Jan 24 21:52:14 2026")

        assert there is not None
        assert here is not None
        assert (here.stamp_ns - there.stamp_ns) / 3_600e9 == hours_east
        assert there.clock.utc_offset_s == hours_east * 3_600

    @pytest.mark.parametrize(
        "text",
        ["Sat Jan 24 25:52:14 2026", "Sat Jan 24 13:52:14 PM 2026", "Mon Feb 30 10:00:00 2026",
         "Sa 24. Xyz 21:52:14 CET 2026", "Jan 24 21:52:14", "Jan Jan 24 21:52:14 2026", "loss 0.3",
         "Sat Mayor 24 21:52:14 2026", "Sat Jan 24 21:52:14 +9900 2026", "12", ""],
    )  # fmt: skip
    def test_is_nothing_that_only_looks_like_one(self, text: str) -> None:
        assert date_in(text) is None

    @given(st.text(alphabet="SatJn240:5.,+-/ PMUTC²٣\n", max_size=40))
    def test_is_looked_for_in_any_text(self, text: str) -> None:
        printed = date_in(text)

        assert printed is None or printed.clock.iso(printed.stamp_ns) is not None

    @pytest.mark.parametrize(
        ("text", "is_one"),
        [
            ("Sa 24. Jan 21:52:14 CET 2026", True),
            (" 10:00:00".rjust(80, "x"), True),
            (" 10:00:00".rjust(81, "x"), False),
            ("epoch 3: loss 0.21", False),
        ],
    )
    def test_in_another_language_is_known_by_its_time_among_80_letters(
        self, text: str, is_one: bool
    ) -> None:
        assert looks_like_date(text) is is_one


class TestAMomentAsToolsForPeoplePrintIt:
    @pytest.mark.parametrize(
        "line",
        [
            "Sat Jan 24 21:05:14 2026",
            "node-7      Sat Jan 24 21:05:14 2026  580.95.05",
            "Sat Jan 24 21:05:14 UTC 2026",
            "Sat 24 Jan 2026 09:05:14 PM UTC",
            "Sat 24 Jan 2026 09:05:14 PM",
            "Sat 24 Jan 2026 21:05:14 CET",
            "Saturday, January 24 21:05:14 2026",
            "Sa 24. Jan 21:05:14 CET 2026",
            "node1  sam. 24 janv. 2026 21:05:14  535.86.10",
            "sábado, 24 de janeiro de 2026 21:05:14",
            "sáb 24 ene 2026 21:05:14 CET",
            "sab 24 gen 2026, 21:05:14, CET",
            "za 24 jan 2026 21:05:14 CET",
            "sob, 24 sty 2026, 21:05:14 CET",
            "Сб 24 янв 2026 21:05:14 MSK",  # noqa: RUF001
            "Cmt 24 Oca 2026 21:05:14 +03",
            "2026年 01月 24日 星期六 21:05:14 CST",
            "node1  2026年01月24日 星期六 21时05分14秒  535.86.10",
            "2026年  1月 24日 土曜日 21:05:14 JST",
            "2026. 01. 24. (토) 21:05:14 KST",
            "2026년 01월 24일 (토) 오후 09시 05분 14초",
        ],
    )
    def test_is_found_in_its_line(self, line: str) -> None:
        evening = datetime(2026, 1, 24, 21, 5, 14, tzinfo=timezone.utc)

        assert find_ctime(line) == evening.timestamp() * 1e9

    def test_may_have_a_day_of_one_digit(self) -> None:
        first = datetime(2026, 2, 1, tzinfo=timezone.utc)

        assert find_ctime("Sun Feb  1 00:00:00 2026") == first.timestamp() * 1e9

    @pytest.mark.parametrize(
        "line",
        ["", "Sat Feb 30 21:05:14 2026", "Sat Jan 24 25:05:14 2026", "Sat Jan 24 21:05 2026"],
    )
    def test_that_does_not_exist_is_none(self, line: str) -> None:
        assert find_ctime(line) is None
