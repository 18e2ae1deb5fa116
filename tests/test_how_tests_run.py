"""The tests read nothing of the shell's, and leave no process behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

from tests.patience import until
from tests.shell_environment import SWITCHES
from tests.tools.run_suites import time_limit

ROOT = Path(__file__).resolve().parent.parent
OF_A_SHELL = {
    "COLUMNS": "40",
    "GPUMON_GPUS": "99",
    "GPUMON_LISTEN": "nowhere",
    "GPUMON_PERIOD": "nonsense",
    "GPUMON_PERIODE": "5",
    "GPUMON_RUN": "another",
    "GPUMON_RUNTIME_DIR": "/proc/nowhere",
    "GPUMON_SOURCE": "nonsense",
    "GPUMON_STAND_IN_GPUS": "many",
    "GPUMON_WEB_TOKEN_FILE": "/proc/nowhere",
    "RANK": "1",
    "SLURM_JOB_ID": "7",
    "WORLD_SIZE": "2",
    "XDG_RUNTIME_DIR": "/proc/nowhere",
    "http_proxy": "http://127.0.0.1:9",
}
SAMPLE = (
    "tests/e2e/test_listening.py::TestAMisspeltVariable",
    "tests/e2e/test_serve.py::TestWrongWords",
    "tests/unit/cli/test_environment.py",
    "tests/unit/cli/test_reading_progress.py",
    "tests/unit/trainer_hooks/ring/test_process_ring.py",
)
"""In this process and in others: they fail where these variables reach them."""

LEAVING = """
import pytest, subprocess, sys
PROGRAM = (sys.executable, "-c", "import time; time.sleep(600)")
def test_that_leaves_a_child():
    subprocess.Popen([*PROGRAM, "child"])
@pytest.mark.xfail
def test_that_raises_before_it_ends_what_it_started():
    subprocess.Popen([*PROGRAM, "half-way"])
    raise AssertionError
def test_that_leaves_a_process_which_has_no_parent():
    subprocess.run(["sh", "-c", '"$@" &', "sh", *PROGRAM, "orphan"])
"""


def run_of_pytest(*words: str, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """As from a shell, to its end."""
    inherited = {name: text for name, text in os.environ.items() if "PYTEST" not in name}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words],
        cwd=folder,
        env={**inherited, "PYTHONPATH": str(ROOT), **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


class TestAShell:
    def test_sets_nothing_for_what_is_tested(self) -> None:
        done = run_of_pytest(*SAMPLE, folder=ROOT, **OF_A_SHELL)

        assert done.returncode == 0, done.stdout
        assert re.search(r"^\d{2,} passed", done.stdout, re.MULTILINE)

    def test_sets_only_the_switches_that_the_readme_lists(self) -> None:
        page = (ROOT / "tests" / "README.md").read_text(encoding="utf-8")

        listed = re.findall(r"^\| `(GPUMON_\w+)` \|", page, re.MULTILINE)

        assert listed == sorted(SWITCHES)


class TestAProcessThatOutlivesItsTest:
    def test_is_named_and_ended_and_the_run_fails(self, tmp_path: Path) -> None:
        (tmp_path / "test_leaving.py").write_text(LEAVING)
        (tmp_path / "conftest.py").write_text("from tests.left_processes import *\n")

        done = run_of_pytest("-n", "1", f"--rootdir={tmp_path}", folder=tmp_path)

        assert done.returncode == 1, done.stdout
        assert "2 passed, 1 xfailed" in done.stdout
        for test, word in (
            ("a_child", "child"),
            ("what_it_started", "half-way"),
            ("which_has_no_parent", "orphan"),
        ):
            where = rf"^pid (\d+), started in test_leaving.py::\w+{test} .* {word}$"
            (pid,) = re.findall(where, done.stdout, re.MULTILINE)
            assert until(partial(is_gone, Path("/proc") / pid))  # killed, it may still be ending


HANGING = """
import time
def test_that_hangs():
    time.sleep(600)
def test_that_comes_after_it():
    pass
"""


def test_one_that_hangs_fails_with_its_stack_and_the_others_go_on(tmp_path: Path) -> None:
    (tmp_path / "test_hanging.py").write_text(HANGING)

    done = run_of_pytest("-n", "1", *time_limit(1), f"--rootdir={tmp_path}", folder=tmp_path)

    assert "1 failed, 1 passed" in done.stdout
    assert "crashed while running 'test_hanging.py::test_that_hangs'" in done.stdout
    assert re.search(r"test_hanging\.py\", line 4 in test_that_hangs", done.stderr)


def is_gone(process: Path) -> bool:
    return not is_alive(process)


def is_alive(process: Path) -> bool:
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


UNSTEADY = """
import collections, pytest, time
from tests import measured_again
attempts, stalled_s = collections.Counter(), 0.0
measured_again.seconds_stalled = lambda: stalled_s
@pytest.fixture
def attempt(request):
    global stalled_s
    name = request.node.name
    attempts[name] += 1
    time.sleep(0.2)
    stalled_s += 0.002 if "calm" in name else 0.2
    return attempts[name]
@pytest.mark.measured
def test_right_the_fifth_time_beside_others(attempt):
    assert attempt == 5
@pytest.mark.measured
def test_right_the_sixth_time_beside_others(attempt):
    assert attempt == 6
@pytest.mark.measured
def test_right_the_third_time_on_a_calm_machine(attempt):
    assert attempt == 3
def test_that_is_not_marked(attempt):
    assert attempt == 3
"""
REGISTERED = """
from tests import measured_again
def pytest_configure(config):
    config.addinivalue_line("markers", "measured")
    config.pluginmanager.register(measured_again)
"""


def test_a_measured_test_is_tried_again_only_on_a_busy_machine(tmp_path: Path) -> None:
    """The test writes the kernel's account itself."""
    (tmp_path / "test_unsteady.py").write_text(UNSTEADY)
    (tmp_path / "conftest.py").write_text(REGISTERED)

    done = run_of_pytest("-n", "1", f"--rootdir={tmp_path}", folder=tmp_path)

    assert "3 failed, 1 passed" in done.stdout
    assert "FAILED test_unsteady.py::test_right_the_fifth_time_beside_others" not in done.stdout
    assert re.findall(r"::test_(\w+): (\d) times", done.stdout) == [
        ("right_the_fifth_time_beside_others", "5"), ("right_the_sixth_time_beside_others", "5"),
    ]  # fmt: skip
