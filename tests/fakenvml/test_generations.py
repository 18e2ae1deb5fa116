"""Specification of the two drivers that the fake can be, in one process."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.fakenvml.build import SONAME
from tests.fakenvml.control import FakeNvml
from tests.fakenvml.generations import OLD_DRIVER, PRESENT_DRIVER, DriverGeneration
from tests.fakenvml.layout import FUNCTIONS

Library = Callable[[DriverGeneration], Path]


@pytest.fixture
def nvml(fake_nvml_of_both_generations: FakeNvml) -> FakeNvml:
    pynvml.nvmlInit()
    return fake_nvml_of_both_generations


class TestADriver:
    def test_is_the_one_that_pynvml_asks(self, nvml: FakeNvml, handle: Any) -> None:
        assert pynvml.nvmlSystemGetDriverVersion() == nvml.driver.driver_version
        assert pynvml.nvmlDeviceGetName(handle) == nvml.driver.gpu_name

    def test_exports_what_its_generation_has(
        self, library_of: Library, driver_generation: DriverGeneration
    ) -> None:
        library = ctypes.CDLL(str(library_of(driver_generation)))

        missing = {name for name in FUNCTIONS if not hasattr(library, name)}
        assert missing == set(driver_generation.lacks)

    def test_answers_fields_that_it_does_not_know_with_a_code_of_their_own(
        self, nvml: FakeNvml, handle: Any
    ) -> None:
        links, power = pynvml.nvmlDeviceGetFieldValues(
            handle, [pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT, pynvml.NVML_FI_DEV_POWER_INSTANT]
        )

        assert (links.nvmlReturn, links.value.uiVal) == (0, nvml.driver.nvlink_count)
        assert (power.nvmlReturn == 0) == (nvml.driver is PRESENT_DRIVER)


class TestAnOldDriver:
    def test_is_not_found_by_name_where_the_present_one_is_loaded(
        self, library_of: Library, fake_nvml: FakeNvml
    ) -> None:
        ctypes.CDLL(str(library_of(OLD_DRIVER)))

        assert hasattr(ctypes.CDLL(SONAME), "nvmlGpmMetricsGet")

    @pytest.mark.parametrize("driver_generation", [OLD_DRIVER], ids=str, indirect=True)
    def test_counts_reserved_memory_as_used(self, nvml: FakeNvml, handle: Any) -> None:
        gpu = nvml.gpu(0)

        used = pynvml.nvmlDeviceGetMemoryInfo(handle).used
        assert used == gpu.memory_used + gpu.memory_reserved
        with pytest.raises(pynvml.NVMLError_FunctionNotFound):
            pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
