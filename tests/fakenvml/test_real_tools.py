"""A smoke test of the fake driver: gpustat and nvitop run on it unchanged."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.fakenvml.build import fake_env
from tests.fakenvml.control import FakeNvml
from tests.fakenvml.generations import DriverGeneration

BIN = Path(sys.executable).parent
MIB, GIB = 1 << 20, 1 << 30


def test_gpustat_and_nvitop_show_what_the_test_wrote(
    library_of: Callable[[DriverGeneration], Path],
    driver_generation: DriverGeneration,
    tmp_path: Path,
) -> None:
    driver, pid = driver_generation, os.getpid()
    with FakeNvml(tmp_path / "control", gpus=3, driver=driver) as fake:
        fake.gpu(0).rates_percent, fake.gpu(1).rates_percent = 73, 4
        fake.gpu(1).memory_used = 11 * GIB
        fake.gpu(1).power_mw, fake.gpu(1).temperature_c = 71_000, 33
        fake.run(0, pid, memory_bytes=7 * GIB, sm=64)
        fake.run(1, pid, memory_bytes=3 * GIB, sm=5)
        fake.cut(2, 2)
        fake.part(2, 1).memory_used = 5 * GIB
        environ = {**fake_env(fake.path, library_of(driver).parent), "COLUMNS": "100"}

        def output_of(*command: str) -> str:
            return subprocess.run(
                [str(BIN / command[0]), *command[1:]],
                env=environ, capture_output=True, text=True, timeout=60, check=True,
            ).stdout  # fmt: skip

        gpus = json.loads(output_of("gpustat", "--json"))["gpus"]
        printed = output_of("nvitop", "--once", "--ascii")
        # The older call counts the driver's reserve as used.
        is_old = "nvmlDeviceGetMemoryInfo_v2" in driver.lacks
        used_mib = (11 * GIB + fake.gpu(1).memory_reserved * is_old) // MIB

    assert [gpu["name"] for gpu in gpus] == [driver.gpu_name] * 3
    assert [gpu["utilization.gpu"] for gpu in gpus] == [73, 4, None]
    assert [gpu["power.draw"] for gpu in gpus] == [310, 71, 310]
    assert [gpu["temperature.gpu"] for gpu in gpus] == [54, 33, 54]
    assert gpus[1]["memory.used"] == used_mib
    assert gpus[0]["processes"][0]["gpu_memory_usage"] == 7 * 1024
    assert f"Driver Version: {driver.driver_version}" in printed
    assert re.findall(r"(\d+%|N/A)      Default \|", printed) == ["73%", "4%", "N/A"]
    rows = re.findall(rf"\| +(\d) +{pid} C +\S+ +(\S+) +(\S+) +(\S+) ", printed)
    assert rows == [("0", "7168MiB", "64", "10"), ("1", "3072MiB", "5", "10")]
    assert re.search(r"2:1 +1g\.10gb @ GI/CI: 8/0 \| +5120MiB /", printed)
