"""Tests of logs without a header: the columns are found by their cells, or the log is refused."""

from __future__ import annotations

import pytest

from gpumon.errors import UnreadableLogError, UsageError
from gpumon.sources.logs.log_sample import LogOptions
from gpumon.sources.logs.table.column_names import Column
from gpumon.sources.logs.table.guessed_layout import guess_layout
from tests.builders.logs import ratios, rows

AT = "2026/04/25 16:06:06.780"
STAMP, INDEX, UUID, BUSY = Column.STAMP, Column.INDEX, Column.UUID, Column.UTILIZATION


def ticks(*cells_of_gpus: tuple[str, ...], count: int = 4) -> list[str]:
    """Rows of several GPUs 2 ms apart, each second."""
    return [
        f"2025/06/13 00:00:{second:02d}.{2 * gpu:03d}, {gpu}, {cells[second % len(cells)]}"
        for second in range(count)
        for gpu, cells in enumerate(cells_of_gpus)
    ]


def guessed(lines: list[str], **chosen: int) -> tuple[dict[Column, int], str]:
    """The positions of columns, and the note."""
    layout, note = guess_layout([line.split(",") for line in lines], chosen, "gpu.csv")
    return dict(layout.positions), note


TWO_GPUS = ticks(("50",), ("98",))
INDEX_TWICE = [f"{line}, {line.split(',')[1]}" for line in TWO_GPUS]
MANY_A_MINUTE = [f"02.03.2026 09:{row // 12:02d}, {row % 2}, {90 + row % 2} %" for row in range(48)]
FOUND = {
    "the only column in percent": (
        {STAMP: 0, UUID: 2, BUSY: 3}, [f"{AT}, 0, GPU-1f2e3d, 45 %, 364 MiB"]
    ),
    "the first of GPU and memory": ({STAMP: 0, BUSY: 1}, [f"{AT}, 45 %, 12 %, 2 MiB"]),
    "the only number": ({BUSY: 0}, ["45", "0", "100"]),
    "a column whose first rows have no answer": (
        {STAMP: 0, BUSY: 1}, [f"{AT}, [N/A]", f"{AT}, [Unknown Error]", f"{AT}, 3 %"]
    ),
    "the number that is not the index of several GPUs": (
        {STAMP: 0, INDEX: 1, BUSY: 2}, ticks(("50", "47"), ("98", "0"))
    ),
    "the number that is not an index in many rows of a minute": (
        {STAMP: 0, INDEX: 1, BUSY: 2}, MANY_A_MINUTE
    ),
    "the one number that never exceeds 100": (
        {STAMP: 0, BUSY: 2}, [f"{AT}, 364, 45", f"{AT}, 12, 7"]
    ),
    "the only column in percent even with a damaged value": (
        {STAMP: 0, BUSY: 1}, [f"{AT}, 45 %"] * 9 + [f"{AT}, 250 %"]
    ),
    "the number after a bus id and a name": (
        {Column.BUS_ID: 0, Column.NAME: 1, BUSY: 2}, ["00000000:3B:00.0, NVIDIA A40, 45 %"]
    ),
}  # fmt: skip
REFUSED = {
    "several in percent": ("any of the columns 2, 3, 4; choose", [f"{AT}, 4 %, 2 %, 3 %"]),
    "of numbers without a unit": ("any of the columns 2, 3; choose one", [f"{AT}, 0, 45, 364"]),
    "and no number is proposed that could be wrong": (
        r"--column utilization\.gpu=N$", [f"{AT}, 0, 45"]
    ),
    "other than the index": (
        "any of the columns 3, 4; choose one", ticks(("50, 61",), ("98, 74",))
    ),
    "or an index without stamps": ("could be any", ["0, 50", "1, 98"] * 4),
    "or an index with evenly spaced stamps": (
        "could be any", [f"2025/06/13 00:00:{at:02d}.000, {at % 2}, 50" for at in range(8)]
    ),
    "that never change next to a column without an answer": (
        r"no value in column 3, and column 2 never changes.*with MIG on",
        [f"{AT}, 0, [N/A], 1830"] * 20,
    ),
    "that exceed 100": ("no utilisation column", [f"{AT}, 364, 1200", f"{AT}, 365, 1210"]),
    "of text": ("no utilisation column", ["Dear diary, today", "I saw, a GPU"]),
}  # fmt: skip
NOTED: dict[str, tuple[str, list[str], dict[str, int]]] = {
    "the columns, counted from 1": (
        "column 1 as timestamp, column 2 as utilization.gpu. Use --column", [f"{AT}, 45 %"], {}
    ),
    "the index, and not a column that exceeds 100": (
        "column 2 as index, column 4 as utilization.gpu. Use --column",
        ticks(("364, 50",), ("2048, 98",)), {},
    ),
}  # fmt: skip


class TestTheUtilisation:
    @pytest.mark.parametrize(("positions", "lines"), FOUND.values(), ids=FOUND)
    def test_is(self, positions: dict[Column, int], lines: list[str]) -> None:
        assert guessed(lines)[0] == positions

    def test_is_the_column_that_the_user_names(self) -> None:
        assert guessed(["1, 2, 3"], **{"utilization.gpu": 2})[0][BUSY] == 2

    def test_must_be_in_an_existing_column(self) -> None:
        with pytest.raises(UsageError, match="has 1 columns"):
            guessed(["45"], **{"utilization.gpu": 1})

    @pytest.mark.parametrize(("message", "lines"), REFUSED.values(), ids=REFUSED)
    def test_is_not_guessed_among_columns(self, message: str, lines: list[str]) -> None:
        with pytest.raises(UnreadableLogError, match=message):
            guessed(lines)


class TestTheNote:
    @pytest.mark.parametrize(("message", "lines", "chosen"), NOTED.values(), ids=NOTED)
    def test_names(self, message: str, lines: list[str], chosen: dict[str, int]) -> None:
        assert message in guessed(lines, **chosen)[1]

    def test_names_the_index_of_the_user_rather_than_a_guessed_one(self) -> None:
        assert guessed(INDEX_TWICE, index=3)[0][INDEX] == 3
        assert guessed(INDEX_TWICE)[0][INDEX] == 1


def lines_of(pattern: str) -> str:
    """Five minutes of a training script's output, or of a GPU logger."""
    return rows(
        *(
            pattern.format(
                stamp=f"2026-05-11 14:{at // 60:02d}:{at % 60:02d}",
                loss=f"{0.742 - at * 0.001:.3f}",
                step=at * 10,
                busy=96 - at % 3,
            )
            for at in range(300)
        )
    )


class TestLinesWithWords:
    @pytest.mark.parametrize(
        "pattern",
        [
            "{stamp} INFO step {step} loss {loss} gpu_util={busy}% mem=12000MiB",
            "epoch {step} loss {loss} acc {busy}%",
            "[{stamp}] INFO step={step} loss={loss} util {busy} %",
            "{stamp},INFO,step,{step},loss,{loss}",
        ],
    )
    def test_are_refused(self, pattern: str) -> None:
        with pytest.raises(UnreadableLogError, match=r"words \(.*\): .*--column"):
            ratios(lines_of(pattern))

    def test_are_read_if_the_user_names_the_column(self) -> None:
        options = LogOptions(columns={"utilization.gpu": 4})

        assert ratios(lines_of("{stamp} util is {busy} %"), options)[:3] == [0.96, 0.95, 0.94]

    @pytest.mark.parametrize(
        "pattern",
        [
            "{stamp} {busy} %",
            "{stamp} NVIDIA A100 {busy} %",
            "{stamp} Tesla T4 P0 Enabled {busy} %",
            "{stamp}, Not Active, Default, {busy}",
            "{stamp}, cerberus, {busy} %",
        ],
    )
    def test_of_gpu_logs_are_read(self, pattern: str) -> None:
        assert ratios(lines_of(pattern))[:3] == [0.96, 0.95, 0.94]


class TestMemory:
    def test_is_read_only_if_the_user_names_its_column(self) -> None:
        lines = [f"{AT}, 45 %, 364 MiB, 46068 MiB"]

        assert guessed(lines)[0] == {STAMP: 0, BUSY: 1}
        assert guessed(lines, **{"memory.used": 2})[0][Column.MEMORY_USED] == 2
