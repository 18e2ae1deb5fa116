"""Specification of what a board says besides: each reading is what the test wrote."""

from __future__ import annotations

import ctypes
import time
from typing import Any

import pynvml
import pytest

from tests.fakenvml import codes
from tests.fakenvml.control import FakeNvml

GIB = 1 << 30


class TestABoard:
    def test_counts_memory_errors_since_the_load_and_over_all(self, nvml: FakeNvml) -> None:
        for _ in range(3):
            nvml.report_ecc(0, uncorrected=False)
        nvml.report_ecc(0, uncorrected=True)
        nvml.reset(0)
        nvml.report_ecc(0, uncorrected=False)
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)

        counts = [
            pynvml.nvmlDeviceGetTotalEccErrors(handle, uncorrected, aggregate)
            for aggregate in (0, 1)
            for uncorrected in (0, 1)
        ]
        assert counts == [1, 0, 4, 1]

    def test_that_was_reset_has_new_handles_and_no_energy_yet(
        self, nvml: FakeNvml, handle: Any
    ) -> None:
        before_mj = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        nvml.reset(0)

        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlDeviceGetPowerUsage(handle)
        anew = pynvml.nvmlDeviceGetHandleByIndex(0)
        assert pynvml.nvmlDeviceGetTotalEnergyConsumption(anew) < before_mj


class TestFields:
    def test_have_a_code_each(self, nvml: FakeNvml, handle: Any) -> None:
        none_of_link_18 = (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, nvml.gpu(0).nvlink_count)
        asked = {
            pynvml.NVML_FI_DEV_POWER_INSTANT: 0,
            pynvml.NVML_FI_DEV_MEMORY_TEMP: codes.NOT_SUPPORTED,
            pynvml.NVML_FI_MAX: codes.INVALID_ARGUMENT,
            none_of_link_18: codes.INVALID_ARGUMENT,
        }

        told = pynvml.nvmlDeviceGetFieldValues(handle, [*asked])

        assert [field.nvmlReturn for field in told] == [*asked.values()]

    def test_count_bytes_that_went_over_nvlink(self, nvml: FakeNvml, handle: Any) -> None:
        nvml.gpu(0).nvlink_tx_bytes_per_s = 20 * GIB
        sent = (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, 3)
        all_sent = (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, 0xFFFFFFFF)

        before, _ = pynvml.nvmlDeviceGetFieldValues(handle, [sent, all_sent])
        nvml.advance(2.0)
        after, together = pynvml.nvmlDeviceGetFieldValues(handle, [sent, all_sent])

        assert after.value.ullVal - before.value.ullVal == pytest.approx(40 * GIB >> 10, abs=1)
        assert after.timestamp - before.timestamp == 2_000_000
        assert together.value.ullVal == pytest.approx(after.value.ullVal * 18, abs=18)

    def test_count_pcie_bytes_and_start_over_where_the_counter_is_full(
        self, nvml: FakeNvml, handle: Any
    ) -> None:
        nvml.gpu(0).pcie_rx_bytes_per_s = 8 * GIB

        def received() -> int:
            asked = [pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES]
            return int(pynvml.nvmlDeviceGetFieldValues(handle, asked)[0].value.ullVal)

        before = received()
        nvml.advance(1.0)
        assert received() - before == pytest.approx(8 * GIB, rel=1e-9)
        nvml.gpu(0).pcie_counter_wraps_at = 1 << 32
        assert received() < 1 << 32

    def test_may_touch_one_entry_behind_the_last(self, nvml: FakeNvml, handle: Any) -> None:
        entries = (pynvml.c_nvmlFieldValue_t * 2)()
        entries[0].fieldId, entries[1].nvmlReturn = pynvml.NVML_FI_DEV_POWER_INSTANT, 77
        ask = ctypes.CDLL(None, handle=pynvml.nvmlLib._handle).nvmlDeviceGetFieldValues

        ask(handle, 1, entries)
        assert entries[1].nvmlReturn == 77
        nvml.control.touches_one_field_more = 1
        ask(handle, 1, entries)
        assert entries[1].nvmlReturn == codes.INVALID_ARGUMENT


def test_a_delay_of_microseconds_is_that_short(nvml: FakeNvml) -> None:
    nvml.delay("nvmlDeviceGetCount_v2", 30)
    count = ctypes.c_uint()
    ask = ctypes.CDLL(None, handle=pynvml.nvmlLib._handle).nvmlDeviceGetCount_v2
    taken_ns = []
    for _ in range(50):
        started_ns = time.perf_counter_ns()
        ask(ctypes.byref(count))
        taken_ns.append(time.perf_counter_ns() - started_ns)

    assert min(taken_ns) >= 30_000
    assert min(taken_ns) < 60_000
