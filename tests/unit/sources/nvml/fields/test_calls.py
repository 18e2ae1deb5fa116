"""Specification of the fields of a GPU: asked once, answered by a number or by None."""

from __future__ import annotations

import pytest

from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.fields.calls import BoardNumber, NumberCall
from gpumon.sources.nvml.fields.table import MEMORY, POWER_USAGE, RATES, AnswerLayout, NvmlCall
from gpumon.sources.nvml.gpu import MIG_MODE
from tests.builders.driver import Fake
from tests.fakenvml import codes

POWER = POWER_USAGE.function
TEMPERATURE = NvmlCall("nvmlDeviceGetTemperature", (0,))
ENERGY = NvmlCall("nvmlDeviceGetTotalEnergyConsumption", answer=AnswerLayout.LONG)


class TestANumber:
    @pytest.mark.parametrize(
        ("call", "field", "value"),
        [
            (POWER_USAGE, "power_mw", 310_500),
            (TEMPERATURE, "temperature_c", 71),
            (RATES, "rates_percent", 37),  # one of two that lie in one place
            (MIG_MODE, "mig_enabled", 1),  # ... or in two
        ],
    )
    def test_is_what_the_driver_says(
        self, fake: Fake, library: NvmlLibrary, handle: int, call: NvmlCall, field: str,
        value: int,
    ) -> None:  # fmt: skip
        setattr(fake.gpu(0), field, value)

        assert NumberCall(library, handle, call).read() == value

    def test_can_be_longer_than_32_bits(
        self, fake: Fake, library: NvmlLibrary, handle: int
    ) -> None:
        fake.gpu(0).energy_mj = 1 << 40

        assert (NumberCall(library, handle, ENERGY).read() or 0) >= 1 << 40

    @pytest.mark.parametrize(
        "code", [codes.NOT_SUPPORTED, codes.NO_PERMISSION, codes.FUNCTION_NOT_FOUND]
    )
    def test_that_the_device_does_not_have_is_asked_for_once(
        self, fake: Fake, library: NvmlLibrary, handle: int, code: int
    ) -> None:
        fake.fail(POWER, code)
        field = NumberCall(library, handle, POWER_USAGE)

        assert [field.read() for _ in range(5)] == [None] * 5
        assert fake.calls(POWER) == 1

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
