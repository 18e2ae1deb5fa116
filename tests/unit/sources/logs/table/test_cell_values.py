"""Specification of utilisation cells: a share of the time, or a reason why not; never a guess."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.sources.logs.table.cell_values import UtilizationCells
from gpumon.sources.logs.table.skipped_lines import Refusal, SkippedLines


def read(*cells: str, is_percent: bool = True) -> list[float | Refusal]:
    reader = UtilizationCells(is_percent=is_percent)
    return [reader.read(cell) for cell in cells]


class TestACell:
    def test_is_a_ratio_with_or_without_its_sign(self) -> None:
        assert read(" 45 %", "100 %\n", "0%") == [0.45, 1.0, 0.0]
        assert read("45", "7.5") == [0.45, 0.075]

    def test_of_a_ratio_column_is_taken_as_it_is(self) -> None:
        assert read("0.45", "1", is_percent=False) == [0.45, 1.0]

    @pytest.mark.parametrize(
        "cell",
        ["[N/A]", "[Not Supported]", "N/A", "None", "null", "Field not found", "", "-"],
    )  # fmt: skip
    def test_without_an_answer_is_no_zero(self, cell: str) -> None:
        assert read(cell) == [Refusal.NO_ANSWER]

    @pytest.mark.parametrize(
        ("cell", "reason"),
        [
            (" [Unknown Error]", Refusal.ERROR), ("Unknown Error", Refusal.ERROR),
            ("ERR!", Refusal.ERROR), ("[GPU is lost]", Refusal.LOST), ("GPU is lost", Refusal.LOST),
            ("[GPU requires reset]", Refusal.RESET),
        ],
    )  # fmt: skip
    def test_with_an_error_of_the_driver_is_reported_from_one_without_an_answer(
        self, cell: str, reason: Refusal
    ) -> None:
        assert read(cell) == [reason]

    @pytest.mark.parametrize("cell", ["101 %", "255", "-1 %", "nan", "NaN %", "inf", "-0.5"])
    def test_that_no_gpu_can_have_is_refused(self, cell: str) -> None:
        assert read(cell) == [Refusal.IMPOSSIBLE]

    @pytest.mark.parametrize("cell", ["364 MiB", "1_0", "0x20", "4 5", "٤٥", "1e1", "P0"])
    def test_of_another_kind_is_refused(self, cell: str) -> None:
        assert read(cell) == [Refusal.NO_NUMBER]

    def test_that_lost_its_unit_at_the_end_of_the_file_is_refused(self) -> None:
        assert read("19 %", "1") == [0.19, Refusal.CUT_SHORT]

    @given(st.text(max_size=12))
    def test_is_a_ratio_or_a_reason_whatever_it_says(self, cell: str) -> None:
        (found,) = read(cell)

        assert isinstance(found, Refusal) or 0.0 <= found <= 1.0


class TestSkippedLines:
    def test_by_reason_with_the_first_of_each(self) -> None:
        skipped = SkippedLines()
        for number in (17, 18, 99):
            skipped.add(Refusal.NO_ANSWER, number)
        skipped.add(Refusal.STAMP, 40)

        assert skipped.count == 4
        of_answers, of_times = skipped.sentences()
        assert of_answers.startswith(f"Skipped 3 lines {Refusal.NO_ANSWER.value}")
        assert of_answers.endswith("line 17.")
        assert of_times.startswith(f"Skipped 1 line {Refusal.STAMP.value}")
        assert of_times.endswith("line 40.")
