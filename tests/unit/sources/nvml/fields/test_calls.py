"""Specification of the fields of a GPU: asked once, answered by a number or by None."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.fields.calls import BoardNumber, NumberCall
from gpumon.sources.nvml.fields.table import MEMORY, POWER_USAGE, RATES, AnswerLayout, NvmlCall
from gpumon.sources.nvml.gpu import MIG_MODE
from tests.fakenvml.control import GPU_IS_LOST, NOT_SUPPORTED, FakeNvml

POWER = POWER_USAGE.function


class TestANumber:
    def test_is_what_the_driver_says(
        self, fake_nvml: FakeNvml, library: NvmlLibrary, handle: int
    ) -> None:
        fake_nvml.gpu(0).temperature_c = 71

        assert NumberCall(library, handle, POWER_USAGE).read() == 310_500
        assert NumberCall(library, handle, NvmlCall("nvmlDeviceGetTemperature", (0,))).read() == 71

    def test_can_be_longer_than_32_bits(
        self, fake_nvml: FakeNvml, library: NvmlLibrary, handle: int
    ) -> None:
        fake_nvml.gpu(0).energy_mj = 1 << 40
        call = NvmlCall("nvmlDeviceGetTotalEnergyConsumption", answer=AnswerLayout.LONG)

        energy = NumberCall(library, handle, call).read()

        assert energy is not None
        assert energy >= 1 << 40

    @pytest.mark.parametrize("code", [NOT_SUPPORTED, 4, 13])
    def test_that_the_device_does_not_have_is_asked_for_once(
        self, fake_nvml: FakeNvml, library: NvmlLibrary, handle: int, code: int
    ) -> None:
        fake_nvml.fail(POWER, code)
        field = NumberCall(library, handle, POWER_USAGE)

        assert [field.read() for _ in range(5)] == [None] * 5
        assert fake_nvml.calls(POWER) == 1

    def test_that_fails_for_another_reason_is_asked_for_again(
        self, fake_nvml: FakeNvml, library: NvmlLibrary, handle: int
    ) -> None:
        fake_nvml.fail(POWER, GPU_IS_LOST)
        field = NumberCall(library, handle, POWER_USAGE)
        assert field.read() is None
        assert field.code == GPU_IS_LOST

        fake_nvml.fail(POWER, 0)

        assert field.read() == 310_500

    def test_adds_its_time_and_itself_to_those_of_its_function(
        self, fake_nvml: FakeNvml, library: NvmlLibrary, handle: int
    ) -> None:
        fake_nvml.delay(POWER, 20_000)

        NumberCall(library, handle, POWER_USAGE).read()
        NumberCall(library, library.handle_by_index(1) or 0, POWER_USAGE).read()

        assert 0.04 <= dict(library.accounts.so_far()["call_seconds"])[POWER] < 1.0
        assert dict(library.accounts.so_far()["call_counts"])[POWER] == fake_nvml.calls(POWER) == 2


class TestAPairOfNumbers:
    def test_may_lie_in_one_place_or_in_two(
        self, fake_nvml: FakeNvml, library: NvmlLibrary, handle: int
    ) -> None:
        fake_nvml.gpu(0).rates_percent = 37
        fake_nvml.gpu(0).mig_enabled = 0

        rates = NumberCall(library, handle, RATES)
        mig = NumberCall(library, handle, MIG_MODE)

        assert rates.read() == 37
        assert mig.read() == 0


class TestMemory:
    def test_does_not_count_what_the_driver_reserves(
        self, fake_nvml: FakeNvml, library: NvmlLibrary, handle: int
    ) -> None:
        gpu = fake_nvml.gpu(0)

        assert BoardNumber(MEMORY, library, handle).numbers() == (gpu.memory_used, gpu.memory_total)

    def test_counts_it_on_drivers_that_know_only_the_first_version(
        self, fake_nvml: FakeNvml, library: NvmlLibrary, handle: int
    ) -> None:
        fake_nvml.fail("nvmlDeviceGetMemoryInfo_v2", 13)
        gpu = fake_nvml.gpu(0)
        field = BoardNumber(MEMORY, library, handle)

        readings = [field.numbers() for _ in range(3)]

        assert readings == [(gpu.memory_used + gpu.memory_reserved, gpu.memory_total)] * 3
        assert fake_nvml.calls("nvmlDeviceGetMemoryInfo_v2") == 1


def test_an_old_driver_without_a_function_leaves_that_field_out(tmp_path: Path) -> None:
    from tests.fakenvml.build import build_fake, fake_env
    from tests.unit.sources.nvml.test_binding import last_line_of

    build_fake(tmp_path, without=("nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetMigMode"))
    with FakeNvml(tmp_path / "control") as fake:
        said = last_line_of(
            "from gpumon.sources.nvml.source import NvmlSource\n"
            "from gpumon.sources.system_clock import SystemClock\n"
            "gpu = NvmlSource(SystemClock()).read().gpus[0]\n"
            "print(gpu.energy_joules, gpu.power_watts, gpu.error)",
            fake_env(fake.path, tmp_path),
        )

    assert said == "None 310.5 None"
