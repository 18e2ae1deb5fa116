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
    def test_counts_every_call_and_the_time_it_was_told_to_take(self, nvml: FakeNvml) -> None:
        nvml.delay(COUNT, 100)
        nvml.forget_calls()

        for _ in range(30):
            pynvml.nvmlDeviceGetCount()

        assert nvml.all_calls() == {COUNT: 30}
        assert nvml.seconds_inside() == {COUNT: pytest.approx(0.003)}


class TestATrouble:
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
