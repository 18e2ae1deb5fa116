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

# CUDA itself: torch parses the variable on its own, and accepted "GPU-" as a device.
CUDA_COUNT = """
import ctypes, json, uuid
cuda = ctypes.CDLL("libcuda.so.1")
count, found = ctypes.c_int(), []
if cuda.cuInit(0) == 0:
    assert cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
for at in range(count.value):
    device, raw_uuid = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    assert cuda.cuDeviceGet(ctypes.byref(device), at) == 0
    assert cuda.cuDeviceGetUuid_v2(raw_uuid, device) == 0
    found.append(f"GPU-{uuid.UUID(bytes=bytes(raw_uuid))}")
print(json.dumps(found))
"""


@pytest.fixture(autouse=True)
def board() -> None:
    devices.refresh()
    if devices.gpu_count() == 0:
        pytest.skip("no GPU here")


def pids_on_gpus() -> set[int]:
    """The pids on all GPUs, as the driver reports them."""
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
def test_the_gpus_are_those_of_cuda(visible: str | None) -> None:
    environ = {name: text for name, text in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    if visible is not None:
        environ["CUDA_VISIBLE_DEVICES"] = visible

    def answer(code: str, stdin: str = "") -> object:
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environ, input=stdin, capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
        return json.loads(done.stdout.splitlines()[-1])

    ours = answer(COUNT)
    assert isinstance(ours, list)
    assert ours[1] == answer(CUDA_COUNT)
