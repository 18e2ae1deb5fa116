"""Tests of answers of Prometheus: cases that no sample has."""

from __future__ import annotations

import json
from typing import Any

from gpumon.sources.logs.log_sample import LoggedGpu
from tests.builders.logs import example, util_at, verified

UTIL = "DCGM_FI_DEV_GPU_UTIL"
ACTIVE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
Series = dict[str, Any]


def series(
    values: list[object], name: str | None = UTIL, *, start: float = 0, **labels: str
) -> Series:
    """One series, a value a second."""
    named = labels if name is None else {"__name__": name, **labels}
    pairs = [[1_700_000_000 + start + at, str(value)] for at, value in enumerate(values)]
    return {"metric": named, "values": pairs}


def answer(*result: Series, **layout: Any) -> str:
    data = {"resultType": "matrix", "result": list(result)}
    return json.dumps({"status": "success", "data": data}, **layout)


LABELS: Series = {"gpu": "3", "UUID": "GPU-9", "modelName": "NVIDIA A40", "GPU_I_ID": "7"}
COMPLETE = answer(series([10, 20, 30], gpu="0"))
TWICE = answer(series([96, 0], gpu="0"), series([97, 97], gpu="1"))
BUSY, BUSIER = series([10, 20, 30, 40], gpu="0"), series([96], gpu="0")
ACTIVITY = series([0.5], ACTIVE, gpu="0")


SERIES = {
    "names its GPU": example(
        answer(series([96], **LABELS)),
        gpus=(LoggedGpu(index=3, uuid="GPU-9", name="NVIDIA A40", mig_index=7),),
    ),
    "has stamps to the millisecond": example(
        answer(series([1, 2], start=0.781, gpu="0")), began="2023-11-14T22:13:20.781+00:00"
    ),
    **{
        f"may have a value that is none: {value}": example(
            answer(series([96, value, 3], gpu="0")), busy=[96, None, 3], skipped=1
        )
        for value in ("NaN", "+Inf", "-Inf", "101", "-1")
    },
    "that is cut short is refused with what to do": example(
        COMPLETE[: COMPLETE.index('"30"') + 2],
        refused="the JSON is cut short.*ask Prometheus again",
    ),
    "that is damaged is refused with what to do": example(
        COMPLETE.replace('"30"', "30 x"), refused="no answer is complete: ask Prometheus again"
    ),
    "may be in several answers, as a loop of curl saves them": example(
        COMPLETE + answer(series([5], gpu="0", start=9)), busy=[10, 20, 30, 5], at_s=[0, 1, 2, 9]
    ),
    **{
        f"with an impossible time is counted: {time}": example(
            answer(series([10, 20], gpu="0")).replace("1700000001", time), busy=[10], skipped=1
        )
        for time in ("1e999", "-5", "null", "1e11")
    },
    "that overlaps another one of its GPU continues it": example(
        answer(series([96, 0, 1], gpu="0"), series([0, 1, 2], gpu="0", start=1)),
        busy=[96, 0, 1, 2], skipped=2, gpu_count=1,
        noted="2 lines with a time that an earlier series of its GPU has",
    ),
    "may be chosen by the user": example(
        answer(BUSIER, ACTIVITY), options=util_at(ACTIVE), busy=[50]
    ),
    "has the metric of the first answer": example(
        answer(ACTIVITY) + answer(BUSIER), busy=[50], noted=f"Read {ACTIVE} as the utilisation, not"
    ),
    "that the user names must exist": example(
        answer(BUSIER), options=util_at("my_gpu_busy"), refused="no series of my_gpu_busy"
    ),
    "cannot be named by a number": example(
        answer(BUSIER), options=util_at(1), refused="has no columns; name a metric"
    ),
    **{
        f"of another quantity is refused: {part}": example(
            answer(series([96], f"gpu_{part}_utilization", gpu="0")), refused="is a utilisation"
        )
        for part in ("power", "nvlink", "memory", "encoder")
    },
    "without a name is percent if a value exceeds 1": example(
        answer(series([0.5, 0.9], None, gpu="0"), series([0.5, 97.0], None, gpu="1")),
        of=[0, 1, 0, 1], busy=[0.5, 0.5, 0.9, 97],
    ),
    "without a name has the unit of the first answer": example(
        answer(series([0.5], None, gpu="0")) + answer(series([97.0], None, gpu="0", start=9)),
        refused="percent or a share",
    ),
    **{
        f"of a single time is refused: {part}": example(text, refused=f"{part}.*query")
        for text, part in (
            ('{"status":"success","data":{"resultType":"vector","result":[]}}', "a vector"),
            ('{"data":{"result":[{"metric":{},"value":[1,"2"]}]}}', "values of one moment"),
            ('{"status":"error","errorType":"bad_data","error":"parse error"}', "parse error"),
            (answer(), "the answer has no series"),
        )
    },
}  # fmt: skip


class TestASeries:
    test_is_read_as_expected = verified(SERIES)
