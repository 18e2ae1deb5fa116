"""A machine with fake GPUs, a daemon on it, and what its state says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.daemon import RunningDaemon
from tests.fakenvml.build import fake_env
from tests.fakenvml.control import FakeNvml
from tests.fakenvml.generations import PRESENT_DRIVER, DriverGeneration

DRAIN = "nvmlDeviceGetSamples"
"""What the sampler asks of each GPU at each tick."""


class Machine:
    """A machine with fake GPUs, two unless told otherwise, on which gpumon can be started."""

    def __init__(
        self,
        folder: Path,
        library: Path,
        driver: DriverGeneration = PRESENT_DRIVER,
        *,
        gpus: int = 2,
    ) -> None:
        self.folder = folder
        self.fake = FakeNvml(folder / "gpus", gpus=gpus, driver=driver)
        for slot in range(gpus):
            self.fake.wave(slot, period_s=1.0, busy_ratio=0.7)
        self.environ = fake_env(folder / "gpus", library)

    def serve(self, *words: str, ready: bool = True) -> RunningDaemon:
        """A daemon on this machine, twice a second unless told otherwise."""
        period = () if "--period" in words else ("--period", "0.5")
        return RunningDaemon(self.folder, *period, *words, environ=self.environ, ready=ready)

    def gpumon(self, *words: str) -> subprocess.CompletedProcess[str]:
        """One command, to its end."""
        return subprocess.run(
            [sys.executable, "-m", "gpumon", *words],
            env={**self.environ, "GPUMON_RUNTIME_DIR": str(self.folder / "run")},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip


def gpu(state: dict[str, Any], index: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = state["gpus"][index] if state["gpus"] else {"observed_ns": 0}
    return found


def closes(state: dict[str, Any]) -> bool:
    return all(
        one["busy_ns"] + sum(one["idle_ns"].values()) + one["pending_ns"] == one["observed_ns"]
        for one in state["gpus"]
    )
