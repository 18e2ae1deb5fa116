"""Tests of utilisation cells: a ratio, or the reason why there is none."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import pytest

from gpumon.sources.logs.log_sample import LogOptions
from gpumon.sources.logs.table.cell_values import Refusal, ratio_in
from tests.builders.logs import example, rows, verified

CELLS: dict[float | Refusal, tuple[str, ...]] = {
    0.45: ("45", " 45 %", "45%\n"),
    1.0: ("100 %",),
    0.0: ("0%", "0"),
    Refusal.NO_ANSWER: (
        "[N/A]", "[Not Supported]", "N/A", "None", "null", "Field not found", "", "-",
    ),
    Refusal.IMPOSSIBLE: ("101 %", "255", "-1 %", "nan", "NaN %", "inf", "-0.5"),
    Refusal.NO_NUMBER: ("364 MiB", "1_0", "0x20", "4 5", "٤٥", "1e1", "P0"),
    Refusal.ERROR: (" [Unknown Error]", "Unknown Error", "ERR!"),
    Refusal.LOST: ("[GPU is lost]", "GPU is lost"),
    Refusal.RESET: ("[GPU requires reset]",),
}  # fmt: skip


class TestACell:
    @pytest.mark.parametrize(
        ("cell", "meant"), [(cell, meant) for meant, cells in CELLS.items() for cell in cells]
    )
    def test_is_a_ratio_or_the_reason_why_not(self, cell: str, meant: float | Refusal) -> None:
        assert ratio_in(cell) == meant

    def test_of_a_ratio_column_is_not_divided(self) -> None:
        assert [ratio_in(cell, 1.0) for cell in ("0.45", "1")] == [0.45, 1.0]


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
    """A Prometheus answer without a metric name."""
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
    "percent that only a later header states is refused": example(
        log(LONG, [*("01" * 300), "0.4"]),
        "time,utilization.gpu [%]", "2026-05-11 15:00:00,97 %",
        refused=r"line 602: the utilisation is 0\.4 here",
    ),
    "percent of a query with impossible values is refused": example(
        query([*["0.5"] * 3, "150", *["0.5"] * 56]), refused=r"the utilisation is 0\.5 here.*by 100"
    ),
    **{
        f"the user decides that it is percent: {heading}": example(
            log(heading, [*IDLE_PERCENT, "97"]), options=chosen("%", column),
            busy=[*[0, 0.4, 0.2] * 200, 97],
        )
        for heading, column in ((LONG, 1), (WIDE, "gpu1"), (BARE, 1))
    },
    **{
        f"the user decides that it is a ratio: {heading}": example(
            log(heading, LATE_SHARE), options=chosen("ratio", column), busy=[*[0, 100] * 300, 97]
        )
        for heading, column in ((LONG, 1), ("time,gpu0", "gpu0"))
    },
    "the user decides that it is a ratio, under a heading that says percent": example(
        log(NOTED[0], ["0.5", "0.97"] * 30), options=chosen("ratio", 1), busy=[50, 97] * 30
    ),
    **{
        f"a ratio that begins like percent is refused at the end: {heading}": example(
            log(heading, LATE_SHARE), refused=r"line 602: the utilisation is 0\.97 here"
        )
        for heading in (LONG, WIDE)
    },
    **{
        f"values of only 0 and 1 are refused: {one} of {heading}": example(
            log(heading, [*["0", one] * 300]),
            refused=rf'line {line}: the utilisation is {re.escape(one)} here.*'
            r'--column "utilization.gpu \[%\]=',
        )
        for heading, line, one in ((LONG, 3, "1"), (WIDE, 3, "1.0"), (BARE, 2, "1"))
    },
    "a 1 is 1 % if another value is percent": example(
        log(LONG, [*["0", "1"] * 30, "2"]), busy=[*[0, 1] * 30, 2]
    ),
    "a 1 is 1 % if the heading says percent": example(
        log("time,gpu_util [%]", ["0", "1"] * 30), busy=[0, 1] * 30
    ),
    **{
        f"ratios under a heading that says percent are refused: {heading}, {values[1]}": example(
            log(heading, values * 200),
            refused=r"line 3: the heading says percent.*0\.97.*from 0 to 1.*\[ratio\]=",
        )
        for heading in NOTED
        for values in (["0", "0.97"], ["1.0", "0.97"])
    },
    **{
        f"one value above 1 confirms a heading that says percent: {heading}": example(
            log(heading, [*IDLE_PERCENT, "2"]),
            busy=[share for share in (*[0, 0.4, 0.2] * 200, 2) for _ in heading.split(",")[1:]],
        )
        for heading in NOTED
    },
    **{
        f"small values need no confirmation under the heading of a tool: {heading}": example(
            log(f"time,{heading}", IDLE_PERCENT), busy=[0, 0.4, 0.2] * 200
        )
        for heading in (
            "system/gpu_0_utilization_percentage", "device_id: 0/utilization.gpu (%)",
            'GPU util % {gpu="0"}',
        )
    },
    **{
        f"a value that is neither does not change the unit: {odd} of {heading}": example(
            log(heading, [*["0.5", "0.97"] * 300, odd, "0.25"]),
            busy=[share for share in (*[50, 97] * 300, None, 25) for _ in heading.split(",")[1:]],
            skipped=1,
        )
        for heading, odd in ((LONG, "1.02"), (WIDE, "-1"), (BARE, "65535"))
    },
}  # fmt: skip


class TestAUnit:
    test_is_read_as_expected = verified(UNITS)
