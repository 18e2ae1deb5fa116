"""Specification of processes on the fake, with the traps that the driver's own calls set."""

from __future__ import annotations

import ctypes
from typing import Any

import pynvml
import pytest

from tests.fakenvml import codes
from tests.fakenvml.control import FakeNvml
from tests.fakenvml.work import GRAPHICS, MPS

TRAINER, LOADER, GONE = 4001, 4002, 4003


def uses(handle: Any, since_us: int = 0) -> dict[int, int]:
    """Percent of the SMs that each process used, by the call that every driver has."""
    found = pynvml.nvmlDeviceGetProcessUtilization(handle, since_us)
    return {use.pid: use.smUtil for use in found}


class TestTheList:
    def test_keeps_kinds_apart(self, nvml: FakeNvml, handle: Any) -> None:
        nvml.run(0, TRAINER)
        nvml.run(0, LOADER, kind=GRAPHICS)
        nvml.run(0, GONE, kind=MPS)

        calls = (
            pynvml.nvmlDeviceGetComputeRunningProcesses,
            pynvml.nvmlDeviceGetGraphicsRunningProcesses,
            pynvml.nvmlDeviceGetMPSComputeRunningProcesses,
        )
        assert [[process.pid for process in call(handle)] for call in calls] == [
            [TRAINER],
            [LOADER],
            [GONE],
        ]

    def test_can_be_had_with_details(self, nvml: FakeNvml, handle: Any) -> None:
        nvml.run(0, TRAINER, memory_bytes=5 << 30)
        asked = pynvml.c_nvmlProcessDetailList_v1_t()
        asked.version = pynvml.nvmlProcessDetailList_v1
        room = (pynvml.c_nvmlProcessDetail_v1_t * 4)()
        asked.numProcArrayEntries = 4
        asked.procArray = ctypes.cast(room, ctypes.POINTER(pynvml.c_nvmlProcessDetail_v1_t))
        call = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetRunningProcessDetailList")

        assert call(handle, ctypes.byref(asked)) == codes.SUCCESS
        assert asked.numProcArrayEntries == 1
        assert (room[0].pid, room[0].usedGpuMemory) == (TRAINER, 5 << 30)


class TestAnInstance:
    def test_lists_only_its_own(self, nvml: FakeNvml) -> None:
        nvml.cut(0, 2)
        nvml.run(0, TRAINER, part=0)
        nvml.run(0, LOADER, part=1)
        parent = pynvml.nvmlDeviceGetHandleByIndex(0)
        second = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, 1)

        (own,) = pynvml.nvmlDeviceGetComputeRunningProcesses(second)
        everybody = pynvml.nvmlDeviceGetComputeRunningProcesses(parent)

        assert (own.pid, own.gpuInstanceId) == (LOADER, nvml.part(0, 1).gpu_instance)
        assert [process.pid for process in everybody] == [TRAINER, LOADER]

    def test_has_no_utilisation_of_processes_nor_has_its_parent(self, nvml: FakeNvml) -> None:
        nvml.cut(0, 1)
        nvml.run(0, TRAINER, part=0)
        parent = pynvml.nvmlDeviceGetHandleByIndex(0)

        for handle in (parent, pynvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, 0)):
            with pytest.raises(pynvml.NVMLError_NotSupported):
                uses(handle)


class TestUtilisation:
    def test_is_of_the_time_since_the_last_question(self, nvml: FakeNvml, handle: Any) -> None:
        nvml.run(0, TRAINER, sm=80)
        nvml.advance(10.0)
        asked_us = nvml.stamp_us(nvml.now_ns())
        nvml.advance(2.0)
        nvml.start(0, LOADER, sm=40)
        nvml.advance(2.0)

        assert uses(handle, asked_us) == {TRAINER: 80, LOADER: 20}

    def test_shows_dead_load_to_who_asks_for_all_of_it(self, nvml: FakeNvml, handle: Any) -> None:
        nvml.run(0, GONE, sm=80)
        nvml.end(GONE)
        ended_us = nvml.stamp_us(nvml.now_ns())
        nvml.advance(5.0)

        assert uses(handle) == {GONE: 60}
        with pytest.raises(pynvml.NVMLError_NotFound):
            uses(handle, ended_us)

    def test_is_not_found_where_nobody_works(self, nvml: FakeNvml, handle: Any) -> None:
        nvml.run(0, TRAINER, sm=0)

        with pytest.raises(pynvml.NVMLError_NotFound):
            uses(handle)

    def test_may_be_old_and_more_than_everything(self, nvml: FakeNvml, handle: Any) -> None:
        nvml.run(0, TRAINER, sm=340).use_stamp_us = 12

        (use,) = pynvml.nvmlDeviceGetProcessUtilization(handle, nvml.stamp_us(nvml.now_ns()))

        assert (use.timeStamp, use.smUtil) == (12, 340)

    @pytest.mark.parametrize("code", [codes.INSUFFICIENT_SIZE, codes.SUCCESS])
    def test_has_room_for_a_hundred_however_few_there_are(
        self, nvml: FakeNvml, handle: Any, code: int
    ) -> None:
        nvml.run(0, TRAINER)
        nvml.control.process_size_error = code
        count = ctypes.c_uint()
        call = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetProcessUtilization")

        assert call(handle, None, ctypes.byref(count), ctypes.c_ulonglong(0)) == code
        assert count.value == 100
