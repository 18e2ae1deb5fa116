"""Specification of the GPUs a run may count for: named, seen by the driver, or visible."""

from __future__ import annotations

import pytest

from gpumon.core.sample import Device, GpuSample, ProcessSample
from gpumon.pipeline.gpu_join import GpuJoin
from tests.builders_monitor import HOST_PID as PID
from tests.builders_monitor import run_that_says


def gpus(*pids: int | None) -> list[GpuSample]:
    """One GPU for each: the pid on it; ``None``: a driver that lists no processes."""
    return [
        GpuSample(
            device=Device(uuid=f"GPU-{index}a", index=index),
            processes=None if pid is None else (ProcessSample(pid, None),),
        )
        for index, pid in enumerate(pids)
    ]


def joined(machine: list[GpuSample], *, simulated: bool = False, **facts: object) -> list[str]:
    """The GPUs that count for a run that says so of itself."""
    return sorted(GpuJoin(machine, simulated=simulated).gpus_of(run_that_says(**facts)))


class TestARun:
    def test_counts_for_the_gpus_it_names_whatever_else_is_known(self) -> None:
        named = ("1", "GPU-2")

        assert joined(gpus(PID, 5, 5), gpus=named, visible_devices="0") == ["GPU-1a", "GPU-2a"]

    def test_counts_for_made_up_gpus_only_by_name(self) -> None:
        assert joined(gpus(None, None), simulated=True) == []
        assert joined(gpus(None, None), simulated=True, gpus=("0",)) == ["GPU-0a"]

    def test_else_counts_where_the_driver_sees_its_process(self) -> None:
        assert joined(gpus(5, PID, PID), visible_devices="0") == ["GPU-1a", "GPU-2a"]
        assert joined(gpus(5, 5)) == []

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
        assert joined(gpus(None, None, None), visible_devices=visible) == uuids

    def test_knows_gpus_by_their_index_in_whatever_order_they_are_told(self) -> None:
        backwards = gpus(None, None, None)[::-1]

        assert joined(backwards, visible_devices="0") == ["GPU-0a"]


class TestTheSharesOfARun:
    @pytest.mark.parametrize(
        ("told", "shares"),
        [
            pytest.param(
                {"2": 0.25, "GPU-0": 0.75}, {"GPU-2a": 0.25, "GPU-0a": 0.75},
                id="are joined by index and by the beginning of a uuid",
            ),
            pytest.param(
                {"1": 0.25, "GPU-1a": 0.25, "0": 0.5}, {"GPU-1a": 0.5, "GPU-0a": 0.5},
                id="add up where two names are of one GPU",
            ),
            *(
                pytest.param(
                    {name: 0.5, "1": 0.5}, {"GPU-1a": 0.5}, id=f"leave out {name!r}"
                )
                for name in ("7", "GPU-", "CPU:1", "")
            ),
        ],
    )  # fmt: skip
    def test(self, told: dict[str, float], shares: dict[str, float]) -> None:
        join = GpuJoin(gpus(None, None, None), simulated=False)

        assert join.shares_of(run_that_says(shares=told)) == shares
