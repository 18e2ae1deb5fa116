"""Tests of tables with a column, or a JSON key, for each GPU: cases that no sample has."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from gpumon.sources.logs.log_sample import LoggedGpu, LogOptions
from gpumon.sources.logs.table.column_names import Column
from gpumon.sources.logs.table.headings import heading_of
from tests.builders.logs import example, read_log, rows, seconds_of, util_at, verified

RUN = "night - system/gpu.0.gpu"
OF_ANOTHER_RUN = "day - system/gpu.0.gpu"
GPU_0, GPU_1 = "system.gpu.0.gpu", "system.gpu.1.gpu"


NOT_OF_UTILISATION = (
    "system.gpu.process.0.gpu", "system.gpu.0.memory", f"{RUN}__MIN", f"{RUN}__MAX",
    "metrics-daemon/gpu:0/memory_utilization (%)/mean",
    "metrics-daemon/gpu:0/gpu_utilization (%)/max",
    "metrics-daemon/pid:7/gpu:0/gpu_sm_utilization (%)/mean",
    "gpu0_temp", "gpu_0_memory_util", "gpu0_mem_used", "cpu0_util", "load_1", "load 15",
    "gpu", "GPU 0: NVIDIA A40", "gpu0_gpu1",
)  # fmt: skip


class TestHeadings:
    @pytest.mark.parametrize(
        ("heading", "gpu", "part"),
        [
            ("system.gpu.11.gpu", 11, None),
            ("system/gpu.2.gpu", 2, None),
            ("gpu.2.gpu", 2, None),
            ("a - b - system/gpu.2.gpu/l:node-3", 2, None),
            ("metrics-daemon/gpu:3/gpu_utilization (%)/mean", 3, None),
            ("metrics-daemon/cuda:0 (gpu:(2, 1))/gpu_utilization (%)/mean", 2, 1),
            ("train/batch/cuda:0 (gpu:5)/gpu_utilization (%)/last", 5, None),
            ("GPU 4 utilization [%]", 4, None),
            ("utilization.gpu.1", 1, None),
            ("gpu0", 0, None),
            ("cuda:1 load", 1, None),
            ("util_6", 6, None),
        ],
    )
    def test_of_utilisation_name_their_gpu(self, heading: str, gpu: int, part: int | None) -> None:
        meaning = heading_of(heading)

        assert meaning is not None
        assert meaning.gpu is not None
        assert meaning.column is Column.UTILIZATION
        assert (meaning.gpu.number, meaning.gpu.mig_index) == (gpu, part)

    @pytest.mark.parametrize("heading", NOT_OF_UTILISATION)
    def test_of_anything_else_are_no_utilisation(self, heading: str) -> None:
        meaning = heading_of(heading)

        assert meaning is None or meaning.column is not Column.UTILIZATION


TABLES = {
    "has the time of the clock rather than the elapsed time": example(
        f"_runtime,{GPU_0},_timestamp", "5,10,1700000000.5", "6,20,1700000001.5",
        is_wall=True, began="2023-11-14T22:13:20.500+00:00",
    ),
    "may write its time with an exponent": example(
        f"_timestamp,{GPU_0}", "1.7e+09,1", "1.700000002e+09,2", at_s=[0, 2]
    ),
    "has the time that the user names": example(
        "_timestamp,when,gpu0_util", "1700000000,3,10", "1700000000,5,20",
        options=LogOptions(columns={"timestamp": "when"}), at_s=[0, 2],
    ),
    "counts rows whose time cannot be read": example(
        "time,gpu0", "1,10", "soon,10", ",10", "-3,10", "1e999,10", "2e9.5,10", "17e+1x,10", "3,20",
        busy=[10, 20], skipped=6,
    ),
    "may have a single column": example(
        f'"Step","{RUN}"', '"0","96.5"', '"1","0"', busy=[96.5, 0]
    ),
    "is not read under another header until its own comes again": example(
        "time,gpu0,gpu1", "1,10,20", "time,gpu1,gpu0", "2,10,20", "time,gpu0,gpu1", "3,10,20",
        busy=[10, 20, 10, 20], skipped=2,
    ),
    "has no answer in a blank cell": example(
        "time,gpu0,gpu1", "1,10,20", "2,,30", busy=[10, 20, None, 30], skipped=1
    ),
    "ignores a blank cell of another run": example(
        f"Relative Time (Wall),{RUN},{OF_ANOTHER_RUN}", "1,10,", "2,,30", busy=[10, 30]
    ),
    "may be one column that the user names": example(
        "time,gpu0_util,gpu1_util", "1,10,20", options=util_at("gpu0_util"), busy=[10]
    ),
    "is none if rows name their GPU": example(
        "time,device,util", "1,gpu0,10", "1,gpu1,20", "2,gpu0,30", of=[0, 1, 0], busy=[10, 20, 30]
    ),
    "may have memory in any form": example(
        "time;gpu0 [%];gpu0_mem_mib;gpu1 [%]", "1;5;1024,5;6", "2;5;1,024.5;6",
        "3;5;1024.5 MiB;6", "4;5;1.0245e3;6", used_mib=[1024.5, None] * 4,
    ),
    "may have 100 with a rounding error": example(
        "time,gpu0 (%),gpu1 (%)", "1,100.00000000000001,101", busy=[100, None], skipped=1
    ),
    **{
        f"may have times such as {first}": example(
            f"{heading};gpu0;gpu1", f"{first};97;98", f"{second};97;98",
            at_s=[0, 0, 1, 1], is_wall=is_wall,
        )
        for heading, first, second, is_wall in (
            ("time", "23.05.2026 14:02:03", "23.05.2026 14:02:04", True),
            ("time", "06/13/2025 11:59:59 PM", "06/14/2025 12:00:00 AM", True),
            ("elapsed", "23:59:59", "24:00:00", False),
            ("time", "23:59:59", "00:00:00", False),
        )
    },
}  # fmt: skip


class TestATable:
    test_is_read_as_expected = verified(TABLES)

    @pytest.mark.parametrize(
        ("heading", "unit_s"),
        [
            ("time_ms", 0.001),
            ("time (min)", 60),
            ("t_h", 3600),
        ],
    )
    def test_has_the_unit_of_time_of_its_heading(self, heading: str, unit_s: float) -> None:
        samples, _ = read_log(rows(f"{heading},gpu0 [%]", "0,10", "2,20"))

        assert seconds_of([sample.stamp_ns for sample in samples]) == [0, 2 * unit_s]


def events(*objects: Mapping[str, object]) -> tuple[str, ...]:
    """A W&B run's events file, a row each 2 s."""
    stamps = (1_700_000_000.5 + 2 * at for at in range(len(objects)))
    return tuple(
        json.dumps({**one, "_timestamp": stamp, "_wandb": True})
        for one, stamp in zip(objects, stamps, strict=True)
    )


ON_GPU_0 = "metrics-daemon/gpu:0"
ONE_COLLECTION_IN_ANOTHER = {
    "train/epoch/gpu:0/gpu_utilization (%)/mean": 20.0,
    "train/gpu:0/gpu_utilization (%)/mean": 10.0,
    "train/epoch/timestamp": 5.0,
    "train/timestamp": 1_700_000_000.0,
}

OBJECTS = {
    "may gain and lose GPUs": example(
        *events({GPU_0: 10.0}, {GPU_0: 20.0, GPU_1: 30.0}, {GPU_1: 40.0}),
        of=[0, 0, 1, 1], busy=[10, 20, 30, 40],
    ),
    "have the total memory": example(
        f'{{"{ON_GPU_0}/gpu_utilization (%)/mean": 5.0, "{ON_GPU_0}/memory_total (MiB)/mean": 9}}',
        gpus=(LoggedGpu(index=0, memory_bytes=9 << 20),),
    ),
    "allow only the time to be named by the user": example(
        *events({GPU_0: 5, "mine": 1}), options=util_at("mine"), refused="only timestamp can be"
    ),
    "of too many GPUs have a note": example(
        *events({f"run{at} - system/gpu.0.gpu": 5 for at in range(1_030)}),
        busy=[5] * 1_024, gpu_count=1_024, noted="More than 1,024 GPUs",
    ),
    "of nvitop's outer collection are read before the inner one": example(
        json.dumps(ONE_COLLECTION_IN_ANOTHER), busy=[10], is_wall=True
    ),
    "are read in order beyond the 512 that determine the unit": example(
        *events(*({GPU_0: at % 101} for at in range(600))),
        at_s=[2 * at for at in range(600)], busy=[at % 101 for at in range(600)],
    ),
}  # fmt: skip


class TestJsonObjects:
    test_are_read_as_expected = verified(OBJECTS)
