"""Every command in the README runs as printed, in the environment that the README makes."""

from __future__ import annotations

import ast
import importlib
import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.daemon import RunningDaemon
from tests.needs import needed
from tests.programs import ROOT

README: Final = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS: Final = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
LEFT_OUT: Final = "[...]"
NO_GPU: Final = 3

pytestmark = pytest.mark.slow


def commands() -> list[str]:
    """The lines that a reader types: those after ``$ ``, or all lines of a block without one."""
    found: list[str] = []
    for language, block in BLOCKS:
        lines = block.splitlines()
        if not language:
            typed = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
            found += typed or lines
    return [line.partition("  #")[0].strip() for line in found]


def commands_of(program: str) -> list[str]:
    return [line for line in commands() if line.split()[0] == program]


def reports() -> list[str]:
    """Commands for a running daemon, in blocks and in sentences; those for a server have tests."""
    in_sentences = re.findall(r"`(gpumon report [^`]+)`", README)
    all_of_them = [*(line for line in commands_of("gpumon") if " report" in line), *in_sentences]
    return [command for command in all_of_them if "--prometheus" not in command]


def output_of(command: str) -> list[str]:
    """What the README prints under a command, as the stretches between two omissions."""
    (block,) = [block for _, block in BLOCKS if block.startswith(f"$ {command}")]
    return [part.strip("\n") for part in block.partition("\n")[2].split(LEFT_OUT) if part.strip()]


class Shell:
    """Types commands in a folder with a home of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._variables = {
            "HOME": str(folder),
            "PATH": os.environ["PATH"],
            "GPUMON_RUNTIME_DIR": str(folder / "run"),
            # The packages that pip would download are linked instead.
            "PIP_NO_DEPS": "1",
            "PIP_NO_BUILD_ISOLATION": "1",
            "MPLCONFIGDIR": str(folder),
        }

    def type(self, command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", f"export PATH=~/gpumon-venv/bin:$PATH; {command}"],
            cwd=self.folder / "checkout",
            env={**self._variables, **variables},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A shell in a copy of the checkout, after the README's lines for installing."""
    folder = tmp_path_factory.mktemp("reader")
    ignored = shutil.ignore_patterns(".venv*", ".git", ".*_cache", ".hypothesis", "*.egg-info")
    shutil.copytree(ROOT, folder / "checkout", symlinks=True, ignore=ignored)
    shell = Shell(folder)
    (make_environment,) = commands_of("python3")
    (install,) = commands_of("~/gpumon-venv/bin/pip")
    assert shell.type(make_environment).returncode == 0
    (packages,) = (folder / "gpumon-venv").glob("lib/python*/site-packages")
    (packages / "downloaded.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    installed = shell.type(install)
    assert installed.returncode == 0, installed.stderr
    return shell


@pytest.fixture(scope="module")
def daemon(shell: Shell, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    folder = tmp_path_factory.mktemp("served")
    with RunningDaemon(folder, "--source", "simulated:healthy") as daemon:
        yield daemon


def test_every_command_is_tried_here() -> None:
    tried = {"make", "python3", "~/gpumon-venv/bin/pip", "export", "gpumon", "dstat"}

    assert {command.split()[0] for command in commands()} == tried


def test_is_short_enough_to_be_read() -> None:
    assert len(README.split()) <= 900


@pytest.mark.parametrize("command", commands_of("make"))
def test_its_targets_exist(command: str) -> None:
    done = subprocess.run(
        [*command.split(), "--dry-run"], cwd=ROOT, capture_output=True, check=False
    )

    assert done.returncode == 0


def test_doctor_runs_on_a_machine_without_a_gpu(shell: Shell) -> None:
    done = shell.type("gpumon doctor", GPUMON_SOURCE="nvml")

    assert done.returncode in (0, NO_GPU), done.stderr


def test_why_says_what_it_needs_on_a_machine_without_a_gpu(shell: Shell) -> None:
    (command,) = [line for line in commands_of("gpumon") if " why " in line]

    done = shell.type(command.replace("4711", str(os.getpid())), GPUMON_SOURCE="nvml")

    assert done.returncode in (0, 1, NO_GPU), done.stderr
    assert done.returncode == 0 or done.stderr.startswith("gpumon: ")


def test_analyze_prints_what_the_page_shows(shell: Shell) -> None:
    (command,) = [line for line in commands_of("gpumon") if " analyze " in line]

    done = shell.type(command, COLUMNS="80")

    assert done.returncode == 0, done.stderr
    assert [part for part in output_of(command) if part not in done.stdout] == []
    assert (shell.folder / "checkout" / "slow_run.png").stat().st_size > 10_000


def test_serve_starts_with_the_arguments_shown(shell: Shell, tmp_path: Path) -> None:
    (command,) = [line for line in commands_of("gpumon") if " serve" in line]
    program, name, *arguments = command.split()
    here = [one.replace("0.0.0.0:19835", "127.0.0.1:0") for one in arguments]

    with RunningDaemon(tmp_path, "--source", "simulated:healthy", *here) as daemon:
        assert daemon.get("/-/healthy")[0] == 200
    assert (program, name) == ("gpumon", "serve")


@pytest.mark.parametrize("command", reports())
def test_report_reads_the_running_daemon(shell: Shell, daemon: RunningDaemon, command: str) -> None:
    runtime_dir = daemon.environ["GPUMON_RUNTIME_DIR"]

    done = shell.type(command, GPUMON_RUNTIME_DIR=runtime_dir)

    assert done.returncode in (0, 5), done.stderr
    assert done.stdout.startswith("Verdict:")


def test_dstat_prints_the_columns_shown(shell: Shell, daemon: RunningDaemon) -> None:
    needed("dstat")
    (command,) = commands_of("dstat")
    assert shell.type("gpumon dstat install").returncode == 0

    done = shell.type(
        command.replace("1 5", "1 1"), GPUMON_RUNTIME_DIR=daemon.environ["GPUMON_RUNTIME_DIR"]
    )

    assert "use mem strv" in done.stdout, done.stderr


@pytest.mark.parametrize("block", [block for language, block in BLOCKS if language == "python"])
def test_its_python_names_exist(block: str) -> None:
    names = [
        (node.module, name.name)
        for node in ast.walk(ast.parse(block))
        if isinstance(node, ast.ImportFrom) and node.module
        for name in node.names
    ]

    assert names
    for module, name in names:
        assert name in importlib.import_module(module).__all__
