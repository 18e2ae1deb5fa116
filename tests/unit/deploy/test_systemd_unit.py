"""The systemd units, without a running systemd.

systemd-analyze checks them, and the mount is tried in a mount namespace.
"""

from __future__ import annotations

import errno
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.needs import needed, with_a_mount
from tests.other_users import as_root
from tests.programs import ROOT, ran

UNIT, MOUNT = ROOT / "deploy" / "gpumon.service", ROOT / "deploy" / "run-gpumon.mount"
TEXT = UNIT.read_text(encoding="utf-8")

HIGHEST_EXPOSURE = 2.0
"""Debian's Prometheus has 4.0, its node exporter 9.2 (systemd-analyze security)."""


def systemd_analyze(*words: str) -> str:
    done = ran(needed("systemd-analyze", "systemd"), *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def values_of(key: str, text: str = TEXT) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", text, re.MULTILINE)


def value_of(key: str, text: str = TEXT) -> str:
    found = values_of(key, text)
    assert len(found) == 1, f"{key} is there {len(found)} times"
    return found[0]


def test_systemd_accepts_every_line(tmp_path: Path) -> None:
    copy, mount = tmp_path / UNIT.name, tmp_path / MOUNT.name
    copy.write_text(TEXT.replace("/opt/gpumon/bin/gpumon", "/bin/true"), encoding="utf-8")
    mount.write_bytes(MOUNT.read_bytes())

    assert systemd_analyze("verify", "--man=no", str(copy), str(mount)) == ""


def test_its_sandbox_is_stricter_than_that_of_other_exporters() -> None:
    assessment = systemd_analyze("security", "--offline=true", str(UNIT))

    level = re.search(r"Overall exposure level for gpumon.service: ([\d.]+)", assessment)
    assert level is not None, assessment
    assert float(level[1]) <= HIGHEST_EXPOSURE


def test_gpus_are_accessible_even_if_the_driver_is_loaded_later() -> None:
    allowed = re.findall(r"^DeviceAllow=/dev/char/195:(\d+) rw$", TEXT, re.MULTILINE)

    assert "DeviceAllow=char-nvidia* rw" in TEXT.splitlines()
    assert "PrivateDevices=yes" not in TEXT
    assert sorted(map(int, allowed)) == [*range(16), 255]


def test_the_shared_folder_outlives_the_daemon() -> None:
    assert value_of("Environment") == "GPUMON_RUNTIME_DIR=/run/gpumon"
    assert value_of("ReadWritePaths") == "/run/gpumon"
    assert value_of("Requires") == MOUNT.name
    assert MOUNT.name in " ".join(values_of("After")).split()
    assert value_of("Where", MOUNT.read_text(encoding="utf-8")) == "/run/gpumon"
    assert "RuntimeDirectory" not in TEXT, "it would go with the service"
    assert "TemporaryFileSystem" not in TEXT, "training runs would not see it"
    assert "DynamicUser" not in TEXT, "its folder would be private"


IN_THE_MOUNT = r"""
import json, os, subprocess, sys
from pathlib import Path
from gpumon.core.ring_format.format import RING_BYTES

runtime, install = Path(sys.argv[1]), json.loads(sys.argv[2])
for words in install:
    subprocess.run(words, check=True)
phases = runtime / "phases"
own, shared = runtime.stat(), phases.stat()
(line,) = [line for line in open("/proc/mounts") if f" {runtime} " in line]
os.setgroups([]); os.setgid(65534); os.setuid(65534)
def free_bytes():
    room = os.statvfs(phases)
    return room.f_bavail * room.f_frsize

before = free_bytes()
for number in range(8):
    descriptor = os.open(phases / f"{number}-1.ring", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
    os.posix_fallocate(descriptor, 0, RING_BYTES)
    os.close(descriptor)
a_ring = (before - free_bytes()) / 8
refused = []
for make in (runtime.joinpath("state.json").touch, runtime.joinpath("mine").mkdir):
    try:
        make()
    except OSError as error:
        refused.append(type(error).__name__)
script = phases / "script"
script.write_text("#!/bin/sh\nexit 0\n")
script.chmod(0o755)
try:
    subprocess.run([script], check=False)
except OSError as error:
    refused.append(type(error).__name__)
names = 9
try:
    while names < 100_000:
        (phases / f"junk-{names}").touch()
        names += 1
except OSError as error:
    refused.append(error.strerror)
print(json.dumps({
    "options": line.split()[3].split(","), "left": before - 256 * a_ring, "names": names,
    "own": [own.st_uid, own.st_mode & 0o7777], "shared": [shared.st_uid, shared.st_mode & 0o7777],
    "refused": refused,
}))
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter."""
    with tempfile.TemporaryDirectory(prefix="gpumon-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@as_root
def test_the_mount_has_room_for_every_ring(open_folder: Path) -> None:
    where = open_folder
    text = MOUNT.read_text(encoding="utf-8")
    kind, what, options = (value_of(key, text) for key in ("Type", "What", "Options"))
    # The user gpumon does not exist here.
    lines = [line.removeprefix("+").replace("gpumon -g gpumon", "54321 -g 54321")
             for line in values_of("ExecStartPre")]  # fmt: skip
    install = [line.replace("/run/gpumon", str(where)).split() for line in lines]

    in_it = with_a_mount(f'-t {kind} -o {options} {what} "{where}"')
    done = ran(*in_it, sys.executable, "-c", IN_THE_MOUNT, where, json.dumps(install))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)

    assert {"nosuid", "nodev", "noexec", "nr_inodes=4096", "size=655360k"} <= set(found["options"])
    assert (found["own"], found["shared"]) == ([54_321, 0o755], [54_321, 0o1777])
    assert found["left"] > 64 << 20
    assert 2_000 < found["names"] < 4_096
    assert found["refused"] == [*["PermissionError"] * 3, os.strerror(errno.ENOSPC)]
