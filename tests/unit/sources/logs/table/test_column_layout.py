"""Specification of headers: which column says what, in any order and under many names."""

from __future__ import annotations

import pytest

from gpumon.errors import UsageError
from gpumon.sources.logs.table.column_layout import (
    ColumnLayout,
    contradicted_headings,
    layout_of_header,
    looks_like_header,
)
from gpumon.sources.logs.table.headings import Column


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
        found = layout_of_header(["time", "alpha", "beta"], {"utilization.gpu": 2})

        assert found is not None
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
        assert layout("index,utilization.gpu [%],uuid").identifying_position() == 2
        assert layout("utilization.gpu [%],name").identifying_position() is None


class TestARowOfValues:
    @pytest.mark.parametrize(
        "row",
        ["2025/06/13 00:27:52.195, 0, Tesla V100S, 0 %", "0.0,3", "1718238472,util", "GPU-1, 4 %",
         "12, name", "[N/A], name", "", "hello, world"],
    )  # fmt: skip
    def test_is_no_header(self, row: str) -> None:
        assert not looks_like_header(row.split(","))


class TestAColumnTheUserNames:
    def test_must_be_one_that_is_used(self) -> None:
        with pytest.raises(UsageError, match=r"--column fan\.speed: not a column gpumon uses"):
            layout("time,util", **{"fan.speed": 1})

    def test_must_be_there(self) -> None:
        with pytest.raises(UsageError, match=r"utilization\.gpu=9: the log has 2 columns"):
            layout("time,util", **{"utilization.gpu": 8})

    def test_against_the_header_is_said(self) -> None:
        assert contradicted_headings(
            ["time", " index ", "utilization.memory [%]"], {"index": 0, "util": 2}
        ) == [
            'The header calls column 1 "time"; taken as index as told.',
            'The header calls column 3 "utilization.memory [%]"; taken as utilization.gpu as told.',
        ]

    def test_as_the_header_does_needs_no_word(self) -> None:
        assert contradicted_headings(["time", "GPU_Util"], {"utilization.gpu": 1}) == []

    def test_needs_no_word_where_the_header_is_blank(self) -> None:
        assert contradicted_headings(["time", " "], {"utilization.gpu": 1}) == []
