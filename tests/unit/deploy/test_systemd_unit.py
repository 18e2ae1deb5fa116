"""The systemd units, without a running systemd.

systemd-analyze checks them, and the mount is tried in a mount namespace.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from gpumon.sources.stacks.py_spy import find_py_spy
from tests.needs import missing, needed, with_a_mount
from tests.other_users import OTHER_UID, as_root
from tests.processes import ending
from tests.programs import ROOT, ran

UNIT, MOUNT = ROOT / "deploy" / "gpumon.service", ROOT / "deploy" / "run-gpumon.mount"
STACKS = ROOT / "deploy" / "gpumon-stacks.conf"
TEXT, STACKS_TEXT = UNIT.read_text(encoding="utf-8"), STACKS.read_text(encoding="utf-8")

ASLEEP = "/usr/bin/python3", "-c", "import time; print(flush=True); time.sleep(600)"
"""A Python of the system: every user may read its files."""
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


def copy_of_the_unit(folder: Path, drop_in: str | None = None) -> Path:
    copy = folder / UNIT.name
    copy.write_text(TEXT.replace("/opt/gpumon/bin/gpumon", "/bin/true"), encoding="utf-8")
    (folder / MOUNT.name).write_bytes(MOUNT.read_bytes())
    if drop_in is not None:
        (folder / f"{UNIT.name}.d").mkdir()
        (folder / f"{UNIT.name}.d" / "stacks.conf").write_text(drop_in, encoding="utf-8")
    return copy


@pytest.mark.parametrize("drop_in", [None, STACKS_TEXT], ids=["alone", "with stacks"])
def test_systemd_accepts_every_line(tmp_path: Path, drop_in: str | None) -> None:
    copy = copy_of_the_unit(tmp_path, drop_in)

    assert systemd_analyze("verify", "--man=no", str(copy), str(tmp_path / MOUNT.name)) == ""


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


def test_what_is_kept_over_restarts_is_for_the_service_alone() -> None:
    assert value_of("StateDirectory") == "gpumon"
    assert value_of("StateDirectoryMode") == "0700"


class TestTheDropInForStacks:
    """``deploy/gpumon-stacks.conf``."""

    def test_is_needed_because_the_unit_reads_no_stacks(self) -> None:
        assert "STACKS" not in TEXT
        assert values_of("CapabilityBoundingSet") == [""]

    def test_names_no_user_by_itself(self) -> None:
        switches = values_of("Environment", STACKS_TEXT)

        assert switches == ["GPUMON_STACKS=1", '"GPUMON_STACKS_OF="']

    def test_gives_one_capability_and_leaves_the_rest_of_the_sandbox(self) -> None:
        keys = set(re.findall(r"^(\w+)=", STACKS_TEXT, re.MULTILINE))

        assert values_of("CapabilityBoundingSet", STACKS_TEXT) == ["CAP_SYS_PTRACE"]
        assert values_of("AmbientCapabilities", STACKS_TEXT) == ["CAP_SYS_PTRACE"]
        assert keys == {
            "Environment", "CapabilityBoundingSet", "AmbientCapabilities", "SystemCallFilter",
        }  # fmt: skip

    def test_permits_calls_that_read_memory_and_none_that_change_a_process(self) -> None:
        permitted = permitted_calls(TEXT + STACKS_TEXT)

        assert "process_vm_readv" in permitted
        assert not permitted & {"process_vm_writev", "ptrace", "pidfd_getfd"}

    @as_root
    def test_lets_py_spy_read_another_user_with_that_capability_alone(
        self, open_folder: Path
    ) -> None:
        found = find_py_spy()
        if found is None:
            missing("py-spy is not installed: pip install -e '.[stacks]'")
        program = shutil.copy(str(found), open_folder)  # where every user may run it
        capability = value_of("AmbientCapabilities", STACKS_TEXT).removeprefix("CAP_").lower()
        of_the_drop_in = [
            f"--{held}=-all,+{capability}" for held in ("bounding-set", "inh-caps", "ambient-caps")
        ]
        sleeper = subprocess.Popen([*as_user(OTHER_UID), *ASLEEP], stdout=subprocess.PIPE)
        with ending(sleeper) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == b"\n"
            without, with_it = (
                ran(
                    *as_user(54_321, *held),
                    program,
                    "dump",
                    "--nonblocking",
                    "--pid",
                    str(other.pid),
                )
                for held in ([], of_the_drop_in)
            )

        assert (without.returncode, with_it.returncode) == (1, 0), with_it.stderr
        assert "<module>" in with_it.stdout


def as_user(uid: int, *capabilities: str) -> list[str]:
    """A prefix for a command; without capabilities it has none."""
    user = [f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--no-new-privs"]
    return [needed("setpriv", "util-linux"), *user, *capabilities]


def permitted_calls(text: str) -> set[str]:
    """What the lines ``SystemCallFilter`` leave, with every set in them resolved."""
    sets: dict[str, set[str]] = {}
    for line in systemd_analyze("syscall-filter").splitlines():
        if line.startswith("@"):
            name = line
            sets[name] = set()
        elif line.strip() and not line.strip().startswith("#"):
            sets[name].add(line.strip())
    permitted: set[str] = set()
    for line in values_of("SystemCallFilter", text):
        calls = resolved(line.removeprefix("~").split(), sets)
        permitted = permitted - calls if line.startswith("~") else permitted | calls
    return permitted


def resolved(names: Iterable[str], sets: Mapping[str, set[str]]) -> set[str]:
    return {call for name in names
            for call in (resolved(sets[name], sets) if name in sets else [name])}  # fmt: skip


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
