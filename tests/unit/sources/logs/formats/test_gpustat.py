"""Tests of gpustat's JSON and of its lines: cases that no sample has."""

from __future__ import annotations

import json
from typing import Any

from gpumon.sources.logs.log_sample import LoggedGpu
from tests.builders.logs import example, verified

A40 = LoggedGpu(index=0, uuid="GPU-0", name="NVIDIA A40", memory_bytes=46_068 << 20)


def gpu(percent: object) -> dict[str, Any]:
    message = {"index": 0, "uuid": "GPU-0", "name": "NVIDIA A40", "utilization.gpu": percent}
    return {**message, "memory.used": 12_000, "memory.total": 46_068}


def reading(second: int, *gpus: dict[str, Any], **layout: Any) -> str:
    time = f"2026-01-24T21:05:{second:02d}.195000"
    return json.dumps({"hostname": "node-7", "query_time": time, "gpus": gpus}, **layout)


NAMELESS = {name: message for name, message in gpu(0).items() if name != "uuid"}
COMPLETE = reading(1, gpu(96), indent=4)

READINGS = {
    "describe the GPU": example(reading(1, gpu(96)), gpus=(A40,), used_mib=[12_000]),
    "without a time are counted": example(
        reading(1, gpu(96)), json.dumps({"query_time": None, "gpus": [gpu(3)]}),
        busy=[96], skipped=1,
    ),
    "without the uuid are of the GPU with that index": example(
        reading(1, gpu(96)), reading(2, NAMELESS), of=[0, 0], gpus=(A40,)
    ),
    "cut short are counted and the next one is read": example(
        COMPLETE, COMPLETE[:200], COMPLETE.replace(":01.", ":03."), at_s=[0, 2], skipped=1
    ),
    **{
        f"without an answer are not observed: {answer!r}": example(
            reading(1, gpu(96)), reading(2, gpu(answer)), busy=[96, None], skipped=1
        )
        for answer in (None, "[N/A]", 101, -1, "busy", True, 10**400)
    },
    **{
        f"without any GPU are refused: {gpus!r}": example(
            json.dumps({"query_time": "2026-01-24T21:05:14.1", "gpus": gpus}),
            refused="no reading with a utilisation",
        )
        for gpus in ([], [None], [3], {"0": 1}, "none", [{"name": "A40"}])
    },
}  # fmt: skip


class TestReadingsInJson:
    test_are_read_as_expected = verified(READINGS)


def head(second: int, host: str = "node-7") -> str:
    return f"{host}      Sat Jan 24 21:05:{second:02d} 2026  580.95.05"


def line(percent: object, index: int = 0, *, between: str = " ", memory: str = "12000") -> str:
    return f"[{index}] NVIDIA A40 | 61°C,{between}{percent:>3} % | {memory} / 46068 MB | mira(9M)"


CODECS = "[0] NVIDIA A40 | 61'C,  96 % (E:   7 %  D:   9 %),  212 / 300 W | 1 / 46068 MB |"
HOSTS_IN_TURN = (head(at // 2, f"node-{at % 2}") for at in range(6))
OTHER = "2026/01/24 21:05:14.120, 0, 94 %"
FOREIGN = "node-7    Sa 24 Narvinye 2026 21:05:02 CET  580.95.05"

LINES = {
    "are read after a fan without an answer": example(
        head(1), line(96, between="  ?? %, "), busy=[96]
    ),
    "without an answer are not observed": example(
        head(1), line("??", memory="??"), line(5, 1), busy=[None, 5], skipped=1
    ),
    "of several hosts are of different GPUs": example(
        *(one for host in HOSTS_IN_TURN for one in (host, line(96))), of=[0, 1, 0, 1, 0, 1]
    ),
    "of another program are counted": example(
        head(1), line(96), " ├─ 2211 ( 100%,  512MB): python train.py", OTHER, OTHER,
        busy=[96], skipped=2,
    ),
    "under a date in an unknown language are counted": example(
        head(1), line(96), FOREIGN, line(3),
        busy=[96], skipped=1, noted="with a time that cannot be read",
    ),
}  # fmt: skip


class TestLinesForPeople:
    test_are_read_as_expected = verified(LINES)
