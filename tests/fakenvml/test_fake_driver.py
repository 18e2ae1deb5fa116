"""A smoke test of the fake driver through pynvml; real tools: ``test_real_tools.py``."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.fakenvml.build import fake_env
from tests.fakenvml.call_prices import CALL_US, recorded_call_us
from tests.fakenvml.control import FakeNvml
from tests.processes import ending

COUNT = "nvmlDeviceGetCount_v2"
RECORDINGS = Path(__file__).parents[1] / "recordings"
CALLS: dict[str, Callable[[Any], object]] = {
    "nvmlDeviceGetTotalEnergyConsumption": pynvml.nvmlDeviceGetTotalEnergyConsumption,
    "nvmlDeviceGetSamples": lambda gpu: pynvml.nvmlDeviceGetSamples(
        gpu, pynvml.NVML_GPU_UTILIZATION_SAMPLES, 0
    ),
    "nvmlDeviceGetMigMode": pynvml.nvmlDeviceGetMigMode,
    "nvmlDeviceGetComputeRunningProcesses_v3": pynvml.nvmlDeviceGetComputeRunningProcesses,
}


@pytest.fixture
def nvml(fake_nvml: FakeNvml) -> FakeNvml:
    pynvml.nvmlInit()
    fake_nvml.stop_clock()
    return fake_nvml


class TestTheFakeDriver:
    def test_counts_every_call_and_its_time(self, nvml: FakeNvml) -> None:
        nvml.delay(COUNT, 100)
        nvml.forget_calls()

        for _ in range(30):
            pynvml.nvmlDeviceGetCount()

        assert nvml.all_calls() == {COUNT: 30}
        assert nvml.seconds_inside() == {COUNT: pytest.approx(0.003)}

    def test_shows_another_process_the_same_gpus(self, fake_library: Path, tmp_path: Path) -> None:
        reader = (
            "import pynvml, sys; pynvml.nvmlInit(); h = pynvml.nvmlDeviceGetHandleByIndex(2)\n"
            "for _ in sys.stdin: print(pynvml.nvmlDeviceGetPowerUsage(h))"
        )
        with FakeNvml(tmp_path / "control", gpus=3) as fake:
            started = subprocess.Popen(
                [sys.executable, "-uc", reader], env=fake_env(fake.path, fake_library.parent),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            with ending(started) as process:
                assert process.stdin is not None
                assert process.stdout is not None
                answers = []
                for milliwatts in (70_000, 700_000):
                    fake.gpu(2).power_mw = milliwatts
                    process.stdin.write("\n")
                    process.stdin.flush()
                    answers.append(process.stdout.readline().strip())

        assert answers == ["70000", "700000"]


class TestTheCpuTimeOfACall:
    """By the clock of this thread, which a busy machine does not move."""

    @staticmethod
    def cpu_us_of(fake: FakeNvml, function: str) -> float:
        """CPU microseconds of a call."""
        gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
        CALLS[function](gpu)
        fake.forget_calls()
        began_ns = time.thread_time_ns()
        for _ in range(30):
            CALLS[function](gpu)
        return (time.thread_time_ns() - began_ns) / 1000 / fake.calls(function)

    @pytest.mark.parametrize("function", CALLS)
    def test_is_what_the_table_says(self, nvml: FakeNvml, function: str) -> None:
        free_us = self.cpu_us_of(nvml, function)
        nvml.burn(CALL_US)

        assert self.cpu_us_of(nvml, function) - free_us == pytest.approx(CALL_US[function], rel=0.2)

        assert nvml.seconds_inside()[function] == pytest.approx(
            1e-6 * CALL_US[function] * nvml.calls(function)
        )

    def test_is_nearly_none_unless_asked_for(self, nvml: FakeNvml) -> None:
        assert self.cpu_us_of(nvml, "nvmlDeviceGetTotalEnergyConsumption") < 100
        assert nvml.seconds_inside() == {}

    def test_can_be_ended(self, nvml: FakeNvml) -> None:
        nvml.burn(CALL_US)
        nvml.burn({})

        assert self.cpu_us_of(nvml, "nvmlDeviceGetTotalEnergyConsumption") < 100

    def test_is_that_of_the_boards_recordings(self) -> None:
        recorded_us = recorded_call_us(RECORDINGS.glob("nvidia-*.gpumon"))

        assert len(recorded_us) > 15
        for function, us in recorded_us.items():
            assert CALL_US[function] == pytest.approx(us, rel=0.02), function
