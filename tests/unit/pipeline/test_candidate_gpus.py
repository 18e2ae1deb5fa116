"""The GPUs a run may count for: named, seen by the driver, or visible.

An instance of a MIG-partitioned GPU counts, never the GPU.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.core.sample import Device, GpuSample, ProcessSample
from gpumon.pipeline.candidate_gpus import CandidateGpus
from tests.builders.monitor import HOST_PID as PID
from tests.builders.monitor import run_reading

PARENT = "GPU-8f1c2a00-0000-0000-0000-000000000000"
FULL = "GPU-18ef0000-0000-0000-0000-000000000001"
FIRST, SECOND = "MIG-c1000000-0000", "MIG-c1000100-0000"


def sample(uuid: str, index: int, pids: tuple[int, ...] | None, **facts: object) -> GpuSample:
    device = replace(Device(uuid=uuid, index=index), **facts)  # type: ignore[arg-type]
    processes = None if pids is None else tuple(ProcessSample(pid, None) for pid in pids)
    return GpuSample(device=device, processes=processes)


def gpus(*pids: int | None) -> list[GpuSample]:
    """One GPU for each: the pid on it; ``None``: a driver that lists no processes."""
    return [
        sample(f"GPU-{index}a", index, None if pid is None else (pid,))
        for index, pid in enumerate(pids)
    ]


def machine(*pids: tuple[int, ...] | None, full: tuple[int, ...] | None = None) -> list[GpuSample]:
    """GPU 0, with two MIG instances and these processes on them, and GPU 1 without."""
    all_pids = tuple(pid for own in pids for pid in own or ())
    parent = sample(PARENT, 0, all_pids or None, mig_enabled=True)
    instances = [
        sample(
            (FIRST, SECOND)[at], 0, own,
            parent_uuid=PARENT, mig_index=at, gpu_instance=7 + at, compute_instance=0,
        )
        for at, own in enumerate(pids)
    ]  # fmt: skip
    return [sample(FULL, 1, full), *reversed(instances), parent]


def joined(machine: list[GpuSample], *, simulated: bool = False, **facts: object) -> list[str]:
    """The GPUs that count for a run with these facts."""
    return sorted(CandidateGpus(machine, simulated=simulated).gpus_of(run_reading(**facts)))


class TestARunWhoseFrameworkComputesOnTheCpu:
    """It loses no GPU's idle time unless the driver sees it there."""

    @pytest.mark.parametrize("named", [None, ("0",)])
    @pytest.mark.parametrize("others", [(None, None), (5, 5)], ids=["no list", "only others"])
    def test_counts_for_no_gpu(
        self, named: tuple[str, ...] | None, others: tuple[int | None, ...]
    ) -> None:
        assert joined(gpus(*others), gpus=named, on_cpu=True) == []

    def test_counts_for_a_gpu_that_its_process_is_on(self) -> None:
        assert joined(gpus(5, PID), gpus=("0",), on_cpu=True) == ["GPU-1a"]

    def test_counts_for_the_simulated_gpus_that_it_stands_for(self) -> None:
        assert joined(gpus(None, None), simulated=True, gpus=("1",), on_cpu=True) == ["GPU-1a"]


class TestARun:
    def test_counts_for_the_gpus_it_names_whatever_else_is_known(self) -> None:
        named = ("1", "GPU-2")

        assert joined(gpus(PID, 5, 5), gpus=named, visible_devices="0") == ["GPU-1a", "GPU-2a"]

    def test_counts_for_simulated_gpus_only_by_name(self) -> None:
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

        backwards = gpus(None, None, None)[::-1]
        assert joined(backwards, visible_devices=visible) == uuids


class TestARunOnAMigInstance:
    def test_counts_for_the_instance_that_lists_its_process(self) -> None:
        assert joined(machine((5,), (PID,), full=(6,))) == [SECOND]
        assert joined(machine((5,), (6,), full=(PID,))) == [FULL]
        assert joined(machine((5,), (6,), full=())) == []

    @pytest.mark.parametrize(
        "visible",
        [SECOND, SECOND[:10], f"MIG-{PARENT}/8/0", f"{SECOND},{FIRST}", f"{SECOND},{FULL}"],
    )
    def test_counts_for_the_instance_that_cuda_shows_it(self, visible: str) -> None:
        assert joined(machine(None, None), visible_devices=visible) == [SECOND]

    @pytest.mark.parametrize("visible", [None, "0", PARENT, "0,1"])
    def test_has_the_first_instance_where_cuda_is_given_the_parent(
        self, visible: str | None
    ) -> None:
        assert joined(machine(None, None), visible_devices=visible) == [FIRST]

    @pytest.mark.parametrize("visible", [f"MIG-{PARENT}/9/0", "MIG-c1", "MIG-none", "2", ""])
    def test_counts_for_none_that_cuda_would_not_find(self, visible: str) -> None:
        assert joined(machine(None, None), visible_devices=visible) == []

    def test_is_found_by_its_variable_where_only_the_instances_list_no_process(self) -> None:
        one = machine(None, None, full=(5,))

        assert joined(one, visible_devices=SECOND) == [SECOND]
        assert joined(one, visible_devices="1") == []

    @pytest.mark.parametrize("name", [SECOND, "0:1", SECOND[:10]])
    def test_counts_for_the_instance_it_names(self, name: str) -> None:
        assert joined(machine((PID,), ()), gpus=(name,)) == [SECOND]

    @pytest.mark.parametrize("name", ["0", PARENT, "GPU-8f"])
    def test_that_names_the_parent_means_the_instance_it_is_on(self, name: str) -> None:
        assert joined(machine((), (PID,)), gpus=(name,)) == [SECOND]
        assert joined(machine((), ()), gpus=(name, "1")) == [FULL, FIRST]

    def test_has_no_gpu_by_the_name_of_a_parent_without_instances(self) -> None:
        assert joined(machine(), gpus=("0",)) == []
        assert joined(machine(), visible_devices="0") == []

    def test_may_have_a_share_for_each_instance(self) -> None:
        join = CandidateGpus(machine((PID,), (PID,)), simulated=False)

        assert join.shares_of(run_reading(shares={"0:0": 0.25, SECOND: 0.5, "1": 0.25})) == {
            FIRST: 0.25, SECOND: 0.5, FULL: 0.25,
        }  # fmt: skip


class TestTheSharesOfARun:
    @pytest.mark.parametrize(
        ("reported", "shares"),
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
    def test(self, reported: dict[str, float], shares: dict[str, float]) -> None:
        join = CandidateGpus(gpus(None, None, None), simulated=False)

        assert join.shares_of(run_reading(shares=reported)) == shares
