"""Tests of single calls of the driver."""

from __future__ import annotations

import pytest

from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.fields.calls import BoardNumber, NumberCall
from gpumon.sources.nvml.fields.table import MEMORY, POWER_USAGE
from tests.builders.driver import Fake
from tests.fakenvml import codes

POWER = POWER_USAGE.function


class TestANumber:
    def test_is_counted_with_its_time(self, fake: Fake, library: NvmlLibrary, handle: int) -> None:
        fake.delay(POWER, 20_000)

        for of_gpu in (handle, library.handle_by_index(1) or 0):
            NumberCall(library, of_gpu, POWER_USAGE).read()

        assert 0.04 <= dict(library.accounts.totals().seconds)[POWER] < 1.0
        assert dict(library.accounts.totals().counts)[POWER] == fake.calls(POWER) == 2


class TestMemory:
    @pytest.mark.parametrize("newer_call", [0, codes.FUNCTION_NOT_FOUND])
    def test_includes_the_drivers_reserve_only_by_the_older_call(
        self, fake: Fake, library: NvmlLibrary, handle: int, newer_call: int
    ) -> None:
        fake.fail("nvmlDeviceGetMemoryInfo_v2", newer_call)
        gpu, field = fake.gpu(0), BoardNumber(MEMORY, library, handle)
        used = gpu.memory_used + (gpu.memory_reserved if newer_call else 0)

        assert [field.numbers() for _ in range(3)] == [(used, gpu.memory_total)] * 3
        assert fake.calls("nvmlDeviceGetMemoryInfo_v2") == (1 if newer_call else 3)
