"""Specification of events on the fake: a set waits until something is reported."""

from __future__ import annotations

import time
from typing import Any

import pynvml
import pytest

from tests.fakenvml import codes
from tests.fakenvml.conftest import Begin
from tests.fakenvml.control import FakeNvml
from tests.fakenvml.work import SINGLE_BIT_ECC, XID

WAIT = "nvmlEventSetWait_v2"


def waiting_for(kinds: int, *indices: int) -> Any:
    """An event set that waits for these kinds on these GPUs."""
    event_set = pynvml.nvmlEventSetCreate()
    for index in indices:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        pynvml.nvmlDeviceRegisterEvents(handle, kinds, event_set)
    return event_set


class TestAnEventSet:
    def test_says_in_which_instance_it_was(self, nvml: FakeNvml) -> None:
        nvml.cut(0, 2)
        events = waiting_for(XID, 0)
        nvml.report_xid(0, 31, part=1)

        event = pynvml.nvmlEventSetWait_v2(events, 1000)

        part = nvml.part(0, 1)
        assert (event.gpuInstanceId, event.computeInstanceId) == (part.gpu_instance, 0)

    def test_times_out_where_nothing_is_reported_that_it_waits_for(self, nvml: FakeNvml) -> None:
        events = waiting_for(XID, 0)
        nvml.report_xid(1, 79)
        nvml.report(0, SINGLE_BIT_ECC)
        started_s = time.monotonic()

        with pytest.raises(pynvml.NVMLError_Timeout):
            pynvml.nvmlEventSetWait_v2(events, 30)
        assert time.monotonic() - started_s >= 0.03

    def test_does_not_know_what_was_reported_before_it_was_made(self, nvml: FakeNvml) -> None:
        nvml.report_xid(0, 79)

        with pytest.raises(pynvml.NVMLError_Timeout):
            pynvml.nvmlEventSetWait_v2(waiting_for(XID, 0), 1)

    def test_refuses_kinds_that_the_board_does_not_report(
        self, nvml: FakeNvml, handle: Any
    ) -> None:
        nvml.gpu(0).supported_events = XID

        assert pynvml.nvmlDeviceGetSupportedEventTypes(handle) == XID
        with pytest.raises(pynvml.NVMLError_NotSupported):
            waiting_for(XID | SINGLE_BIT_ECC, 0)

    def test_is_counted_until_it_is_freed(self, nvml: FakeNvml) -> None:
        events = waiting_for(XID, 0)
        assert nvml.event_sets_held == 1

        pynvml.nvmlEventSetFree(events)
        assert nvml.event_sets_held == 0
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlEventSetWait_v2(events, 1)


class TestAWaitThatIsCutShort:
    def test_by_a_gpu_that_is_lost(self, nvml: FakeNvml) -> None:
        events = waiting_for(XID, 0, 1)
        nvml.lose(1)

        with pytest.raises(pynvml.NVMLError_GpuIsLost):
            pynvml.nvmlEventSetWait_v2(events, 30_000)

    @pytest.mark.parametrize("end", ["shutdown", "reload"])
    def test_by_a_driver_that_goes(self, nvml: FakeNvml, begin: Begin, end: str) -> None:
        events = waiting_for(XID, 0)
        code = begin(WAIT, lambda: pynvml.nvmlEventSetWait_v2(events, 30_000))

        if end == "shutdown":
            pynvml.nvmlShutdown()
        else:
            nvml.reload_driver()

        assert code() == codes.UNINITIALIZED
