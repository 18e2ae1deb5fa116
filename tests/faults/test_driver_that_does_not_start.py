"""What a daemon does where the driver is not there, or not the one its library wants."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.daemon import RunningDaemon
from tests.fakenvml.control import VERSION_MISMATCH
from tests.faults.faulty_machine import Machine, gpu
from tests.patience import wait_until


def without_driver(folder: Path) -> dict[str, str]:
    """An environment in which no libnvidia-ml.so.1 can be found."""
    return {**os.environ, "LD_LIBRARY_PATH": "", "GPUMON_RUNTIME_DIR": str(folder / "run")}


class TestFault01TheLibraryIsMissing:
    def test_ends_with_three_and_names_it(self, tmp_path: Path) -> None:
        for command in ("serve", "doctor"):
            words = [command] + (["--listen", "127.0.0.1:0"] if command == "serve" else [])
            ended = subprocess.run(
                [sys.executable, "-m", "gpumon", *words],
                env=without_driver(tmp_path),
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )

            assert ended.returncode == 3
            assert "libnvidia-ml.so.1" in ended.stdout + ended.stderr
            assert "Traceback" not in ended.stderr

    def test_serves_health_and_says_so_once_when_told_to_wait(self, tmp_path: Path) -> None:
        with RunningDaemon(
            tmp_path, "--wait-for-source", "--period", "0.3", environ=without_driver(tmp_path)
        ) as daemon:
            wait_until(lambda: "libnvidia-ml.so.1" in daemon.log())
            time.sleep(1.5)  # it goes on trying
            metrics = daemon.metrics()

            assert daemon.get("/-/healthy")[0] == 200
            assert daemon.get("/-/ready")[0] == 503
            assert metrics['gpumon_collector_success{collector="nvml"}'] == 0.0
            assert daemon.log().count("libnvidia-ml.so.1") == 1


class TestFault02TheDriverDoesNotMatchItsLibrary:
    def test_ends_with_three_and_says_reboot_or_reload(self, machine: Machine) -> None:
        machine.fake.fail("nvmlInitWithFlags", VERSION_MISMATCH)

        ended = machine.gpumon("serve", "--listen", "127.0.0.1:0")

        assert ended.returncode == 3
        assert "reboot" in ended.stderr
        assert "reload" in ended.stderr

    def test_is_tried_again_when_told_to_wait(self, machine: Machine) -> None:
        machine.fake.fail("nvmlInitWithFlags", VERSION_MISMATCH)
        with machine.serve("--wait-for-source") as daemon:
            wait_until(lambda: machine.fake.calls("nvmlInitWithFlags") >= 2)
            machine.fake.fail("nvmlInitWithFlags", 0)

            daemon.wait_for(lambda state: gpu(state)["observed_ns"] > 0)
