"""Specification of a utilisation without a unit: percent or share, by the whole log or refused."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.log_sample import LogOptions
from tests.builders_logs import NO_OPTIONS, ratios, rows

IDLE_PERCENT = ["0", "0.4", "0.2"] * 200
HEADINGS = ["time,gpu_util", "time,gpu0,gpu1"]


def log(heading: str, values: Sequence[str]) -> str:
    repeats = heading.count(",")
    return rows(
        *([heading] if "time" in heading else []),
        *(
            f"2026-05-11 14:{at // 60:02d}:{at % 60:02d}" + f",{value}" * repeats
            for at, value in enumerate(values)
        ),
    )


def told(name: str, column: int | str) -> LogOptions:
    return LogOptions(columns={name: column})


class TestPercentThatBeginsLikeAShare:
    @pytest.mark.parametrize("heading", [*HEADINGS, ","])
    def test_is_refused_with_the_line_and_the_way_out(self, heading: str) -> None:
        line = 601 + ("time" in heading)
        with pytest.raises(
            UnreadableLogError,
            match=rf'line {line}: the utilisation is 97 here.*--column "utilization.gpu \[%\]=',
        ):
            ratios(log(heading, [*IDLE_PERCENT, "97", "98"]))

    def test_is_refused_where_a_later_header_alone_says_percent(self) -> None:
        unsaid = log("time,gpu_util", [*("01" * 300), "0.4"])
        said = rows("time,utilization.gpu [%]", "2026-05-11 15:00:00,97 %")

        with pytest.raises(UnreadableLogError, match=r"line 602: the utilisation is 0\.4 here"):
            ratios(unsaid + said)

    def test_is_refused_of_a_query_without_a_name(self) -> None:
        values = [[1_780_000_000 + at, "0.4"] for at in range(70_000)]
        series = {"metric": {"gpu": "0"}, "values": [*values, [1_790_000_000, "97"]]}

        with pytest.raises(UnreadableLogError, match=r"the utilisation is 97 here.*by 100"):
            ratios(json.dumps({"resultType": "matrix", "result": [series]}, indent=0))

    def test_is_refused_of_a_query_where_only_what_no_gpu_can_have_exceeds_one(self) -> None:
        values = [[1_780_000_000 + at, "150" if at == 3 else "0.5"] for at in range(60)]
        series = {"metric": {"gpu": "0"}, "values": values}

        with pytest.raises(UnreadableLogError, match=r"the utilisation is 0\.5 here.*by 100"):
            ratios(json.dumps({"resultType": "matrix", "result": [series]}))

    @pytest.mark.parametrize(
        ("heading", "column"), [("time,gpu_util", 1), ("time,gpu0,gpu1", "gpu1"), (",", 1)]
    )
    def test_is_percent_where_the_told_name_says_so(self, heading: str, column: int | str) -> None:
        text = log(heading, [*IDLE_PERCENT, "97", "98"])

        read = ratios(text, told("utilization.gpu [%]", column))

        assert read[1:3] + read[-2:] == pytest.approx([0.004, 0.002, 0.97, 0.98])

    def test_is_percent_where_each_value_says_so(self) -> None:
        assert ratios(log("time,gpu_util", ["0.4 %"] * 600 + ["97 %"]))[-2:] == [0.004, 0.97]


class TestAShareThatBeginsLikePercent:
    @pytest.mark.parametrize("heading", HEADINGS)
    def test_is_refused_once_the_log_is_over(self, heading: str) -> None:
        with pytest.raises(UnreadableLogError, match=r"line 602: the utilisation is 0\.97 here"):
            ratios(log(heading, [*["0", "1"] * 300, "0.97"]))

    @pytest.mark.parametrize(("heading", "column"), [("time,gpu_util", 1), ("time,gpu0", "gpu0")])
    def test_is_a_share_where_the_told_name_says_so(self, heading: str, column: int | str) -> None:
        text = log(heading, [*["0", "1"] * 300, "0.97"])

        assert ratios(text, told("utilization.gpu [ratio]", column))[-2:] == [1.0, 0.97]


class TestAShare:
    @pytest.mark.parametrize("heading", [*HEADINGS, ","])
    @pytest.mark.parametrize("odd", ["1.02", "-1", "65535"])
    def test_is_not_given_up_for_a_value_that_is_no_percentage(
        self, heading: str, odd: str
    ) -> None:
        read = ratios(log(heading, [*["0.5", "0.97"] * 300, odd, "0.25"]), NO_OPTIONS)

        assert read[0] == 0.5
        assert read[-1] == 0.25
