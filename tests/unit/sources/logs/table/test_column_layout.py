"""Tests of the columns of a table: by their headings, or by ``--column``."""

from __future__ import annotations

import json

import pytest

from gpumon.sources.logs.log_sample import LogOptions
from gpumon.sources.logs.table.column_layout import looks_like_header
from tests.builders.logs import example, rows, verified

GPUSTAT = json.dumps(
    {"query_time": "2026-05-11T14:00:00", "gpus": [{"index": 0, "utilization.gpu": 9}]}
)
ANSWER = json.dumps({"resultType": "matrix", "result": []})
OF_ALL_GPUS = rows("time,gpu0,gpu1", *(f"{at},5,97" for at in range(9)))
WITHOUT_COLUMNS = (
    GPUSTAT,
    rows("# gpu    sm   mem", "# Idx     %     %", "    0    95    40"),
    rows("#Entity   GPUTL  MCUTL", "ID", "GPU 0     97     40"),
    rows("==============NVSMI LOG==============", "GPU 00000000:01:00.0"),
    rows("[0] NVIDIA A40 | 50\N{DEGREE SIGN}C,  97 % |  1000 / 46068 MB |"),
    rows("| NVIDIA-SMI 550.54    Driver Version: 550.54 |"),
)


def chosen(name: str, place: int | str, **more: int) -> LogOptions:
    return LogOptions(columns={name: place, **more})


COLUMNS = {
    "with a name of a ratio is one": example("time,busy_ratio", "1,1", "2,0", busy=[100, 0]),
    "of names does not distinguish GPUs in a log with times": example(
        "time,utilization.gpu [%],name", "1,1,A40", "2,2,T4", of=[0, 0]
    ),
    "that the user names is read even against the header": example(
        "time, index ,utilization.memory [%]", "0,0,5", options=chosen("util", 2, index=0),
        busy=[5],
    ),
    **{
        f"of a log whose columns are known cannot be named: {log[:20]!r}": example(
            log, options=chosen("index", 1), refused=r"--column index: .* are known; leave"
        )
        for log in WITHOUT_COLUMNS
    },
    "that cannot be named is refused with those that can": example(
        ANSWER, options=chosen("timestamp", 1), refused=r"where only utilization\.gpu can be named"
    ),
    **{
        f"of an unknown name is refused: {log[:20]!r}": example(
            log, options=chosen("mood", 1), refused="--column mood: not a column gpumon uses"
        )
        for log in (GPUSTAT, ANSWER, OF_ALL_GPUS)
    },
    "of a table of all GPUs may be named as the utilisation": example(
        OF_ALL_GPUS, options=chosen("util", "gpu1"), busy=[97] * 9
    ),
}  # fmt: skip


class TestAColumn:
    test_is_read_as_expected = verified(COLUMNS)


class TestARowOfValues:
    @pytest.mark.parametrize(
        "row",
        ["2025/06/13 00:27:52.195, 0, Tesla V100S, 0 %", "0.0,3", "1718238472,util", "GPU-1, 4 %",
         "12, name", "[N/A], name", "", "hello, world"],
    )  # fmt: skip
    def test_is_no_header(self, row: str) -> None:
        assert not looks_like_header(row.split(","))
