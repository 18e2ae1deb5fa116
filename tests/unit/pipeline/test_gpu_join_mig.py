"""Specification of the MIG instance a run counts for: never the GPU that is cut."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.core.sample import Device, GpuSample, ProcessSample
from gpumon.pipeline.gpu_join import GpuJoin
from tests.builders_monitor import HOST_PID as PID
from tests.builders_monitor import run_that_says

CUT = "GPU-8f1c2a00-0000-0000-0000-000000000000"
WHOLE = "GPU-18ef0000-0000-0000-0000-000000000001"
FIRST, SECOND = "MIG-c1000000-0000", "MIG-c1000100-0000"


def sample(uuid: str, index: int, pids: tuple[int, ...] | None, **facts: object) -> GpuSample:
    device = replace(Device(uuid=uuid, index=index), **facts)  # type: ignore[arg-type]
    processes = None if pids is None else tuple(ProcessSample(pid, None) for pid in pids)
    return GpuSample(device=device, processes=processes)


def instance(at: int, pids: tuple[int, ...] | None) -> GpuSample:
    return sample(
        (FIRST, SECOND)[at], 0, pids,
        parent_uuid=CUT, mig_index=at, gpu_instance=7 + at, compute_instance=0,
    )  # fmt: skip


def machine(*pids: tuple[int, ...] | None, whole: tuple[int, ...] | None = None) -> list[GpuSample]:
    """GPU 0, cut in two with these processes on it, and GPU 1, which is not."""
    everyone = tuple(pid for own in pids for pid in own or ())
    parent = sample(CUT, 0, everyone or None, mig_enabled=True)
    instances = [instance(at, own) for at, own in enumerate(pids)]
    return [sample(WHOLE, 1, whole), *reversed(instances), parent]


def joined(machine: list[GpuSample], **facts: object) -> list[str]:
    return sorted(GpuJoin(machine, simulated=False).gpus_of(run_that_says(**facts)))


class TestARunOnAMigInstance:
    def test_counts_for_the_instance_that_lists_its_process(self) -> None:
        assert joined(machine((5,), (PID,), whole=(6,))) == [SECOND]
        assert joined(machine((5,), (6,), whole=(PID,))) == [WHOLE]
        assert joined(machine((5,), (6,), whole=())) == []

    @pytest.mark.parametrize(
        "visible", [SECOND, SECOND[:10], f"MIG-{CUT}/8/0", f"{SECOND},{FIRST}", f"{SECOND},{WHOLE}"]
    )
    def test_counts_for_the_instance_that_cuda_shows_it(self, visible: str) -> None:
        assert joined(machine(None, None), visible_devices=visible) == [SECOND]

    @pytest.mark.parametrize("visible", [None, "0", CUT, "0,1"])
    def test_has_the_first_instance_where_cuda_is_given_the_whole_gpu(
        self, visible: str | None
    ) -> None:
        assert joined(machine(None, None), visible_devices=visible) == [FIRST]

    @pytest.mark.parametrize("visible", [f"MIG-{CUT}/9/0", "MIG-c1", "MIG-none", "2", ""])
    def test_counts_for_none_that_cuda_would_not_find(self, visible: str) -> None:
        assert joined(machine(None, None), visible_devices=visible) == []

    def test_is_looked_for_by_its_variable_where_only_the_instances_list_no_process(self) -> None:
        machine_ = machine(None, None, whole=(5,))

        assert joined(machine_, visible_devices=SECOND) == [SECOND]
        assert joined(machine_, visible_devices="1") == []

    @pytest.mark.parametrize("name", [SECOND, "0:1", SECOND[:10]])
    def test_counts_for_the_instance_it_names(self, name: str) -> None:
        assert joined(machine((PID,), ()), gpus=(name,)) == [SECOND]

    @pytest.mark.parametrize("name", ["0", CUT, "GPU-8f"])
    def test_that_names_the_whole_gpu_means_the_instance_it_is_on(self, name: str) -> None:
        assert joined(machine((), (PID,)), gpus=(name,)) == [SECOND]
        assert joined(machine((), ()), gpus=(name, "1")) == [WHOLE, FIRST]

    def test_is_given_no_gpu_by_the_name_of_one_that_is_cut_into_nothing(self) -> None:
        assert joined(machine(), gpus=("0",)) == []
        assert joined(machine(), visible_devices="0") == []

    def test_may_tell_the_share_of_each_instance(self) -> None:
        join = GpuJoin(machine((PID,), (PID,)), simulated=False)

        assert join.shares_of(run_that_says(shares={"0:0": 0.25, SECOND: 0.5, "1": 0.25})) == {
            FIRST: 0.25, SECOND: 0.5, WHOLE: 0.25,
        }  # fmt: skip
