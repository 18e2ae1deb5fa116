"""Counting GPUs on a real machine: CUDA's answer, and no CUDA context left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pynvml
import pytest

from trainer_hooks import devices

pytestmark = pytest.mark.gpu

COUNT = """
import json, os, sys
from trainer_hooks import devices
gpus = devices.visible_gpus()
print(json.dumps([os.getpid(), [gpu.uuid for gpu in gpus]]), flush=True)
sys.stdin.read()
"""

CUDA_COUNT = """
import json, torch
found = range(torch.cuda.device_count())
print(json.dumps([f"GPU-{torch.cuda.get_device_properties(at).uuid}" for at in found]))
"""


@pytest.fixture(autouse=True)
def board() -> None:
    devices.refresh()
    if devices.gpu_count() == 0:
        pytest.skip("no GPU here")


def pids_on_gpus() -> set[int]:
    """Every process that NVML sees on any GPU, as the driver numbers it."""
    pynvml.nvmlInit()
    handles = [pynvml.nvmlDeviceGetHandleByIndex(at) for at in range(pynvml.nvmlDeviceGetCount())]
    running = [
        process
        for handle in handles
        for ask in (
            pynvml.nvmlDeviceGetComputeRunningProcesses,
            pynvml.nvmlDeviceGetGraphicsRunningProcesses,
        )
        for process in ask(handle)
    ]
    pynvml.nvmlShutdown()
    return {process.pid for process in running}


def test_counting_leaves_no_context_on_any_gpu() -> None:
    before = pids_on_gpus()
    with subprocess.Popen(
        [sys.executable, "-c", COUNT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        pid, uuids = json.loads(process.stdout.readline())
        after = pids_on_gpus()
        process.communicate("", timeout=30)

    assert uuids
    assert pid not in after
    assert after <= before, "in a container the driver may number the process differently"


@pytest.mark.parametrize("visible", [None, "0", "", "-1", "0,0", "0,99", "NoDevFiles", "GPU-"])
def test_the_count_is_cudas(visible: str | None) -> None:
    pytest.importorskip("torch")
    environ = {name: text for name, text in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    if visible is not None:
        environ["CUDA_VISIBLE_DEVICES"] = visible
    # CUDA itself, and not a library's reading of the variable.
    environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "0"

    def answer(code: str, words: str = "") -> object:
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environ, input=words, capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
        return json.loads(done.stdout.splitlines()[-1])

    ours = answer(COUNT)
    assert isinstance(ours, list)
    assert ours[1] == answer(CUDA_COUNT)
