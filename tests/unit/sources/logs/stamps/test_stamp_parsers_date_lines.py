"""Specification of lines that are dates: read where they are sure, and nothing else is one."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.sources.logs.stamps.stamp_parsers import date_in, find_ctime, looks_like_date

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
