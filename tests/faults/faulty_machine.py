"""A machine with fake GPUs, a daemon on it, and its state."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.daemon import RunningDaemon
from tests.fakenvml.build import fake_env
from tests.fakenvml.control import FakeNvml
from tests.fakenvml.generations import PRESENT_DRIVER, DriverGeneration
from tests.waiting import wait_until

COLLECTOR_SUCCESS = 'gpumon_collector_success{collector="nvml"}'


class Machine:
    """A machine with fake GPUs, on which gpumon can be started."""

    def __init__(
        self,
        folder: Path,
        library: Path,
        driver: DriverGeneration = PRESENT_DRIVER,
        *,
        gpus: int = 2,
        busy_ratio: float = 0.7,
    ) -> None:
        self.folder = folder
        self.fake = FakeNvml(folder / "gpus", gpus=gpus, driver=driver)
        for slot in range(gpus):
            self.fake.wave(slot, period_s=1.0, busy_ratio=busy_ratio)
        self.environ = fake_env(folder / "gpus", library)

    def serve(self, *arguments: str, ready: bool = True) -> RunningDaemon:
        """A daemon on this machine, by default with a period of 0.5 s."""
        period = () if "--period" in arguments else ("--period", "0.5")
        return RunningDaemon(self.folder, *period, *arguments, environ=self.environ, ready=ready)

    @contextmanager
    def serve_well(self, *arguments: str) -> Iterator[RunningDaemon]:
        """A daemon that has observed every GPU for a second."""
        with self.serve(*arguments) as daemon:
            daemon.wait_for(
                lambda state: state["gpus"] and min(g["observed_ns"] for g in state["gpus"]) > 1e9
            )
            yield daemon

    def hang(self, function: str) -> None:
        """Let a function hang, and wait until a call is inside it."""
        self.fake.delay(function, 60_000_000)
        wait_until(lambda: self.fake.waiting(function) > 0)

    def gpumon(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "gpumon", *arguments],
            env={**self.environ, "GPUMON_RUNTIME_DIR": str(self.folder / "run")},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip


def gpu(state: dict[str, Any], index: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = state["gpus"][index] if state["gpus"] else {"observed_ns": 0}
    return found


def observed_ns(first: dict[str, Any], last: dict[str, Any], index: int = 0) -> int:
    """The growth of a GPU's observed time from one state to another."""
    return int(gpu(last, index)["observed_ns"] - gpu(first, index)["observed_ns"])


def closes(state: dict[str, Any]) -> bool:
    return all(
        one["busy_ns"] + sum(one["idle_ns"].values()) + one["pending_ns"] == one["observed_ns"]
        for one in state["gpus"]
    )
