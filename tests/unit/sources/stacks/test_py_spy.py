"""Tests of samples by the real py-spy, of real processes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gpumon.core.stacks.stack import StackSample
from gpumon.sources.stacks.py_spy import PySpy, find_py_spy
from gpumon.sources.system_clock import SystemClock
from tests.needs import missing
from tests.processes import ending
from tests.waiting import wait_until


@contextmanager
def running(code: str, python: str = sys.executable) -> Iterator[int]:
    """A Python program, once it has written a line; its pid."""
    with ending(
        subprocess.Popen([python, "-c", code], stdout=subprocess.PIPE, text=True)
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid


@pytest.fixture
def py_spy() -> PySpy:
    program = find_py_spy()
    if program is None:
        missing("py-spy is not installed: pip install -e '.[stacks]'")
    assert program is not None
    return PySpy(program, SystemClock())


SLEEPING = """
import time
class Loader:
    def wait(self):
        print("here", flush=True)
        time.sleep(60)
Loader().wait()
"""


def sample_of(py_spy: PySpy, pid: int) -> StackSample:
    """A sample of a program that sleeps, once it does."""
    samples: list[StackSample] = []

    def sleeps() -> bool:
        samples.append(py_spy.read(pid))
        return samples[-1].error is None and samples[-1].processes[0].threads[0].state == "S"

    wait_until(sleeps)
    return samples[-1]


class TestASample:
    def test_has_the_functions_files_and_lines_innermost_first(self, py_spy: PySpy) -> None:
        with running(SLEEPING) as pid:
            before_ns = time.monotonic_ns()
            sample = sample_of(py_spy, pid)

            assert before_ns <= sample.start_ns < sample.end_ns <= time.monotonic_ns()
            [process] = sample.processes
            [thread] = process.threads
            names = [frame.function.rpartition(".")[2] for frame in thread.frames]
            assert names == ["wait", "<module>"]
            assert [(frame.path, frame.line) for frame in thread.frames] == [
                ("<string>", 6), ("<string>", 7),
            ]  # fmt: skip
            assert thread.tid == process.pid == sample.pid == pid
            assert process.program.endswith(" -c")
