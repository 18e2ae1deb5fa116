"""The screen of ``gpumon top`` that moves, on a real terminal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from ctypes.util import find_library
from pathlib import Path

import psutil
import pytest

from tests.daemon import RunningDaemon
from tests.e2e.tmux_terminal import Tmux
from tests.fakenvml.build import fake_env
from tests.fakenvml.control import FakeNvml
from tests.needs import in_make_truth
from tests.processes import with_pids_of_the_host
from tests.waiting import until

TOP = [sys.executable, "-m", "gpumon", "top"]
ROW = re.compile(r"^GPU \d+(?::\d+)? ", re.MULTILINE)
WITHOUT_TEXTUAL = (
    "import sys; sys.modules['textual'] = None; "
    "from gpumon.cli.main import main; sys.exit(main(['top']))"
)


@pytest.fixture
def machine(fake_library: Path, tmp_path: Path) -> Iterator[Callable[..., RunningDaemon]]:
    """Makes a daemon on so many fake GPUs, on which this process works."""
    fakes = []

    def make(count: int, parts: int = 0) -> RunningDaemon:
        fake = FakeNvml(tmp_path / "control", gpus=count)
        fakes.append(fake)
        for slot in range(count):
            fake.wave(slot, period_s=1.0, busy_ratio=0.97)
            if parts:
                fake.cut(slot, parts)
            fake.run(slot, os.getpid(), part=0 if parts else None)
        environ = fake_env(fake.path, fake_library.parent)
        return RunningDaemon(tmp_path, "--period", "0.5", environ=environ)

    yield make
    for fake in fakes:
        fake.close()


def test_a_row_for_each_gpu_at_any_size(machine: Callable[..., RunningDaemon]) -> None:
    with machine(8) as daemon:
        for columns, lines in ((80, 24), (120, 30), (160, 50), (250, 70)):
            with Tmux(TOP, daemon.environ, columns, lines) as terminal:
                table, _, below = terminal.wait_for(r"^GPU 7 ").partition("───")

                assert len(ROW.findall(table)) == 8
                assert "GPU 0 " in below
                assert max(map(len, table.splitlines())) <= columns
                terminal.press("q")
                terminal.wait_for("ended with 0")


@in_make_truth
@pytest.mark.parametrize(("count", "parts"), [(1, 0), (16, 0), (64, 0), (2, 7)])
def test_all_gpus_can_be_reached(
    machine: Callable[..., RunningDaemon], count: int, parts: int
) -> None:
    with machine(count, parts) as daemon, Tmux(TOP, daemon.environ, 100, 30) as terminal:
        terminal.wait_for(r"^GPU 0")
        terminal.press("o", "End")  # by number

        last = f"{count - 1}:{parts - 1}" if parts else f"{count - 1}"
        terminal.wait_for(rf"^GPU {last} ")


@in_make_truth
@with_pids_of_the_host
def test_processes_have_their_user_program_and_host_cpu(
    machine: Callable[..., RunningDaemon],
) -> None:
    with machine(1) as daemon, Tmux(TOP, daemon.environ, 120, 40) as terminal:
        row = rf"^ *{os.getpid()} +\S+ +1\.0 GiB +\S+( %)? +\d+ % +\d+\.\d GiB "
        terminal.wait_for(row)
        terminal.press("t")

        terminal.wait_for(rf"^ *{daemon.process.pid} .*└ ")


def test_it_survives_being_resized(machine: Callable[..., RunningDaemon]) -> None:
    with machine(4) as daemon, Tmux(TOP, daemon.environ, 80, 24) as terminal:
        terminal.wait_for(r"^GPU 3 ")
        for columns, lines in ((20, 8), (200, 60), (60, 15)):
            terminal.resize(columns, lines)
        screen = terminal.wait_for(r"^GPU 3 .*")

        assert max(map(len, screen.splitlines())) <= 60


@in_make_truth
@pytest.mark.slow
def test_a_daemon_that_goes_and_comes_back(machine: Callable[..., RunningDaemon]) -> None:
    daemon = machine(1)
    with daemon, Tmux(TOP, daemon.environ, 120, 30) as terminal:
        terminal.wait_for(r"^GPU 0 ")
        daemon.process.send_signal(signal.SIGSTOP)
        terminal.wait_for(r"daemon .*\(since \d\d:\d\d:\d\d UTC\)")
        daemon.process.send_signal(signal.SIGCONT)
        terminal.wait_for(r"daemon at")
        assert terminal.has(r"^GPU 0 ")
        daemon.__exit__(None, None, None)
        terminal.wait_for(r"^The gpumon daemon .*\(since")
        with daemon:
            terminal.wait_for(r"^(?!.*The gpumon daemon)")


def test_without_a_daemon_it_watches_by_itself(fake_library: Path, tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path / "control", gpus=2)
    environ = {
        **fake_env(fake.path, fake_library.parent),
        "GPUMON_RUNTIME_DIR": str(tmp_path / "run"),
    }
    with Tmux(TOP, environ, 120, 30) as terminal:
        terminal.wait_for("no daemon runs here: watching nvml in this process")
        terminal.wait_for(r"^GPU 1 ")
        terminal.press("q")
        terminal.wait_for("ended with 0")
    fake.close()


def test_without_textual_it_says_how_to_install_it(tmp_path: Path) -> None:
    environ = RunningDaemon(tmp_path).environ
    with Tmux([sys.executable, "-c", WITHOUT_TEXTUAL], environ, 200, 10) as terminal:
        screen = terminal.wait_for("ended with 2")

    assert "-m pip install 'textual>=1'" in screen
    assert "`gpumon top -1`" in screen


def test_a_dumb_terminal_gets_one_screen(machine: Callable[..., RunningDaemon]) -> None:
    with machine(1) as daemon:
        shown = subprocess.run(
            ["script", "-qec", " ".join(TOP), "/dev/null"],
            env={**daemon.environ, "TERM": "dumb"},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip

    assert ROW.search(shown.stdout.replace("\r", ""))
    assert "\x1b" not in shown.stdout


def test_a_terminal_that_is_closed_ends_it(machine: Callable[..., RunningDaemon]) -> None:
    with machine(1) as daemon:
        with Tmux(TOP, daemon.environ, 100, 30) as terminal:
            terminal.wait_for(r"^GPU 0 ")
            pid = terminal.pid_of("gpumon top")

        assert until(lambda: not psutil.pid_exists(pid))


def test_sigterm_ends_it_and_restores_the_terminal(machine: Callable[..., RunningDaemon]) -> None:
    with machine(1) as daemon, Tmux(TOP, daemon.environ, 100, 30) as terminal:
        terminal.wait_for(r"^GPU 0 ")
        os.kill(terminal.pid_of("gpumon top"), signal.SIGTERM)
        screen = terminal.wait_for("ended with 0")

    assert "GPU 0" not in screen


def test_without_a_daemon_and_a_driver_it_is_a_sentence(tmp_path: Path) -> None:
    environ = {**RunningDaemon(tmp_path).environ, "LD_LIBRARY_PATH": ""}
    if find_library("nvidia-ml") is not None:
        pytest.skip("this machine has a driver")
    with Tmux(TOP, environ, 200, 10) as terminal:
        screen = terminal.wait_for("ended with 3")

    assert "gpumon: no gpumon daemon runs here, and libnvidia-ml.so.1 was not found" in screen
