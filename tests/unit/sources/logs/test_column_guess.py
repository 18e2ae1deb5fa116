"""Specification of guessing: a log without a header is understood, said so, or refused."""

from __future__ import annotations

import pytest

from gpumon.errors import UnreadableLogError, UsageError
from gpumon.sources.logs.column_guess import guess_layout
from gpumon.sources.logs.columns import Column

STAMP = "2026/04/25 16:06:06.780"


def guessed(*lines: str, **chosen: int) -> dict[Column, int]:
    layout, _ = guess_layout([line.split(",") for line in lines], chosen, "gpu.csv")
    return dict(layout.positions)


class TestTheUtilisationIs:
    def test_the_only_column_in_percent(self) -> None:
        found = guessed(f"{STAMP}, 0, GPU-1f2e3d, 45 %, 364 MiB")

        assert found == {Column.STAMP: 0, Column.UUID: 2, Column.UTILIZATION: 3}

    def test_the_first_of_gpu_and_memory(self) -> None:
        assert guessed(f"{STAMP}, 45 %, 12 %, 2 MiB")[Column.UTILIZATION] == 1

    def test_the_only_number(self) -> None:
        assert guessed("45", "0", "100") == {Column.UTILIZATION: 0}
        assert guessed(f"{STAMP}, 45", f"{STAMP}, 7")[Column.UTILIZATION] == 1

    def test_a_column_whose_first_rows_have_no_answer(self) -> None:
        rows = [f"{STAMP}, [N/A]", f"{STAMP}, [Unknown Error]", f"{STAMP}, 3 %"]

        assert guessed(*rows)[Column.UTILIZATION] == 1

    def test_the_one_the_user_names(self) -> None:
        assert guessed("1, 2, 3", **{"utilization.gpu": 2})[Column.UTILIZATION] == 2


class TestAGuess:
    def test_is_said_with_columns_counted_from_1(self) -> None:
        _, note = guess_layout([[STAMP, " 45 %"]], {}, "gpu.csv")

        assert "column 1 as timestamp, column 2 as utilization.gpu" in note
        assert "--column" in note

    def test_knows_bus_ids_and_names(self) -> None:
        found = guessed("00000000:3B:00.0, NVIDIA A40, 45 %")

        assert found == {Column.BUS_ID: 0, Column.NAME: 1, Column.UTILIZATION: 2}


class TestARefusal:
    def test_names_the_columns_it_could_be(self) -> None:
        with pytest.raises(UnreadableLogError, match=r"any of the columns 2, 3, 4; say which"):
            guessed(f"{STAMP}, 45 %, 12 %, 30 %")

    def test_comes_where_two_columns_in_percent_are_no_neighbours(self) -> None:
        with pytest.raises(UnreadableLogError, match="any of the columns 1, 3"):
            guessed("45 %, 364 MiB, 30 %")

    def test_comes_where_memory_is_busier_than_the_gpu(self) -> None:
        with pytest.raises(UnreadableLogError, match="could be any"):
            guessed("0 %, 45 %", "3 %, 60 %", "9 %, 8 %")

    def test_comes_for_numbers_without_a_unit(self) -> None:
        with pytest.raises(UnreadableLogError, match=r"--column utilization\.gpu=2"):
            guessed(f"{STAMP}, 0, 45, 364")

    def test_comes_for_text_without_any_number(self) -> None:
        with pytest.raises(UnreadableLogError, match="no utilisation column"):
            guessed("Dear diary, today", "I saw, a GPU")

    def test_comes_for_a_number_that_is_no_percentage(self) -> None:
        with pytest.raises(UnreadableLogError):
            guessed("1718238472", "1718238473")

    def test_comes_for_a_column_that_is_not_there(self) -> None:
        with pytest.raises(UsageError, match="the log has 1 columns"):
            guessed("45", **{"utilization.gpu": 1})
