"""Specification of guessing: a log without a header is understood, said so, or refused."""

from __future__ import annotations

import pytest

from gpumon.errors import UnreadableLogError, UsageError
from gpumon.sources.logs.table.guessed_layout import guess_layout
from gpumon.sources.logs.table.headings import Column

STAMP = "2026/04/25 16:06:06.780"


def ticks(*cells_of_gpus: tuple[str, ...], count: int = 4) -> list[str]:
    """``count`` queries, a second apart, of GPUs whose rows have stamps 2 ms apart."""
    return [
        f"2025/06/13 00:00:{second:02d}.{2 * gpu:03d}, {gpu}, {cells[second % len(cells)]}"
        for second in range(count)
        for gpu, cells in enumerate(cells_of_gpus)
    ]


def note_on(lines: list[str], **chosen: int) -> str:
    return guess_layout([line.split(",") for line in lines], chosen, "gpu.csv")[1]


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

    def test_what_is_left_beside_the_index_of_several_gpus(self) -> None:
        found = guessed(*ticks(("50", "47"), ("98", "0")))

        assert found == {Column.STAMP: 0, Column.INDEX: 1, Column.UTILIZATION: 2}

    def test_what_is_left_beside_an_index_of_which_a_row_is_missing(self) -> None:
        at_s = [0.0, 0.3, 1.0, 1.3, 2.0, 2.3, 3.0, 3.3, 13.3]
        lines = [
            f"2025/06/13 00:00:{second:06.3f}, {gpu}, {50 + number}"
            for number, (second, gpu) in enumerate(zip(at_s, [0, 1] * 4 + [1], strict=True))
        ]

        assert guessed(*lines)[Column.INDEX] == 1

    def test_the_one_number_that_never_exceeds_100(self) -> None:
        assert guessed(f"{STAMP}, 364, 45", f"{STAMP}, 12, 7")[Column.UTILIZATION] == 2
        assert guessed(f"{STAMP}, 105 %, 45 %", f"{STAMP}, 90 %, 7 %")[Column.UTILIZATION] == 2

    def test_the_only_column_in_percent_even_with_a_damaged_value(self) -> None:
        rows = [f"{STAMP}, 45 %"] * 9 + [f"{STAMP}, 250 %"]

        assert guessed(*rows)[Column.UTILIZATION] == 1

    def test_the_one_the_user_names(self) -> None:
        assert guessed("1, 2, 3", **{"utilization.gpu": 2})[Column.UTILIZATION] == 2


class TestAGuess:
    def test_is_said_with_columns_counted_from_1(self) -> None:
        _, note = guess_layout([[STAMP, " 45 %"]], {}, "gpu.csv")

        assert "column 1 as timestamp, column 2 as utilization.gpu" in note
        assert "--column" in note

    def test_says_which_column_was_the_index_and_which_was_ruled_out(self) -> None:
        note = note_on(ticks(("364, 50",), ("2048, 98",)))

        assert "column 2 as index, column 4 as utilization.gpu" in note
        assert "Column 3 is no utilisation: it exceeds 100." in note

    def test_says_that_the_user_named_what_looks_like_an_index(self) -> None:
        note = note_on(ticks(("50",), ("98",)), **{"utilization.gpu": 1})

        assert "Column 2 looks like the GPUs' index; taken as utilization.gpu as told." in note

    def test_of_an_index_gives_way_to_the_one_the_user_names(self) -> None:
        lines = [f"{line}, {line.split(',')[1]}" for line in ticks(("50",), ("98",))]

        assert guessed(*lines, index=3)[Column.INDEX] == 3
        assert guessed(*lines)[Column.INDEX] == 1

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
        with pytest.raises(UnreadableLogError, match=r"any of the columns 2, 3; say which"):
            guessed(f"{STAMP}, 0, 45, 364")

    def test_has_no_number_that_could_be_pasted_and_be_wrong(self) -> None:
        with pytest.raises(UnreadableLogError, match=r"--column utilization\.gpu=N$"):
            guessed(f"{STAMP}, 0, 45")

    def test_does_not_name_the_index(self) -> None:
        with pytest.raises(UnreadableLogError, match="any of the columns 3, 4; say which"):
            guessed(*ticks(("50, 61",), ("98, 74",)))

    @pytest.mark.parametrize(
        "lines",
        [
            pytest.param(ticks(("50",), ("98",), count=1), id="one tick"),
            pytest.param(ticks(("50",)), id="one GPU"),
            pytest.param(["0, 50", "1, 98"] * 4, id="no stamps"),
            pytest.param(
                [f"2025/06/13 00:00:{at:02d}.000, {at % 2}, 50" for at in range(8)],
                id="evenly spaced stamps",
            ),
            pytest.param(
                [line.replace(", 1, ", ", 2, ") for line in ticks(("50",), ("98",))], id="a gap"
            ),
        ],
    )
    def test_comes_where_the_index_could_be_a_utilisation(self, lines: list[str]) -> None:
        with pytest.raises(UnreadableLogError, match="could be any"):
            guessed(*lines)

    def test_comes_where_every_number_exceeds_100(self) -> None:
        with pytest.raises(UnreadableLogError, match="no utilisation column"):
            guessed(f"{STAMP}, 364, 1200", f"{STAMP}, 365, 1210")

    @pytest.mark.parametrize("unit", ["MiB", "W", "MHz"])
    def test_comes_where_the_only_numbers_have_another_unit(self, unit: str) -> None:
        with pytest.raises(UnreadableLogError, match="no utilisation column"):
            guessed(f"12,{unit}", f"34,{unit}")

    def test_comes_for_text_without_any_number(self) -> None:
        with pytest.raises(UnreadableLogError, match="no utilisation column"):
            guessed("Dear diary, today", "I saw, a GPU")

    def test_comes_for_a_number_that_is_no_percentage(self) -> None:
        with pytest.raises(UnreadableLogError):
            guessed("1718238472", "1718238473")

    def test_comes_for_a_column_that_is_not_there(self) -> None:
        with pytest.raises(UsageError, match="the log has 1 columns"):
            guessed("45", **{"utilization.gpu": 1})


class TestAnIndexBesideACoarseClock:
    def test_is_known_although_many_rows_share_a_minute(self) -> None:
        lines = [
            f"02.03.2026 09:{minute:02d}, {gpu}, {90 + gpu} %"
            for minute in range(4)
            for _ in range(6)
            for gpu in range(2)
        ]

        assert guessed(*lines)[Column.INDEX] == 1
