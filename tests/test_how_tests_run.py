"""Tests ignore the variables of the shell, and leave no process behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.shell_environment import SWITCHES
from tests.tools.run_suites import time_limit
from tests.waiting import until

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
    "tests/unit/cli/test_environment.py",
    "tests/unit/trainer_hooks/ring/test_process_ring.py",
)
"""Tests that fail if these variables reach them."""

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


def run_pytest(*args: str, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: text for name, text in os.environ.items() if "PYTEST" not in name}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *args],
        cwd=folder,
        env={**inherited, "PYTHONPATH": str(ROOT), **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


class TestVariablesOfTheShell:
    def test_do_not_reach_a_test(self) -> None:
        done = run_pytest(*SAMPLE, folder=ROOT, **OF_A_SHELL)

        assert done.returncode == 0, done.stdout
        assert re.search(r"^\d{2,} passed", done.stdout, re.MULTILINE)

    def test_are_listed_in_the_readme_if_they_do(self) -> None:
        page = (ROOT / "tests" / "README.md").read_text(encoding="utf-8")

        listed = re.findall(r"^\| `(GPUMON_\w+)` \|", page, re.MULTILINE)

        assert listed == sorted(SWITCHES)


class TestAProcessThatOutlivesItsTest:
    def test_is_reported_and_killed_and_fails_the_run(self, tmp_path: Path) -> None:
        (tmp_path / "test_leaving.py").write_text(LEAVING)
        (tmp_path / "conftest.py").write_text("from tests.leftover_processes import *\n")

        done = run_pytest("-n", "1", f"--rootdir={tmp_path}", folder=tmp_path)

        assert done.returncode == 1, done.stdout
        assert "2 passed, 1 xfailed" in done.stdout
        reported = re.findall(
            r"^pid (\d+), started in test_leaving.py::\w+ .* (\S+)$", done.stdout, re.MULTILINE
        )
        assert sorted(name for _, name in reported) == ["child", "half-way", "orphan"]
        assert until(lambda: not any(is_alive(int(pid)) for pid, _ in reported))


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


HANGING = """
import time
def test_that_hangs():
    time.sleep(600)
def test_that_comes_after_it():
    pass
"""


def test_a_test_that_hangs_fails_with_its_stack_and_the_others_run(tmp_path: Path) -> None:
    (tmp_path / "test_hanging.py").write_text(HANGING)

    done = run_pytest("-n", "1", *time_limit(1), f"--rootdir={tmp_path}", folder=tmp_path)

    assert "1 failed, 1 passed" in done.stdout
    assert "crashed while running 'test_hanging.py::test_that_hangs'" in done.stdout
    assert re.search(r"test_hanging\.py\", line 4 in test_that_hangs", done.stderr)


UNSTEADY = """
import collections, pytest, time
from tests import retry_measured
attempts, stalled_s = collections.Counter(), 0.0
retry_measured.seconds_stalled = lambda: stalled_s
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
from tests import retry_measured
def pytest_configure(config):
    config.addinivalue_line("markers", "measured")
    config.pluginmanager.register(retry_measured)
"""


def test_a_measured_test_is_tried_again_only_on_a_busy_machine(tmp_path: Path) -> None:
    (tmp_path / "test_unsteady.py").write_text(UNSTEADY)
    (tmp_path / "conftest.py").write_text(REGISTERED)

    done = run_pytest("-n", "1", f"--rootdir={tmp_path}", folder=tmp_path)

    assert "3 failed, 1 passed" in done.stdout
    assert "FAILED test_unsteady.py::test_right_the_fifth_time_beside_others" not in done.stdout
    assert re.findall(r"::test_(\w+): (\d) times", done.stdout) == [
        ("right_the_fifth_time_beside_others", "5"), ("right_the_sixth_time_beside_others", "5"),
    ]  # fmt: skip
