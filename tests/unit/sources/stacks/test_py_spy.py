"""Tests of samples by py-spy, and by programs in its place."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from gpumon.core.stacks.stack import StackFrame, StackSample
from gpumon.sources.stacks.py_spy import PySpy, find_py_spy
from gpumon.sources.system_clock import SystemClock
from tests.other_users import OTHER_UID, as_root
from tests.processes import ending
from tests.programs import ran_python
from tests.unit.sources.stacks.test_bounded_child import is_gone
from tests.unit.sources.stacks.test_py_spy_output import frame, thread
from tests.waiting import wait_until


@pytest.fixture
def target() -> Iterator[int]:
    """A process that sleeps, and is called python as far as /proc shows."""
    code = "import time; print(flush=True); time.sleep(600)"
    with ending(subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid


class FakePySpy:
    """A script in the place of py-spy."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "py-spy"

    def does(self, script: str) -> PySpy:
        self.path.write_text(f"#!/bin/sh\n{script}\n")
        self.path.chmod(0o755)
        return PySpy(self.path, SystemClock())

    def writes(self, text: str) -> PySpy:
        self.path.with_name("output").write_text(text)
        return self.does(f"cat {self.path.with_name('output')}")

    def fails(self, complaint: str) -> PySpy:
        self.path.with_name("complaint").write_text(complaint)
        return self.does(f"cat {self.path.with_name('complaint')} >&2; exit 1")


@pytest.fixture
def fake(tmp_path: Path) -> FakePySpy:
    return FakePySpy(tmp_path)


def of(pid: int, *entries: dict[str, object]) -> str:
    return json.dumps([{**entry, "pid": pid, "os_thread_id": pid} for entry in entries])


class TestPySpy:
    def test_is_found_beside_our_interpreter_only(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "py-spy").touch(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        (tmp_path / "bin").mkdir()
        monkeypatch.setattr(sys, "executable", str(tmp_path / "bin/python"))

        assert find_py_spy() is None
        (tmp_path / "bin/py-spy").touch(0o755)
        assert find_py_spy() == tmp_path / "bin/py-spy"

    def test_in_the_current_folder_is_not_found(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An embedded Python does not know its own path."""
        (tmp_path / "py-spy").touch(0o755)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "executable", "")

        assert find_py_spy() is None

    @as_root
    def test_in_a_folder_that_is_closed_to_us_is_not_found(self) -> None:
        imports = "import gpumon.sources.stacks.py_spy as module"
        code = f"{imports}\nimport os\nos.setgid({OTHER_UID}); os.setuid({OTHER_UID})\n"
        with tempfile.TemporaryDirectory() as folder:  # only root may enter it
            (Path(folder) / "py-spy").touch(0o755)
            code += f"module.sys.executable = '{folder}/python'\nprint(module.find_py_spy())"

            assert ran_python("-c", code).stdout == "None\n"

    def test_is_asked_for_stacks_without_stopping_and_without_locals(
        self, fake: FakePySpy, target: int, tmp_path: Path
    ) -> None:
        fake.does(f'echo "$@" > {tmp_path}/words').read(target)

        words = f"dump --nonblocking --json --full-filenames --pid {target}\n"
        assert (tmp_path / "words").read_text() == words

    def test_of_any_version_has_its_version(self, fake: FakePySpy) -> None:
        assert fake.writes("py-spy 0.4.3\n").version() == "0.4.3"
        assert fake.writes("py-spy 1.0.0-beta\n").version() is None
        assert fake.writes("\x1b[31m").version() is None
        assert fake.fails("py-spy 0.4.3").version() is None

    def test_that_is_missing_is_an_error_in_words(self, tmp_path: Path, target: int) -> None:
        sample = PySpy(tmp_path / "none", SystemClock()).read(target)

        assert sample.error == "py-spy failed: it could not be started: No such file or directory"
        assert not sample.is_retryable


class TestASample:
    def test_is_stamped_before_and_after(self, fake: FakePySpy, target: int) -> None:
        py_spy = fake.writes(of(target, thread(frame())))
        before_ns = time.monotonic_ns()

        sample = py_spy.read(target)

        assert before_ns <= sample.start_ns < sample.end_ns <= time.monotonic_ns()
        [process] = sample.processes
        assert process.threads[0].frames == (StackFrame("<module>", "/home/jo/train.py", 7),)

    def test_has_the_kernels_state_of_each_thread(self, fake: FakePySpy, target: int) -> None:
        py_spy = fake.writes(of(target, thread(frame(), thread_name="main")))

        def sleeps() -> bool:
            return py_spy.read(target).processes[0].threads[0].state == "S"

        wait_until(sleeps)
        [process] = py_spy.read(target).processes
        assert process.threads[0].name == "main"
        assert process.threads[0].is_active is False

    def test_counts_the_cpu_time_of_py_spy_and_our_own(self, fake: FakePySpy, target: int) -> None:
        py_spy = fake.does("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exit 1")

        py_spy.read(target)
        once_s = py_spy.cpu_seconds
        py_spy.read(target)

        assert 0.005 < once_s < py_spy.cpu_seconds < 4

    def test_whose_first_stack_ends_early_is_none(self, fake: FakePySpy, target: int) -> None:
        sample = fake.writes(of(target, thread(frame("batches")))).read(target)

        assert sample.error == f"the stacks of process {target} changed while py-spy read them"
        assert sample.is_retryable
        assert [one.frames for one in sample.processes[0].threads] == [()]


FAILURES = {
    "Error: Failed to get stack traces\n\nCaused by:\n    0: Failed to call get_stack_trace for "
    "thread 7\n    1: Failed to copy PyCodeObject\n    2: Bad address (os error 14)\n": (
        "the stacks of process PID changed while py-spy read them",
        True,
    ),
    "Error: Failed to find python version from target process\n": (
        "process PID runs no Python that py-spy knows",
        False,
    ),
    "Error: Failed to find a python interpreter in the .data section\n": (
        "py-spy finds no interpreter in process PID: it has just begun, or its stacks are deeper "
        "than 4,096 calls",
        False,
    ),
    "Error: \x1b[31mwhat\n\nStack backtrace:\n  0: main\n": (
        "py-spy failed: Error: \ufffd[31mwhat",
        False,
    ),
    "": ("py-spy failed: it ended with status 1", False),
    "error: unexpected argument '--nonblocking' found\n": (
        "py-spy failed: error: unexpected argument '--nonblocking' found",
        False,
    ),
}


class TestAPySpyThatFails:
    @pytest.mark.parametrize("complaint", FAILURES)
    def test_is_one_sentence(self, fake: FakePySpy, target: int, complaint: str) -> None:
        sample = fake.fails(complaint).read(target)

        text, is_retryable = FAILURES[complaint]
        assert sample.error == text.replace("PID", str(target))
        assert sample.is_retryable is is_retryable

    def test_leaves_the_states_of_threads(self, fake: FakePySpy, target: int) -> None:
        sample = fake.fails("").read(target)

        [process] = sample.processes
        assert process.program.endswith(" -c")
        assert [one.tid for one in process.threads] == [target]

    @pytest.mark.parametrize(
        "text", ["", "[", '[{"pid": ', "{}", "[]", '{"threads": []}', "py-spy 9", "\0\x1b[2J"]
    )
    def test_by_half_or_other_output_is_one_sentence(
        self, fake: FakePySpy, target: int, text: str
    ) -> None:
        sample = fake.writes(text).read(target)

        assert sample.error is not None
        assert sample.error.startswith("py-spy failed: its output ")
        assert sample.error.isprintable()
        assert not sample.is_retryable

    def test_by_half_of_the_right_output_is_one_sentence(
        self, fake: FakePySpy, target: int
    ) -> None:
        whole = of(target, thread(frame()))

        sample = fake.writes(whole[: len(whole) // 2]).read(target)

        assert sample.error == "py-spy failed: its output is no complete JSON"

    def test_by_hanging_is_killed_after_a_second(
        self, fake: FakePySpy, target: int, tmp_path: Path
    ) -> None:
        py_spy = fake.does(f"sleep 600 & echo $! $$ > {tmp_path}/pids; wait")

        sample = py_spy.read(target)

        assert sample.error == "py-spy failed: it did not end within 1 s"
        assert 1.0 <= (sample.end_ns - sample.start_ns) / 1e9 < 10
        for pid in (tmp_path / "pids").read_text().split():
            wait_until(partial(is_gone, int(pid)))

    def test_by_a_signal_is_one_sentence(self, fake: FakePySpy, target: int) -> None:
        sample = fake.does("kill -SEGV $$").read(target)

        assert sample.error == "py-spy failed: it ended with status -11"


class TestAProcessThatOptsOut:
    def test_is_never_given_to_py_spy(self, fake: FakePySpy, tmp_path: Path) -> None:
        py_spy = fake.does(f"touch {tmp_path}/called")
        environ = {"GPUMON_NO_STACKS": "1"}
        with ending(subprocess.Popen(["/bin/sleep", "60"], env=environ)) as process:
            wait_until(lambda: b"GPUMON" in Path(f"/proc/{process.pid}/environ").read_bytes())
            sample = py_spy.read(process.pid)

        assert "does not want its stacks read" in str(sample.error)
        assert not (tmp_path / "called").exists()


def test_a_sample_of_no_process_is_empty(fake: FakePySpy) -> None:
    pid = int(Path("/proc/sys/kernel/pid_max").read_text())

    sample = fake.does("").read(pid)

    assert sample == StackSample(
        sample.start_ns, sample.end_ns, pid, error=f"there is no process {pid}, or it is hidden"
    )
