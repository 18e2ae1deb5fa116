"""Specification of time stamps: what people's logs write, and nothing that only looks like it."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.sources.logs.stamps.log_clock import LogClock
from gpumon.sources.logs.stamps.stamp_parsers import ClockStamps, parser_for


def ns(text: str, unit_ns: int = 1_000_000_000) -> int | None:
    parser = parser_for(text, unit_ns=unit_ns)
    return None if parser is None else parser.parse(text)


def iso(text: str) -> str | None:
    parser = parser_for(text)
    assert parser is not None
    stamp_ns = parser.parse(text)
    assert stamp_ns is not None
    return parser.clock.iso(stamp_ns)


class TestAStampWithADate:
    def test_of_nvidia_smi_is_local_time_without_a_zone(self) -> None:
        assert iso("2025/06/13 00:27:52.195") == "2025-06-13T00:27:52.195"

    @pytest.mark.parametrize(
        ("written", "meant"),
        [
            ("2025-06-13T00:27:52Z", "2025-06-13T00:27:52.000+00:00"),
            ("2025-06-13 00:27:52.5+02:00", "2025-06-13T00:27:52.500+02:00"),
            ("2025-06-13T00:27:52,123456-0330", "2025-06-13T00:27:52.123-03:30"),
            ("2025/6/3 1:02:03", "2025-06-03T01:02:03.000"),
        ],
    )
    def test_may_be_iso_8601(self, written: str, meant: str) -> None:
        assert iso(written) == meant

    def test_with_a_zone_counts_from_utc(self) -> None:
        assert ns("1970-01-01T02:00:01+02:00") == 1_000_000_000

    @pytest.mark.parametrize(
        "written",
        ["2025/13/01 00:00:00", "2025/02/30 00:00:00", "2025/01/01 24:00:00",
         "2025/01/01 00:60:00", "2025/01/01 00:00:61", "2025/01-01 00:00:00", "yesterday", ""],
    )  # fmt: skip
    def test_that_no_calendar_knows_is_refused(self, written: str) -> None:
        assert parser_for(written) is None

    def test_after_midnight_is_a_second_later(self) -> None:
        parser = parser_for("2025/12/31 23:59:59.500")
        assert parser is not None

        before = parser.parse("2025/12/31 23:59:59.500")
        after = parser.parse("2026/01/01 00:00:00.500")

        assert before is not None
        assert after == before + 1_000_000_000

    @given(st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1)))
    def test_agrees_with_the_standard_library(self, moment: datetime) -> None:
        written = f"{moment:%Y/%m/%d %H:%M:%S}.{moment.microsecond:06d}"
        whole_s = round(moment.replace(microsecond=0, tzinfo=timezone.utc).timestamp())

        assert ns(written) == whole_s * 10**9 + moment.microsecond * 1_000


class TestABareNumber:
    @pytest.mark.parametrize(
        "written", ["1718238472", "1718238472000", "1718238472000000", "1718238472000000000"]
    )
    def test_that_is_large_counts_from_the_epoch_in_its_unit(self, written: str) -> None:
        assert iso(written) == "2024-06-13T00:27:52.000+00:00"

    def test_that_is_small_counts_from_the_start_and_names_no_date(self) -> None:
        parser = parser_for("599.332")

        assert parser is not None
        assert not parser.clock.is_wall
        assert parser.parse("599.332") == 599_332_000_000
        assert parser.clock.iso(599_332_000_000) is None

    def test_counts_in_the_unit_of_its_column(self) -> None:
        assert ns("250", unit_ns=1_000_000) == 250_000_000

    def test_keeps_every_nanosecond(self) -> None:
        assert ns("1718238472.123456789") == 1_718_238_472_123_456_789

    @pytest.mark.parametrize("written", ["-1", "nan", "inf", "1e9", "1_000", "٣", "1.2.3", "0x10"])
    def test_in_any_other_shape_is_refused(self, written: str) -> None:
        assert parser_for(written) is None


class TestAClock:
    def test_says_nothing_of_a_date_beyond_the_calendar(self) -> None:
        assert LogClock(is_wall=True).iso(10**25) is None


class TestATimeOfDay:
    @pytest.mark.parametrize(("later", "hours"), [("08:30:00", 32.5), ("09:00:00", 9.0)])
    def test_is_of_the_next_day_where_it_is_more_than_twelve_hours_less(
        self, later: str, hours: float
    ) -> None:
        stamps = ClockStamps(is_elapsed=False)
        stamps.parse("20:45:00")

        assert stamps.parse(later) == hours * 3600 * 1_000_000_000
