"""Specification of utilisation cells: a share of the time, or a reason why not; never a guess."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.sources.logs.log_sample import LogOptions
from gpumon.sources.logs.table.cell_values import UtilizationCells
from gpumon.sources.logs.table.skipped_lines import Refusal, SkippedLines
from tests.builders.logs import example, rows, verified


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


IDLE_PERCENT = ["0", "0.4", "0.2"] * 200
LATE_SHARE = [*["0", "1"] * 300, "0.97"]
LONG, WIDE, BARE = "time,gpu_util", "time,gpu0,gpu1", ","
NOTED = ("time,gpu_util_percent", "time,gpu0_util_pct,gpu1_util_pct", "time,gpu util (%)")
"""Headings that say percent."""


def log(heading: str, values: Sequence[str]) -> str:
    repeats = heading.count(",")
    return rows(
        *([heading] if "time" in heading else []),
        *(
            f"2026-05-11 14:{at // 60:02d}:{at % 60:02d}" + f",{value}" * repeats
            for at, value in enumerate(values)
        ),
    )


def query(values: Sequence[str], indent: int | None = None) -> str:
    """An answer to a query, which has no name."""
    pairs = [[1_780_000_000 + at, value] for at, value in enumerate(values)]
    series = {"metric": {"gpu": "0"}, "values": pairs}
    return json.dumps({"resultType": "matrix", "result": [series]}, indent=indent)


def chosen(unit: str, column: int | str) -> LogOptions:
    return LogOptions(columns={f"utilization.gpu [{unit}]": column})


UNITS = {
    **{
        f"percent that begins like a share is refused by its line: {heading}": example(
            log(heading, [*IDLE_PERCENT, "97", "98"]),
            refused=rf'line {line}: the utilisation is 97 here.*--column "utilization.gpu \[%\]=',
        )
        for heading, line in ((LONG, 602), (WIDE, 602), (BARE, 601))
    },
    "percent that only a later header shows is refused": example(
        log(LONG, [*("01" * 300), "0.4"]),
        "time,utilization.gpu [%]", "2026-05-11 15:00:00,97 %",
        refused=r"line 602: the utilisation is 0\.4 here",
    ),
    "percent of a query with impossible values is refused": example(
        query([*["0.5"] * 3, "150", *["0.5"] * 56]), refused=r"the utilisation is 0\.5 here.*by 100"
    ),
    **{
        f"percent is that where the user says so: {heading}": example(
            log(heading, [*IDLE_PERCENT, "97"]), options=chosen("%", column),
            busy=[*[0, 0.4, 0.2] * 200, 97],
        )
        for heading, column in ((LONG, 1), (WIDE, "gpu1"), (BARE, 1))
    },
    "percent is that where each value says so": example(
        log(LONG, [*["0.4 %"] * 600, "97 %"]), busy=[*[0.4] * 600, 97]
    ),
    **{
        f"a share that begins like percent is refused once the log is over: {heading}": example(
            log(heading, LATE_SHARE), refused=r"line 602: the utilisation is 0\.97 here"
        )
        for heading in (LONG, WIDE)
    },
    **{
        f"values of 0 and 1 alone may be either, and are refused: {one} of {heading}": example(
            log(heading, [*["0", one] * 300]),
            refused=rf'line {line}: the utilisation is {re.escape(one)} here.*'
            r'--column "utilization.gpu \[%\]=',
        )
        for heading, line in ((LONG, 3), (WIDE, 3), (BARE, 2))
        for one in ("1", "1.0")
    },
    "values of 1 alone are refused": example(log(LONG, ["1.0"] * 60), refused="is 1.0 here"),
    "values of 0 alone are the same in both units": example(log(LONG, ["0"] * 60), busy=[0] * 60),
    "a 1 is a hundredth where another value is percent": example(
        log(LONG, [*["0", "1"] * 30, "2"]), busy=[*[0, 1] * 30, 2]
    ),
    "a 1 is a hundredth where the heading says percent": example(
        log("time,gpu_util [%]", ["0", "1"] * 30), busy=[0, 1] * 30
    ),
    **{
        f"shares under a heading that says percent are refused: {heading}, {values[1]}": example(
            log(heading, values * 200),
            refused=r"line 3: the heading says percent.*0\.97.*from 0 to 1.*\[ratio\]=",
        )
        for heading in NOTED
        for values in (["0", "0.97"], ["1.0", "0.97"])
    },
    **{
        f"a heading that says percent is believed where a value bears it out: {heading}": example(
            log(heading, [*IDLE_PERCENT, "2"]),
            busy=[share for share in (*[0, 0.4, 0.2] * 200, 2) for _ in heading.split(",")[1:]],
        )
        for heading in NOTED
    },
    **{
        f"fractions of a percent are those where a tool writes the heading: {heading}": example(
            log(f"time,{heading}", IDLE_PERCENT), busy=[0, 0.4, 0.2] * 200
        )
        for heading in (
            "system/gpu_0_utilization_percentage", "device_id: 0/utilization.gpu (%)",
            'GPU util % {gpu="0"}',
        )
    },
    "fractions of a percent are those where the user says so, too": example(
        log(NOTED[0], IDLE_PERCENT), options=chosen("%", 1), busy=[0, 0.4, 0.2] * 200
    ),
    "shares are those where the user says so under a heading that says percent": example(
        log(NOTED[0], ["0.5", "0.97"] * 30), options=chosen("ratio", 1), busy=[50, 97] * 30
    ),
    **{
        f"a 1 is what the user says: {unit}": example(
            log(LONG, ["0", "1"] * 30), options=chosen(unit, 1), busy=[0, one] * 30
        )
        for unit, one in (("%", 1), ("ratio", 100))
    },
    **{
        f"a share is one where the user says so: {heading}": example(
            log(heading, LATE_SHARE), options=chosen("ratio", column), busy=[*[0, 100] * 300, 97]
        )
        for heading, column in ((LONG, 1), ("time,gpu0", "gpu0"))
    },
    **{
        f"a share is not given up for a value that is no percentage: {odd} of {heading}": example(
            log(heading, [*["0.5", "0.97"] * 300, odd, "0.25"]),
            busy=[share for share in (*[50, 97] * 300, None, 25) for _ in heading.split(",")[1:]],
            skipped=1,
        )
        for heading in (LONG, WIDE, BARE)
        for odd in ("1.02", "-1", "65535")
    },
}  # fmt: skip


class TestAUnit:
    test_is_read_as_expected = verified(UNITS)
