"""Tests of time stamps in every usual form, and of texts that only look like one."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.sources.logs.stamps.log_clock import LogClock
from gpumon.sources.logs.stamps.stamp_parsers import (
    date_in,
    find_ctime,
    parser_for,
)
from tests.builders.logs import Example, example, verified

TIMES = st.datetimes(datetime(1971, 1, 1), datetime(2099, 12, 31))


class TestAStamp:
    @pytest.mark.parametrize(
        "written",
        ["2025/13/01 00:00:00", "2025/02/30 00:00:00", "2025/01/01 24:00:00",
         "2025/01/01 00:60:00", "2025/01/01 00:00:61", "2025/01-01 00:00:00", "yesterday", "",
         "13/13/2025 00:00:00", "Jun 31 00:00:00", "13/06/2025 24:00:00", "20251313-000000",
         "13:00 PM", "00:61:00", "-1", "nan", "inf", "1e9", "1_000", "٣", "1.2.3", "0x10"],
    )  # fmt: skip
    def test_that_is_no_time_is_refused(self, written: str) -> None:
        assert parser_for(written) is None

    @given(TIMES)
    def test_has_nanoseconds_since_1970(self, time: datetime) -> None:
        written = f"{time:%Y/%m/%d %H:%M:%S}.{time.microsecond:06d}"
        parser = parser_for(written)
        since_1970_s = round(time.replace(microsecond=0, tzinfo=timezone.utc).timestamp())

        assert parser is not None
        assert parser.parse(written) == since_1970_s * 10**9 + time.microsecond * 1_000

    def test_keeps_every_digit_of_a_number(self) -> None:
        parser = parser_for("1718238472.123456789")

        assert parser is not None
        assert parser.parse("1718238472.123456789") == 1_718_238_472_123_456_789

    def test_beyond_the_calendar_has_no_date(self) -> None:
        assert LogClock(is_wall=True).iso(10**25) is None


def stamps(*texts: str, heading: str = "time", **expected: Any) -> Example:
    """A table with these times, and what is read from it."""
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
"""One time in every usual form."""
COLUMNS = {
    **{
        f"a date has its zone: {written}": stamps(written, began=meant)
        for written, meant in (
            ("2025/06/13 00:27:52.195", "2025-06-13T00:27:52.195"),
            ("2025-06-13T00:27:52Z", "2025-06-13T00:27:52.000+00:00"),
            ("2025-06-13 00:27:52.5+02:00", "2025-06-13T00:27:52.500+02:00"),
            ("2025-06-13T00:27:52,123456-0330", "2025-06-13T00:27:52.123-03:30"),
            ("2025/6/3 1:02:03", "2025-06-03T01:02:03.000"),
            ("13/06/2025 00:27:52 +02:00", "2025-06-13T00:27:52.000+02:00"),
        )
    },
    **{
        date: stamps(date, date.replace("52", "53"), at_s=[0, 1], began="2025-06-13T00:27:52.000")
        for date in DATES
    },
    "small numbers count from the start": stamps(
        "599.332", "601", is_wall=False, at_s=[0, 1.668], began=None
    ),
    **{
        f"large numbers count from 1970 in the unit of their size: {zeros}": stamps(
            f"1718238472{zeros}", began="2024-06-13T00:27:52.000+00:00"
        )
        for zeros in ("", "000", "000000", "000000000")
    },
    **{
        f"small numbers count in the unit of the heading: {heading}": stamps(
            *(str(step * at) for at in (7, 8, 9)),
            heading=heading, at_s=[0, step_s, 2 * step_s], began=None,
        )
        for heading, step, step_s in (
            ("time_ms", 500, 0.5), ("elapsed [us]", 500_000, 0.5), ("time_ns", 10**8, 0.1),
            ("elapsed (min)", 1, 60.0), ("hours", 1, 3_600.0), ("Relative_Time_s", 2, 2.0),
            ("time_milliseconds", 20, 0.02),
        )
    },
    "a number may have the unit s": stamps("0 s", "1 s", "2.5 s", at_s=[0, 1, 2.5]),
    "a number with another unit is refused": stamps(
        "0 ms", "1 ms", refused="the time '0 ms' has no form gpumon knows"
    ),
    "a date without a year passes New Year": stamps(
        "Dec 31 23:59:59", "Jan  1 00:00:00", at_s=[0, 1], began=None, noted="no year"
    ),
    "day and month are known from a later row": stamps(
        "06/12/2025 23:59:59", "06/13/2025 00:00:00",
        at_s=[0, 1], began="2025-06-12T23:59:59.000", notes=(),
    ),
    "day and month are known from the first midnight": stamps(
        "06/05/2025 23:59:58", "06/05/2025 23:59:59", "06/06/2025 00:00:00",
        at_s=[0, 1, 2], notes=(),
    ),
    **{
        f"day and month that may be either are noted: {date}": stamps(
            f"{date} 10:00:00", f"{date} 10:00:01", began=f"{day}T10:00:00.000",
            noted="could begin with day or month: read as day/month",
        )
        for date, day in (("06/05/2025", "2025-05-06"), ("06/12/2025", "2025-12-06"))
    },
    "times of day restart at midnight": stamps(
        "23:59:58", "23:59:59.5", "00:00:01", "00:00:02",
        at_s=[0, 1.5, 3, 4], began=None, noted="no date",
    ),
    "times of day restart only after more than 12 hours": stamps(
        "20:45:00", "09:00:00", at_s=[0, 42_300]
    ),
    "times of day with twelve hours restart at midnight": stamps(
        "11:59:59 PM", "12:00:00 AM", at_s=[0, 1]
    ),
    "elapsed times are those of 24 hours and more": stamps(
        "25:00:00", "25:00:01", at_s=[0, 1], notes=()
    ),
    "elapsed times may count days": stamps(
        "23:59:59", "1 day, 0:00:00", "1 day, 0:00:01", heading="elapsed", at_s=[0, 1, 2]
    ),
}  # fmt: skip


class TestAColumnOfStamps:
    test_is_read_as_expected = verified(COLUMNS)


class TestALineOfADate:
    @given(
        TIMES.map(lambda time: time.replace(microsecond=0)),
        st.sampled_from(
            ["%a %b %e %H:%M:%S %Y", "%a %b %d %I:%M:%S %p CET %Y", "%A, %d %B %Y %H:%M:%S",
             "%a %d %b %Y %I:%M:%S %p EST", "%Y-%m-%d %H:%M:%S", "%Y/%m/%dT%H:%M:%S"]
        ),
    )  # fmt: skip
    def test_has_its_time(self, time: datetime, form: str) -> None:
        printed = date_in(time.strftime(form))

        assert printed is not None
        assert printed.clock.iso(printed.stamp_ns) == time.isoformat(timespec="milliseconds")

    @pytest.mark.parametrize(("zone", "hours"), [("UTC", 0), ("+0100", 1), ("-08:00", -8)])
    def test_counts_from_utc_if_its_zone_is_known(self, zone: str, hours: int) -> None:
        there = date_in(f"Sat Jan 24 21:52:14 {zone} 2026")
        here = date_in("Sat Jan 24 21:52:14 2026")

        assert there is not None
        assert here is not None
        assert (here.stamp_ns - there.stamp_ns) / 3_600e9 == hours
        assert there.clock.utc_offset_s == hours * 3_600

    @pytest.mark.parametrize(
        "text",
        ["Sat Jan 24 25:52:14 2026", "Sat Jan 24 13:52:14 PM 2026", "Mon Feb 30 10:00:00 2026",
         "Sa 24. Xyz 21:52:14 CET 2026", "Jan 24 21:52:14", "Jan Jan 24 21:52:14 2026", "loss 0.3",
         "Sat Mayor 24 21:52:14 2026", "Sat Jan 24 21:52:14 +9900 2026", "12", ""],
    )  # fmt: skip
    def test_must_be_complete_and_valid(self, text: str) -> None:
        assert date_in(text) is None


class TestADateWithinALine:
    @pytest.mark.parametrize(
        "line",
        [
            "Sat Jan 24 21:05:14 2026",
            "node-7      Sat Jan 24 21:05:14 2026  580.95.05",
            "Sat Jan 24 21:05:14 UTC 2026",
            "Sat 24 Jan 2026 09:05:14 PM UTC",
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
            "node1  2026年01月24日 星期六 21时05分14秒  535.86.10",
            "2026年  1月 24日 土曜日 21:05:14 JST",
            "2026. 01. 24. (토) 21:05:14 KST",
            "2026년 01월 24일 (토) 오후 09시 05분 14초",
        ],
    )
    def test_is_found(self, line: str) -> None:
        evening = datetime(2026, 1, 24, 21, 5, 14, tzinfo=timezone.utc)

        assert find_ctime(line) == evening.timestamp() * 1e9

    @pytest.mark.parametrize(
        "line",
        ["", "Sat Feb 30 21:05:14 2026", "Sat Jan 24 25:05:14 2026", "Sat Jan 24 21:05 2026"],
    )
    def test_must_be_valid(self, line: str) -> None:
        assert find_ctime(line) is None
