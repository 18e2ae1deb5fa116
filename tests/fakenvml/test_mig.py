"""Specification of MIG on the fake: parts that come and go, and handles that become void."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pynvml
import pytest

from tests.fakenvml.control import FakeNvml


def parent() -> Any:
    return pynvml.nvmlDeviceGetHandleByIndex(0)


def part(index: int) -> Any:
    return pynvml.nvmlDeviceGetMigDeviceHandleByIndex(parent(), index)


def listed() -> dict[int, str]:
    """UUIDs of the instances, by their index."""
    found = {}
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(parent())):
        with suppress(pynvml.NVMLError_NotFound):
            found[index] = pynvml.nvmlDeviceGetUUID(part(index))
    return found


class TestAGpuThatIsCut:
    def test_has_no_utilisation_but_power(self, nvml: FakeNvml) -> None:
        nvml.cut(0, 2)

        assert pynvml.nvmlDeviceGetMigMode(parent()) == [1, 1]
        with pytest.raises(pynvml.NVMLError_NotSupported):
            pynvml.nvmlDeviceGetUtilizationRates(parent())
        with pytest.raises(pynvml.NVMLError_NotSupported):
            pynvml.nvmlDeviceGetSamples(parent(), pynvml.NVML_GPU_UTILIZATION_SAMPLES, 0)
        assert pynvml.nvmlDeviceGetPowerUsage(parent()) == 310_500

    def test_lists_its_parts_and_each_knows_where_it_lies(self, nvml: FakeNvml) -> None:
        uuids = nvml.cut(0, 3)

        assert listed() == dict(enumerate(uuids))
        second = part(1)
        assert pynvml.nvmlDeviceIsMigDeviceHandle(second).value == 1
        assert pynvml.nvmlDeviceGetGpuInstanceId(second) == nvml.part(0, 1).gpu_instance
        assert pynvml.nvmlDeviceGetComputeInstanceId(second) == 0
        above = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(second)
        assert pynvml.nvmlDeviceGetUUID(above) == nvml.uuid(0)

    def test_makes_handles_of_before_void(self, nvml: FakeNvml) -> None:
        before = parent()
        nvml.cut(0, 1)
        cut = part(0)
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlDeviceGetPowerUsage(before)

        nvml.uncut(0)
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlDeviceGetUUID(cut)
        assert pynvml.nvmlDeviceGetMigMode(parent()) == [0, 0]
        assert listed() == {}

    def test_may_be_about_to_be_whole_again(self, nvml: FakeNvml) -> None:
        nvml.cut(0, 1)
        nvml.gpu(0).mig_pending = 0

        assert pynvml.nvmlDeviceGetMigMode(parent()) == [1, 0]


class TestAPart:
    def test_is_found_by_its_uuid_while_it_is_there(self, nvml: FakeNvml) -> None:
        _, second = nvml.cut(0, 2)

        assert pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByUUID(second)) == second
        nvml.destroy_part(0, 1)
        with pytest.raises(pynvml.NVMLError_NotFound):
            pynvml.nvmlDeviceGetHandleByUUID(second)

    def test_has_memory_and_slices_of_its_own(self, nvml: FakeNvml) -> None:
        nvml.cut(0, 0)
        nvml.create_part(0, slices=3)
        nvml.part(0, 0).memory_used = 2 << 30

        memory = pynvml.nvmlDeviceGetMemoryInfo(part(0))
        attributes = pynvml.nvmlDeviceGetAttributes(part(0))

        assert (memory.total, memory.used) == (nvml.gpu(0).memory_total * 3 // 8, 2 << 30)
        assert (attributes.gpuInstanceSliceCount, attributes.multiprocessorCount) == (3, 48)
        assert attributes.memorySizeMB == memory.total >> 20

    @pytest.mark.parametrize("reading", ["PowerUsage", "UtilizationRates"])
    def test_does_not_know_what_only_a_board_knows(self, nvml: FakeNvml, reading: str) -> None:
        nvml.cut(0, 1)

        with pytest.raises(pynvml.NVMLError_NotSupported):
            getattr(pynvml, f"nvmlDeviceGet{reading}")(part(0))

    def test_made_where_one_was_destroyed_is_another_and_the_rest_keep_their_handles(
        self, nvml: FakeNvml
    ) -> None:
        first, second, third = nvml.cut(0, 3)
        handles = [part(index) for index in range(3)]
        nvml.destroy_part(0, 1)
        left = listed()
        anew = nvml.create_part(0)

        assert left == {0: first, 2: third}
        assert listed() == {0: first, 1: anew, 2: third}
        assert anew != second
        assert pynvml.nvmlDeviceGetUUID(handles[2]) == third
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlDeviceGetUUID(handles[1])
