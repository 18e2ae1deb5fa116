"""Specification of nvidia-smi dmon: any selection of columns, any stamps, any headers."""

from __future__ import annotations

import pytest

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.log_sample import LogFacts, LoggedGpu, LogOptions, LogSample
from tests.builders_logs import read_log, rows, seconds_of

U = ("# gpu    sm   mem", "# Idx     %     %")
DT = ("#Date       Time        gpu    sm    fb", "#YYYYMMDD   HH:MM:SS    Idx     %    MB")
T = ("#Time        gpu    sm", "#HH:MM:SS    Idx     %")


def stamps_s(samples: list[LogSample]) -> list[float]:
    return seconds_of([sample.stamp_ns for sample in samples])


def busy(samples: list[LogSample]) -> list[float | None]:
    return [sample.busy_ratio for sample in samples]


def said(facts: LogFacts, part: str) -> bool:
    return any(part in note for note in facts.notes)


class TestRows:
    def test_are_read_by_the_header_wherever_it_puts_the_columns(self) -> None:
        samples, facts = read_log(rows(*U, "0 45 3", "# gpu mem pwr sm", "0 9 70 55"))

        assert busy(samples) == [0.45, 0.55]
        assert facts.skipped_lines == 0

    def test_of_a_dash_have_no_answer(self) -> None:
        samples, facts = read_log(rows(*U, "0 45 3", "0 - -", "0 50 3"))

        assert busy(samples) == [0.45, None, 0.5]
        assert said(facts, "Skipped 1 line without an answer")

    def test_after_a_header_without_sm_are_counted_until_the_next(self) -> None:
        samples, facts = read_log(rows(*U, "0 45 3", "# gpu pwr gtemp", "0 70 41", *U, "0 50 3"))

        assert busy(samples) == [0.45, 0.5]
        assert said(facts, "Skipped 1 line of a table without a utilisation column")

    def test_after_a_header_that_cannot_be_read_are_not_guessed(self) -> None:
        samples, facts = read_log(rows(*U, "0 45 3", "# gqu mem sm", "0 3 45", *U, "0 50 3"))

        assert busy(samples) == [0.45, 0.5]
        assert facts.skipped_lines == 1

    @pytest.mark.parametrize("row", ["0 45", "0 45 3 9", "0 145 3", "x 45 3", "0 4x 3", "Killed"])
    def test_that_cannot_be_are_counted(self, row: str) -> None:
        samples, facts = read_log(rows(*U, "0 40 3", row, "0 50 3"))

        assert [ratio for ratio in busy(samples) if ratio is not None] == [0.4, 0.5]
        assert facts.skipped_lines == 1

    def test_without_an_end_are_refused_piece_by_piece(self) -> None:
        samples, facts = read_log(rows(*U, "0 40 3") + "0 " * 30_000 + "\n0 50 3\n")

        assert busy(samples) == [0.4, 0.5]
        assert said(facts, "Skipped 1 line too long")

    def test_of_mig_instances_are_told_apart(self) -> None:
        samples, facts = read_log(
            rows("# gpu gi ci sm", "0 - - -", "0 1 0 40", "0 2 0 60", "0 1 0 50")
        )

        assert [(one.gpu, one.busy_ratio) for one in samples] == [
            (0, None), (1, 0.4), (2, 0.6), (1, 0.5)
        ]  # fmt: skip
        assert facts.gpus[1:] == (
            LoggedGpu(index=0, mig_index=0),
            LoggedGpu(index=0, mig_index=1),
        )

    def test_tell_the_memory_in_use(self) -> None:
        samples, _ = read_log(rows(*DT, " 20260124   21:52:14      0    45  1830"))

        assert samples[0].memory_used_bytes == 1830 << 20


class TestTheClock:
    def test_is_the_date_and_the_time(self) -> None:
        samples, facts = read_log(rows(*DT, "20260124 23:59:59 0 45 9", "20260125 00:00:01 0 45 9"))

        assert stamps_s(samples) == [0, 2]
        assert facts.clock.iso(samples[0].stamp_ns) == "2026-01-24T23:59:59.000"

    def test_of_times_of_day_runs_on_at_midnight(self) -> None:
        samples, facts = read_log(
            rows(*T, *(f"{time} 0 45" for time in ("23:59:59", "00:00:00", "23:59:59", "00:00:00")))
        )

        assert stamps_s(samples) == [0, 1, 86_400, 86_401]
        assert facts.clock.iso(samples[0].stamp_ns) is None

    def test_spreads_rows_of_the_same_second_over_it(self) -> None:
        times = ("10:00:00", "10:00:00", "10:00:01", "10:00:01")

        samples, _ = read_log(rows(*T, *(f"{time} 0 45" for time in times)))

        assert stamps_s(samples) == [0, 0.5, 1, 1.5]

    def test_is_a_second_a_row_where_there_is_none_but_a_date(self) -> None:
        samples, facts = read_log(rows("#Date gpu sm", "20260124 0 45", "20260124 0 50"))

        assert stamps_s(samples) == [0, 1]
        assert said(facts, "1 s a row (assumed")

    def test_is_the_period_that_the_user_told(self) -> None:
        samples, facts = read_log(rows(*U, "0 45 3", "0 50 3"), LogOptions(period_ns=5 * 10**9))

        assert stamps_s(samples) == [0, 5]
        assert facts.period_ns == 5 * 10**9

    def test_stays_what_the_first_header_made_it(self) -> None:
        samples, facts = read_log(rows(*T, "10:00:00 0 45", *U, "0 50 3", *T, "10:00:02 0 45"))

        assert stamps_s(samples) == [0, 2]
        assert said(facts, "Skipped 1 line of a table that tells the time in another way")

    @pytest.mark.parametrize("stamp", ["20260124 25:00:00", "20261324 10:00:00", "202601 10:00:00"])
    def test_is_not_guessed_from_a_damaged_stamp(self, stamp: str) -> None:
        samples, facts = read_log(
            rows(*DT, "20260124 09:59:59 0 40 9", f"{stamp} 0 45 9", "20260124 10:00:01 0 50 9")
        )

        assert busy(samples) == [0.4, 0.5]
        assert said(facts, "Skipped 1 line with a time that cannot be read")


class TestALogOfNoUse:
    def test_without_sm_says_what_to_log(self) -> None:
        with pytest.raises(UnreadableLogError, match="in the column sm, with -s u"):
            read_log(rows("# gpu pwr gtemp", "0 70 41"))

    @pytest.mark.parametrize(
        "row", ["20260124, 21:52:14, 0, 70, 41, -, 45, 3", "20260124 21:52:14 0 45 3"]
    )
    def test_without_a_header_is_refused_and_not_guessed_at(self, row: str) -> None:
        with pytest.raises(UnreadableLogError, match="before a header"):
            read_log(rows(row, row))
