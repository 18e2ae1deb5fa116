"""A smoke test of the fake driver through pynvml; real tools: ``test_real_tools.py``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pynvml
import pytest

from tests.fakenvml.build import fake_env
from tests.fakenvml.control import FakeNvml
from tests.processes import ending

COUNT = "nvmlDeviceGetCount_v2"


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
