"""The systemd unit: understood by systemd, closed, and yet able to reach the GPUs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.needs import needed

UNIT = Path(__file__).resolve().parents[3] / "deploy" / "gpumon.service"
TEXT = UNIT.read_text(encoding="utf-8")

HIGHEST_EXPOSURE = 2.0
"""Debian's Prometheus has 4.0, its node exporter 9.2 (systemd-analyze security)."""


def systemd_analyze(*words: str) -> str:
    done = subprocess.run(
        [needed("systemd-analyze", "systemd"), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def value_of(key: str) -> str:
    found = re.findall(rf"^{key}=(.*)$", TEXT, re.MULTILINE)
    assert len(found) == 1, f"{key} is there {len(found)} times"
    return str(found[0])


def test_systemd_understands_every_line(tmp_path: Path) -> None:
    copy = tmp_path / UNIT.name
    copy.write_text(TEXT.replace("/opt/gpumon/bin/gpumon", "/bin/true"), encoding="utf-8")

    assert systemd_analyze("verify", "--man=no", str(copy)) == ""


def test_it_exposes_less_than_its_neighbours() -> None:
    judged = systemd_analyze("security", "--offline=true", str(UNIT))

    level = re.search(r"Overall exposure level for gpumon.service: ([\d.]+)", judged)
    assert level is not None, judged
    assert float(level[1]) <= HIGHEST_EXPOSURE


def test_the_gpus_can_be_reached() -> None:
    assert "DeviceAllow=char-nvidia* rw" in TEXT.splitlines()
    assert "PrivateDevices=yes" not in TEXT


def test_the_gpus_of_a_driver_that_is_loaded_later_can_be_reached() -> None:
    allowed = re.findall(r"^DeviceAllow=/dev/char/195:(\d+) rw$", TEXT, re.MULTILINE)

    assert sorted(map(int, allowed)) == [*range(16), 255]


def test_a_daemon_that_needs_a_new_process_gets_one_and_without_a_driver_it_waits() -> None:
    assert value_of("Restart") == "on-failure"
    assert value_of("ExecStart").endswith(" serve --wait-for-source")


def test_trainings_of_any_user_find_a_folder_to_write_to() -> None:
    assert value_of("Environment") == "GPUMON_RUNTIME_DIR=/run/gpumon"
    assert "-m 1777" in value_of("ExecStartPre")
    assert value_of("ExecStartPre").endswith(" /run/gpumon/phases")


def test_what_trainings_write_to_outlives_a_restart_of_the_daemon() -> None:
    assert value_of("RuntimeDirectoryPreserve") == "yes"
    assert "DynamicUser" not in TEXT, "its folder would be private"
