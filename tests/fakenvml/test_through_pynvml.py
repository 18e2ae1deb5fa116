"""Specification of the fake driver, as the real pynvml sees it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.fakenvml.build import fake_env
from tests.fakenvml.conftest import Begin
from tests.fakenvml.control import FakeNvml
from tests.processes import ending

COUNT = "nvmlDeviceGetCount_v2"


class TestTheFakeDriver:
    def test_answers_what_pynvml_asks_of_a_gpu(self, nvml: FakeNvml) -> None:
        handle = pynvml.nvmlDeviceGetHandleByIndex(1)

        assert pynvml.nvmlDeviceGetCount() == 2
        assert pynvml.nvmlSystemGetDriverVersion() == "580.95.05"
        assert pynvml.nvmlDeviceGetUUID(handle) == nvml.uuid(1)
        assert pynvml.nvmlDeviceGetName(handle) == "NVIDIA H100 80GB HBM3"
        assert pynvml.nvmlDeviceGetPciInfo(handle).busId == "00000000:19:00.0"
        assert pynvml.nvmlDeviceGetPowerUsage(handle) == 310_500
        assert pynvml.nvmlDeviceGetMemoryInfo(handle).total == 85_520_809_984

    def test_counts_every_call_and_the_time_it_was_told_to_take(self, nvml: FakeNvml) -> None:
        nvml.delay(COUNT, 100)
        nvml.forget_calls()

        for _ in range(30):
            pynvml.nvmlDeviceGetCount()

        assert nvml.all_calls() == {COUNT: 30}
        assert nvml.seconds_inside() == {COUNT: pytest.approx(0.003)}


class TestATrouble:
    def test_can_be_of_one_function_on_one_gpu(self, nvml: FakeNvml) -> None:
        nvml.fail("nvmlDeviceGetPowerUsage", 3, gpu=1)
        first, second = (pynvml.nvmlDeviceGetHandleByIndex(index) for index in (0, 1))

        assert pynvml.nvmlDeviceGetPowerUsage(first) == 310_500
        with pytest.raises(pynvml.NVMLError_NotSupported):
            pynvml.nvmlDeviceGetPowerUsage(second)

    def test_can_be_of_a_whole_gpu(self, nvml: FakeNvml) -> None:
        nvml.lose(1)

        with pytest.raises(pynvml.NVMLError_GpuIsLost):
            pynvml.nvmlDeviceGetHandleByIndex(1)
        assert pynvml.nvmlDeviceGetHandleByIndex(0)

    def test_can_be_of_everything(self, nvml: FakeNvml) -> None:
        nvml.fail_everything(999)

        with pytest.raises(pynvml.NVMLError_Unknown):
            pynvml.nvmlDeviceGetCount()

    def test_can_make_handles_void(self, nvml: FakeNvml, handle: Any) -> None:
        nvml.reload_driver()

        with pytest.raises(pynvml.NVMLError_Uninitialized):
            pynvml.nvmlDeviceGetPowerUsage(handle)
        pynvml.nvmlInit()
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlDeviceGetPowerUsage(handle)

    def test_can_be_a_hang_that_the_test_ends(self, nvml: FakeNvml, begin: Begin) -> None:
        nvml.delay(COUNT, 30_000_000)
        answer = begin(COUNT, pynvml.nvmlDeviceGetCount)

        nvml.delay(COUNT, 0)

        assert answer() == 2


def test_another_process_sees_the_same_gpus_and_what_changes(
    fake_library: Path, tmp_path: Path
) -> None:
    asks = (
        "import pynvml, sys; pynvml.nvmlInit(); h = pynvml.nvmlDeviceGetHandleByIndex(2)\n"
        "for _ in sys.stdin: print(pynvml.nvmlDeviceGetPowerUsage(h))"
    )
    with FakeNvml(tmp_path / "control", gpus=3) as fake:
        started = subprocess.Popen(
            [sys.executable, "-uc", asks], env=fake_env(fake.path, fake_library.parent),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        with ending(started) as asker:
            assert asker.stdin is not None
            assert asker.stdout is not None
            answers = []
            for milliwatts in (70_000, 700_000):
                fake.gpu(2).power_mw = milliwatts
                asker.stdin.write("\n")
                asker.stdin.flush()
                answers.append(asker.stdout.readline().strip())

    assert answers == ["70000", "700000"]
