"""Specification of the fields of a GPU: asked once, answered by a number or by None."""

from __future__ import annotations

import pytest

from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.fields.calls import BoardNumber, NumberCall
from gpumon.sources.nvml.fields.table import MEMORY, POWER_USAGE
from tests.builders.driver import Fake
from tests.fakenvml import codes

POWER = POWER_USAGE.function


class TestANumber:
    def test_adds_its_time_and_itself_to_those_of_its_function(
        self, fake: Fake, library: NvmlLibrary, handle: int
    ) -> None:
        fake.delay(POWER, 20_000)

        for of_gpu in (handle, library.handle_by_index(1) or 0):
            NumberCall(library, of_gpu, POWER_USAGE).read()

        assert 0.04 <= dict(library.accounts.so_far()["call_seconds"])[POWER] < 1.0
        assert dict(library.accounts.so_far()["call_counts"])[POWER] == fake.calls(POWER) == 2


class TestMemory:
    @pytest.mark.parametrize("newer_call", [0, codes.FUNCTION_NOT_FOUND])
    def test_counts_what_the_driver_reserves_only_where_it_knows_no_better(
        self, fake: Fake, library: NvmlLibrary, handle: int, newer_call: int
    ) -> None:
        fake.fail("nvmlDeviceGetMemoryInfo_v2", newer_call)
        gpu, field = fake.gpu(0), BoardNumber(MEMORY, library, handle)
        used = gpu.memory_used + (gpu.memory_reserved if newer_call else 0)

        assert [field.numbers() for _ in range(3)] == [(used, gpu.memory_total)] * 3
        assert fake.calls("nvmlDeviceGetMemoryInfo_v2") == (1 if newer_call else 3)
