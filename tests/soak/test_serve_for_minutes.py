"""A daemon at ten readings a second, scraped and watched: memory and descriptors stay flat."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.daemon import RunningDaemon

pytestmark = pytest.mark.soak

_WARM_UP_S = 65.0  # then the page's history is full
_WATCHED_S = float(os.environ.get("GPUMON_SOAK_SECONDS", "300"))


def resident_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


def descriptors(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


class TestADaemonThatRunsForMinutes:
    def test_neither_grows_nor_leaks(self, tmp_path: Path) -> None:
        with RunningDaemon(tmp_path, "--source", "simulated:eight", "--period", "0.1") as daemon:
            daemon.wait_for(lambda state: state["gpus"])
            pid = daemon.process.pid
            end_s = time.monotonic() + _WARM_UP_S + _WATCHED_S
            first: tuple[int, int] | None = None
            while time.monotonic() < end_s:
                assert daemon.get("/metrics")[0] == 200
                daemon.report()
                if first is None and time.monotonic() > end_s - _WATCHED_S:
                    first = (resident_kib(pid), descriptors(pid))
                time.sleep(1.0)
            last = (resident_kib(pid), descriptors(pid))

        assert first is not None
        print(f"resident {first[0]} -> {last[0]} KiB, descriptors {first[1]} -> {last[1]}")
        assert last[0] - first[0] < 2_048
        assert last[1] <= first[1] + 2
