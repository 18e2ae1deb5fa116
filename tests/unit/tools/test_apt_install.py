"""The script behind `make test` that gets Debian packages: here with an apt-get of our own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "apt_install.sh"
PLAIN_TOOLS = ("sh", "cat", "env", "mktemp", "rm", "touch", "chmod", "true")

APT_THAT_WORKS = """\
echo "apt-get $*" >>"$LOG"
[ "$1" = install ] || exit 0
for word in "$@"; do :; done
touch "$BIN/$word" && chmod +x "$BIN/$word"
"""
APT_THAT_FAILS = 'echo "apt-get $*" >>"$LOG"; echo "E: no network" >&2; exit 100'


class Machine:
    """A PATH with almost nothing on it."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.log = folder / "log"
        self.bin.mkdir()
        self.log.touch()
        for name in PLAIN_TOOLS:
            real = shutil.which(name)
            assert real is not None
            (self.bin / name).symlink_to(real)
        self.has("sleep", "exit 0")

    def has(self, command: str, script: str) -> None:
        path = self.bin / command
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", str(SCRIPT), *words],
            env={"PATH": str(self.bin), "LOG": str(self.log), "BIN": str(self.bin)},
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )

    @property
    def calls(self) -> list[str]:
        return self.log.read_text(encoding="utf-8").splitlines()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


class TestWhereAllIsThere:
    def test_nothing_is_run_and_nothing_is_said(self, machine: Machine) -> None:
        machine.has("apt-get", APT_THAT_WORKS)
        machine.has("dstat", "exit 0")

        done = machine.run("dstat", f"{os.devnull}=libc6-dev")

        assert (done.returncode, done.stderr, machine.calls) == (0, "", [])


class TestTheSuperuser:
    @pytest.fixture(autouse=True)
    def root(self, machine: Machine) -> None:
        machine.has("id", "echo 0")

    def test_gets_what_is_missing_alone_and_loses_no_package(self, machine: Machine) -> None:
        machine.has("apt-get", APT_THAT_WORKS)
        machine.has("gcc", "exit 0")

        done = machine.run("dstat", "gcc")

        assert done.returncode == 0
        (installed,) = [call for call in machine.calls if call.startswith("apt-get install")]
        assert installed.endswith(" dstat")
        assert "gcc" not in installed
        assert "--no-remove" in installed

    def test_is_told_why_it_failed_after_a_second_try(self, machine: Machine) -> None:
        machine.has("apt-get", APT_THAT_FAILS)

        done = machine.run("promtool=prometheus")

        assert done.returncode == 1
        assert "E: no network" in done.stderr
        assert done.stderr.split()[-1] == "prometheus"
        assert len([call for call in machine.calls if call == "apt-get update -qq"]) == 2


class TestAPlainUser:
    @pytest.fixture(autouse=True)
    def plain(self, machine: Machine) -> None:
        machine.has("id", "echo 1000")
        machine.has("apt-get", APT_THAT_WORKS)

    def test_is_told_the_one_command_to_run(self, machine: Machine) -> None:
        done = machine.run("dstat", "promtool=prometheus")

        assert done.returncode == 1
        assert " sudo apt-get install " in done.stderr
        assert done.stderr.split()[-2:] == ["dstat", "prometheus"]
        assert machine.calls == []

    def test_with_a_sudo_that_asks_nothing_gets_it(self, machine: Machine) -> None:
        machine.has("sudo", '[ "$1" = -n ] && shift && exec "$@"')

        assert machine.run("dstat").returncode == 0
        assert any(call.endswith(" dstat") for call in machine.calls)


def test_a_system_without_apt_is_told_what_is_missing(machine: Machine) -> None:
    machine.has("id", "echo 0")

    done = machine.run("dstat")

    assert done.returncode == 1
    assert "Missing: dstat" in done.stderr
