"""Specification of ``--column`` for logs that name no columns: refused, never ignored."""

from __future__ import annotations

import json
import re

import pytest

from gpumon.errors import UsageError
from gpumon.sources.logs.log_sample import LogOptions
from tests.builders_logs import ratios, rows

GPUSTAT = json.dumps(
    {"query_time": "2026-05-11T14:00:00", "gpus": [{"index": 0, "utilization.gpu": 9}]}
)
DMON = rows("# gpu    sm   mem", "# Idx     %     %", "    0    95    40")
PMON = rows("# gpu   pid  type    sm", "# Idx     #   C/G     %", "    0  4711     C    95")
DCGMI = rows("#Entity   GPUTL  MCUTL", "ID", "GPU 0     97     40")
PAGE = rows("==============NVSMI LOG==============", "GPU 00000000:01:00.0")
TEXT = rows("[0] NVIDIA A40 | 50\N{DEGREE SIGN}C,  97 % |  1000 / 46068 MB |")
TABLE = rows("| NVIDIA-SMI 550.54    Driver Version: 550.54 |")
NVITOP = rows("| NVITOP 1.3.2    Driver Version: 550.54 |")
ANSWER = json.dumps({"resultType": "matrix", "result": []})


class TestAColumnOfALogThatNamesNone:
    @pytest.mark.parametrize("log", [GPUSTAT, DMON, PMON, DCGMI, PAGE, TEXT, TABLE, NVITOP])
    @pytest.mark.parametrize("name", ["utilization.gpu", "index"])
    def test_is_a_wrong_command_line(self, log: str, name: str) -> None:
        with pytest.raises(UsageError, match=rf"--column {re.escape(name)}: .* are known; leave"):
            ratios(log, LogOptions(columns={name: 1}))

    def test_that_only_some_can_be_named_of_says_which(self) -> None:
        with pytest.raises(UsageError, match=r"where only utilization\.gpu can be named; leave"):
            ratios(ANSWER, LogOptions(columns={"timestamp": 1}))

    @pytest.mark.parametrize("log", [GPUSTAT, ANSWER, rows("time,gpu0,gpu1", "1,2,3")])
    def test_that_means_nothing_is_named(self, log: str) -> None:
        with pytest.raises(UsageError, match="--column mood: not a column gpumon uses"):
            ratios(log, LogOptions(columns={"mood": 1}))


class TestAColumnOfATableOfAllGpus:
    def test_may_have_any_name_of_the_utilisation(self) -> None:
        log = rows("time,gpu0,gpu1", *(f"{at},5,97" for at in range(9)))

        assert ratios(log, LogOptions(columns={"util": "gpu1"})) == [0.97] * 9

    def test_is_counted_from_1_where_it_is_missing(self) -> None:
        log = rows("time,gpu0,gpu1", "1,2,3")

        with pytest.raises(UsageError, match=r"--column utilization\.gpu=9: "):
            ratios(log, LogOptions(columns={"utilization.gpu": 8}))
