"""Specification of the GPUs a run may count for: named, seen by the driver, or visible."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.core.ring.events import NO_RECORDS, RingReading, RunFacts
from gpumon.core.sample import Device, GpuSample, ProcessSample
from gpumon.pipeline.gpu_join import GpuJoin

PID = 77


def gpus(*pids: int | None) -> list[GpuSample]:
    """One GPU for each: the pid on it; ``None``: a driver that lists no processes."""
    return [
        GpuSample(
            device=Device(uuid=f"GPU-{index}a", index=index),
            processes=None if pid is None else (ProcessSample(pid, None),),
        )
        for index, pid in enumerate(pids)
    ]


def run(**facts: object) -> RingReading:
    said = RunFacts(run="a", job="a", pid=1, boot_id="", started_ns=0)
    return RingReading(
        key="k", facts=replace(said, **facts),  # type: ignore[arg-type]
        alive=True, host_pid=PID, owner_uid=0, read_at_ns=0, ended_ns=None, events=NO_RECORDS,
        lost_events=0, phase_ns={}, steps=0, samples=0, epoch=None,
    )  # fmt: skip


def joined(gpus: list[GpuSample], reading: RingReading, *, simulated: bool = False) -> list[str]:
    return sorted(GpuJoin(gpus, simulated=simulated).gpus_of(reading))


class TestARun:
    def test_counts_for_the_gpus_it_names_whatever_else_is_known(self) -> None:
        reading = run(gpus=("1", "GPU-2"), visible_devices="0")

        assert joined(gpus(PID, 5, 5), reading) == ["GPU-1a", "GPU-2a"]

    def test_counts_for_made_up_gpus_only_by_name(self) -> None:
        assert joined(gpus(None, None), run(), simulated=True) == []
        assert joined(gpus(None, None), run(gpus=("0",)), simulated=True) == ["GPU-0a"]

    def test_else_counts_where_the_driver_sees_its_process(self) -> None:
        assert joined(gpus(5, PID, PID), run(visible_devices="0")) == ["GPU-1a", "GPU-2a"]
        assert joined(gpus(5, 5), run()) == []

    @pytest.mark.parametrize(
        ("visible", "uuids"),
        [
            (None, ["GPU-0a", "GPU-1a", "GPU-2a"]),
            ("2,0", ["GPU-0a", "GPU-2a"]),
            ("", []),
            ("0,-1,2", ["GPU-0a"]),
            ("1,1", []),
            ("GPU-1,GPU-9,GPU-2", ["GPU-1a"]),
            ("NoDevFiles", []),
        ],
    )
    def test_else_counts_where_cuda_lets_it(self, visible: str | None, uuids: list[str]) -> None:
        assert joined(gpus(None, None, None), run(visible_devices=visible)) == uuids

    def test_knows_gpus_by_their_index_in_whatever_order_they_are_told(self) -> None:
        backwards = gpus(None, None, None)[::-1]

        assert joined(backwards, run(visible_devices="0")) == ["GPU-0a"]


class TestTheSharesOfARun:
    def test_are_joined_by_index_and_by_the_beginning_of_a_uuid(self) -> None:
        said = run(shares={"2": 0.25, "GPU-0": 0.75})

        shares = GpuJoin(gpus(None, None, None), simulated=False).shares_of(said)

        assert shares == {"GPU-2a": 0.25, "GPU-0a": 0.75}

    def test_add_up_where_two_names_are_of_one_gpu(self) -> None:
        said = run(shares={"1": 0.25, "GPU-1a": 0.25, "0": 0.5})

        shares = GpuJoin(gpus(None, None), simulated=False).shares_of(said)

        assert shares == {"GPU-1a": 0.5, "GPU-0a": 0.5}

    @pytest.mark.parametrize("name", ["7", "GPU-", "CPU:1", ""])
    def test_leave_out_a_name_of_no_gpu_or_of_several(self, name: str) -> None:
        said = run(shares={name: 0.5, "1": 0.5})

        shares = GpuJoin(gpus(None, None), simulated=False).shares_of(said)

        assert shares == {"GPU-1a": 0.5}
