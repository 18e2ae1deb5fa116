"""Specification of the less usual stamps: however a date is written, it is the same moment."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.sources.logs.stamps.stamp_parsers import parser_for
from tests.builders_logs import read_log, rows, seconds_of


def stamps_of(*texts: str, heading: str = "time") -> tuple[list[float], str | None, str]:
    """Seconds from the first stamp, when that was, and the notes."""
    log = rows(f"{heading};util", *(f"{text};{at}" for at, text in enumerate(texts, start=5)))
    samples, facts = read_log(log)
    stamps_ns = [sample.stamp_ns for sample in samples]
    return seconds_of(stamps_ns), facts.clock.iso(stamps_ns[0]), " ".join(facts.notes)


class TestADate:
    @pytest.mark.parametrize(
        ("one", "next_one"),
        [
            ("13/06/2025 00:27:52", "13/06/2025 00:27:53"),
            ("06/13/2025 00:27:52", "06/13/2025 00:27:53"),
            ("6/13/25 12:27:52 AM", "6/13/25 12:27:53 AM"),
            ("13.06.2025 00:27:52", "13.06.2025 00:27:53"),
            ("13-06-2025, 00:27:52", "13-06-2025, 00:27:53"),
            ("Fri Jun 13 00:27:52 2025", "Fri Jun 13 00:27:53 2025"),
            ("Fri Jun 13 00:27:52 CEST 2025", "Fri Jun 13 00:27:53 CEST 2025"),
            ("Fri Jun 13 12:27:52 AM CEST 2025", "Fri Jun 13 12:27:53 AM CEST 2025"),
            ("Jun 13, 2025 12:27:52 a.m.", "Jun 13, 2025 12:27:53 a.m."),
            ("Fri 13 Jun 2025 00:27:52", "Fri 13 Jun 2025 00:27:53"),
            ("13-Jun-2025 00:27:52", "13-Jun-2025 00:27:53"),
            ("20250613-002752", "20250613-002753"),
            ("20250613T002752", "20250613T002753"),
            ("20250613002752", "20250613002753"),
            ("20250613 00:27:52", "20250613 00:27:53"),
            ("2025.06.13 00:27:52", "2025.06.13 00:27:53"),
            ("2025-06-13 12:27:52 AM", "2025-06-13 12:27:53 AM"),
            ("2025-06-13 00:27:52,000", "2025-06-13 00:27:53,000"),
        ],
    )
    def test_in_any_usual_shape_is_the_same_moment(self, one: str, next_one: str) -> None:
        steps_s, began_at, _ = stamps_of(one, next_one)

        assert steps_s == [0.0, 1.0]
        assert began_at == "2025-06-13T00:27:52.000"

    def test_that_a_spreadsheet_cut_to_minutes_is_spread_over_them(self) -> None:
        log = rows("time;gpu;util", *(f"13.06.2025 00:{at // 6:02d};0;5" for at in range(18)))

        samples, facts = read_log(log)

        assert seconds_of([one.stamp_ns for one in samples]) == [at * 10.0 for at in range(18)]
        assert facts.clock.iso(samples[0].stamp_ns) == "2025-06-13T00:00:00.000"
        assert "one every 10 s" in facts.notes[0]

    def test_with_a_zone_counts_from_utc(self) -> None:
        assert stamps_of("13/06/2025 00:27:52 +02:00")[1] == "2025-06-13T00:27:52.000+02:00"

    def test_without_a_year_names_no_beginning_and_passes_new_year(self) -> None:
        steps_s, began_at, notes = stamps_of("Dec 31 23:59:59", "Jan  1 00:00:00")

        assert steps_s == [0.0, 1.0]
        assert began_at is None
        assert "no year" in notes

    @pytest.mark.parametrize(
        "text", ["13/13/2025 00:00:00", "Jun 31 00:00:00", "13/06/2025 24:00:00", "20251313-000000",
                 "13:00 PM", "00:61:00"]
    )  # fmt: skip
    def test_that_no_calendar_knows_is_refused(self, text: str) -> None:
        assert parser_for(text) is None

    @given(st.datetimes(datetime(2000, 1, 1), datetime(2099, 1, 1)))
    def test_agrees_with_the_standard_library(self, moment: datetime) -> None:
        moment = moment.replace(microsecond=0)
        shapes = ("%d.%m.%Y %H:%M:%S", "%b %d, %Y %I:%M:%S %p", "%a %b %d %H:%M:%S %Y")
        for shape in shapes:
            text = moment.strftime(shape)
            parser = parser_for(text)
            assert parser is not None
            stamp_ns = parser.parse(text)
            assert stamp_ns is not None
            assert parser.clock.iso(stamp_ns) == moment.isoformat(timespec="milliseconds")


class TestDaysAndMonths:
    def test_are_told_by_a_later_row(self) -> None:
        steps_s, began_at, notes = stamps_of("06/12/2025 23:59:59", "06/13/2025 00:00:00")

        assert began_at == "2025-06-12T23:59:59.000"
        assert steps_s == [0.0, 1.0]
        assert "day or month" not in notes

    @pytest.mark.parametrize(
        ("date", "day"),
        [
            ("06/05/2025", "2025-05-06"),
            ("06/12/2025", "2025-12-06"),  # there is a twelfth month
            ("12/05/2025", "2025-05-12"),
        ],
    )
    def test_that_nothing_tells_are_said(self, date: str, day: str) -> None:
        _, began_at, notes = stamps_of(f"{date} 10:00:00", f"{date} 10:00:01")

        assert began_at == f"{day}T10:00:00.000"
        assert "could begin with day or month: read as day/month" in notes

    def test_are_settled_by_the_first_midnight(self) -> None:
        steps_s, _, notes = stamps_of(
            "06/05/2025 23:59:58", "06/05/2025 23:59:59", "06/06/2025 00:00:00"
        )

        assert steps_s == [0.0, 1.0, 2.0]
        assert "could begin" not in notes


class TestATimeOfDay:
    def test_begins_anew_at_midnight(self) -> None:
        steps_s, began_at, notes = stamps_of("23:59:58", "23:59:59.5", "00:00:01", "00:00:02")

        assert steps_s == [0.0, 1.5, 3.0, 4.0]
        assert began_at is None
        assert "no date" in notes

    def test_may_have_twelve_hours(self) -> None:
        assert stamps_of("11:59:59 AM", "12:00:00 PM", "12:00:01 PM", "1:00:01 PM")[0] == [
            0.0, 1.0, 2.0, 3602.0,
        ]  # fmt: skip

    def test_may_begin_anew_at_midnight_on_a_clock_of_twelve_hours(self) -> None:
        assert stamps_of("11:59:59 PM", "12:00:00 AM")[0] == [0.0, 1.0]

    def test_that_counts_from_the_start_goes_on_beyond_a_day(self) -> None:
        steps_s, _, notes = stamps_of("23:59:59", "24:00:00", "24:00:01", heading="elapsed")

        assert steps_s == [0.0, 1.0, 2.0]
        assert "no date" not in notes

    def test_may_count_days(self) -> None:
        assert stamps_of("23:59:59", "1 day, 0:00:00", "1 day, 0:00:01", heading="elapsed")[0] == [
            0.0, 1.0, 2.0,
        ]  # fmt: skip


class TestANumber:
    @pytest.mark.parametrize(
        ("heading", "step", "step_s"),
        [("time_ms", 500, 0.5), ("elapsed [us]", 500_000, 0.5), ("time_ns", 10**8, 0.1),
         ("elapsed (min)", 1, 60.0), ("hours", 1, 3_600.0), ("Relative_Time_s", 2, 2.0),
         ("time_milliseconds", 20, 0.02)],
    )  # fmt: skip
    def test_counts_what_its_heading_says(self, heading: str, step: int, step_s: float) -> None:
        steps_s, began_at, _ = stamps_of(*(str(7 * step + at * step) for at in range(3)),
                                         heading=heading)  # fmt: skip

        assert steps_s == pytest.approx([0.0, step_s, 2 * step_s])
        assert began_at is None

    @pytest.mark.parametrize("unit", ["s", "ms", "min"])
    def test_may_name_its_unit(self, unit: str) -> None:
        scale = {"s": 1.0, "ms": 0.001, "min": 60.0}[unit]

        assert stamps_of(f"0 {unit}", f"1 {unit}", f"2 {unit}")[0] == pytest.approx(
            [0.0, scale, 2 * scale]
        )

    def test_since_the_epoch_is_a_date_in_the_unit_of_its_heading(self) -> None:
        assert stamps_of("1718238472000", heading="time_ms")[1] == "2024-06-13T00:27:52.000+00:00"
