"""Specification of columns: which says what, by headers of many names or by the user's word."""

from __future__ import annotations

import json
import re

import pytest

from gpumon.errors import UsageError
from gpumon.sources.logs.log_sample import LogOptions
from gpumon.sources.logs.table.column_layout import (
    ColumnLayout,
    contradicted_headings,
    identifying_position,
    layout_of_header,
    looks_like_header,
)
from gpumon.sources.logs.table.headings import Column
from tests.builders_logs import ratios, rows


def layout(header: str, **chosen: int) -> ColumnLayout:
    found = layout_of_header(header.split(","), chosen)
    assert found is not None
    return found


class TestAHeader:
    def test_of_nvidia_smi_is_understood_in_any_order(self) -> None:
        found = layout("memory.used [MiB], uuid, utilization.gpu [%], timestamp, index")

        assert found.positions == {
            Column.MEMORY_USED: 0,
            Column.UUID: 1,
            Column.UTILIZATION: 2,
            Column.STAMP: 3,
            Column.INDEX: 4,
        }
        assert found.is_percent

    @pytest.mark.parametrize(
        "name",
        ["GPU_Utilization_%", "gpu_util", "Utilization (%)", "util", "GPU Utilization [%]",
         "utilization.gpu", "gpu_util_percent"],
    )  # fmt: skip
    def test_of_other_loggers_is_understood_by_its_usual_names(self, name: str) -> None:
        assert layout(f"time,{name}").positions == {Column.STAMP: 0, Column.UTILIZATION: 1}

    def test_never_takes_the_memory_controller_for_the_gpu(self) -> None:
        assert layout_of_header(["timestamp", " utilization.memory [%]"], {}) is None

    def test_goes_by_what_the_user_says(self) -> None:
        found = layout("time,alpha,beta", **{"utilization.gpu": 2})

        assert found.positions[Column.UTILIZATION] == 2

    @pytest.mark.parametrize(
        ("name", "unit_ns"),
        [("time_ms", 1_000_000), ("Relative_Time_s", 10**9), ("elapsed [ms]", 1_000_000),
         ("time", 10**9)],
    )  # fmt: skip
    def test_says_what_its_times_count(self, name: str, unit_ns: int) -> None:
        assert layout(f"{name},util").stamp_unit_ns == unit_ns

    @pytest.mark.parametrize(
        ("name", "is_percent"), [("util", None), ("busy_ratio", False), ("util_%", True)]
    )
    def test_says_whether_it_counts_percent(self, name: str, is_percent: bool | None) -> None:
        assert layout(f"time,{name}").is_percent is is_percent

    def test_tells_gpus_apart_by_uuid_before_index(self) -> None:
        assert identifying_position(layout("index,utilization.gpu [%],uuid").positions) == 2
        assert identifying_position(layout("utilization.gpu [%],name").positions) is None


class TestARowOfValues:
    @pytest.mark.parametrize(
        "row",
        ["2025/06/13 00:27:52.195, 0, Tesla V100S, 0 %", "0.0,3", "1718238472,util", "GPU-1, 4 %",
         "12, name", "[N/A], name", "", "hello, world"],
    )  # fmt: skip
    def test_is_no_header(self, row: str) -> None:
        assert not looks_like_header(row.split(","))


class TestAColumnTheUserNames:
    @pytest.mark.parametrize(
        ("chosen", "said"),
        [
            ({"fan.speed": 1}, r"--column fan\.speed: not a column gpumon uses"),
            ({"utilization.gpu": 8}, r"utilization\.gpu=9: the log has 2 columns"),
        ],
    )
    def test_must_be_used_and_there(self, chosen: dict[str, int], said: str) -> None:
        with pytest.raises(UsageError, match=said):
            layout("time,util", **chosen)

    def test_against_the_header_is_said(self) -> None:
        assert contradicted_headings(
            ["time", " index ", "utilization.memory [%]"], {"index": 0, "util": 2}
        ) == [
            'The header calls column 1 "time"; taken as index as told.',
            'The header calls column 3 "utilization.memory [%]"; taken as utilization.gpu as told.',
        ]

    @pytest.mark.parametrize("heading", ["GPU_Util", " "])
    def test_as_the_header_does_or_where_it_is_blank_needs_no_word(self, heading: str) -> None:
        assert contradicted_headings(["time", heading], {"utilization.gpu": 1}) == []


GPUSTAT = json.dumps(
    {"query_time": "2026-05-11T14:00:00", "gpus": [{"index": 0, "utilization.gpu": 9}]}
)
ANSWER = json.dumps({"resultType": "matrix", "result": []})
OF_ALL_GPUS = rows("time,gpu0,gpu1", *(f"{at},5,97" for at in range(9)))
NAMING_NONE = (
    GPUSTAT,
    rows("# gpu    sm   mem", "# Idx     %     %", "    0    95    40"),
    rows("# gpu   pid  type    sm", "# Idx     #   C/G     %", "    0  4711     C    95"),
    rows("#Entity   GPUTL  MCUTL", "ID", "GPU 0     97     40"),
    rows("==============NVSMI LOG==============", "GPU 00000000:01:00.0"),
    rows("[0] NVIDIA A40 | 50\N{DEGREE SIGN}C,  97 % |  1000 / 46068 MB |"),
    rows("| NVIDIA-SMI 550.54    Driver Version: 550.54 |"),
    rows("| NVITOP 1.3.2    Driver Version: 550.54 |"),
)


class TestAColumnOfALogThatNamesNone:
    @pytest.mark.parametrize("log", NAMING_NONE)
    @pytest.mark.parametrize("name", ["utilization.gpu", "index"])
    def test_is_a_wrong_command_line(self, log: str, name: str) -> None:
        with pytest.raises(UsageError, match=rf"--column {re.escape(name)}: .* are known; leave"):
            ratios(log, LogOptions(columns={name: 1}))

    def test_that_only_some_can_be_named_of_says_which(self) -> None:
        with pytest.raises(UsageError, match=r"where only utilization\.gpu can be named; leave"):
            ratios(ANSWER, LogOptions(columns={"timestamp": 1}))

    @pytest.mark.parametrize("log", [GPUSTAT, ANSWER, OF_ALL_GPUS])
    def test_that_means_nothing_is_named(self, log: str) -> None:
        with pytest.raises(UsageError, match="--column mood: not a column gpumon uses"):
            ratios(log, LogOptions(columns={"mood": 1}))


class TestAColumnOfATableOfAllGpus:
    def test_may_have_any_name_of_the_utilisation(self) -> None:
        assert ratios(OF_ALL_GPUS, LogOptions(columns={"util": "gpu1"})) == [0.97] * 9

    def test_is_counted_from_1_where_it_is_missing(self) -> None:
        with pytest.raises(UsageError, match=r"--column utilization\.gpu=9: "):
            ratios(OF_ALL_GPUS, LogOptions(columns={"utilization.gpu": 8}))
