"""Stacks of real processes by the real py-spy, whatever these processes are and do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from gpumon.core.stacks.stack import StackSample, ThreadStack
from gpumon.sources.host.process_tasks import MAX_THREADS
from gpumon.sources.stacks.py_spy import PySpy, find_py_spy
from gpumon.sources.system_clock import SystemClock
from tests.needs import missing, needed
from tests.other_users import OTHER_UID, as_root
from tests.processes import ending
from tests.waiting import wait_until

PYTHONS: Final = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")


def interpreter(version: str) -> str:
    """A Python of that version: ours, one on PATH, or pyenv's."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = sorted(pyenv.glob(f"versions/{version}.*/bin/python"))
    if not found:
        pytest.skip(f"there is no Python {version} here (pyenv install {version})")
    return str(found[-1])


@contextmanager
def running(*words: str, env: dict[str, str] | None = None) -> Iterator[int]:
    """A program, once it has written a line; its pid."""
    with ending(
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
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


def names(thread: ThreadStack) -> list[str]:
    """Its functions without their classes, which Python names from 3.11 on."""
    return [frame.function.rpartition(".")[2] for frame in thread.frames]


def sample_once(py_spy: PySpy, pid: int, met: Callable[[StackSample], bool]) -> StackSample:
    """The first sample that is as described: programs need a moment after their line."""
    samples: list[StackSample] = []

    def is_met() -> bool:
        samples.append(py_spy.read(pid))
        return met(samples[-1])

    wait_until(is_met)
    return samples[-1]


def sleeps(sample: StackSample) -> bool:
    return sample.error is None and sample.processes[0].threads[0].state == "S"


SLEEPING = """
import time
class Loader:
    def wait(self):
        print("here", flush=True)
        time.sleep(600)
Loader().wait()
"""
WITH_THREADS = """
import threading, time
asleep = threading.Event()
for _ in range({count}):
    threading.Thread(target=asleep.wait, daemon=True).start()
print("here", flush=True)
time.sleep(600)
"""


class TestASample:
    @pytest.mark.parametrize("version", PYTHONS)
    def test_has_functions_files_and_lines_of_each_python(
        self, py_spy: PySpy, version: str, tmp_path: Path
    ) -> None:
        script = tmp_path / "träin me.py"
        script.write_text(SLEEPING)
        with running(interpreter(version), "-u", str(script), "--password", "hush") as pid:
            sample = sample_once(py_spy, pid, sleeps)

        [process] = sample.processes
        [thread] = process.threads
        assert names(thread) == ["wait", "<module>"]
        assert {frame.path for frame in thread.frames} == {str(script)}
        assert [frame.line for frame in thread.frames] == [6, 7]
        assert (thread.tid, process.pid, process.parent_pid) == (pid, pid, None)
        assert thread.is_active is False
        assert process.program.endswith(" träin me.py")

    @pytest.mark.parametrize("version", PYTHONS)
    def test_has_the_first_thread_first(self, py_spy: PySpy, version: str) -> None:
        with running(interpreter(version), "-c", WITH_THREADS.format(count=3)) as pid:
            sample = sample_once(py_spy, pid, sleeps)

        first, *others = sample.processes[0].threads
        assert (first.tid, names(first)) == (pid, ["<module>"])
        assert [names(other)[-1] for other in others] == ["_bootstrap"] * 3

    def test_has_workers_and_leaves_out_what_is_no_python(self, py_spy: PySpy) -> None:
        workers = (
            "import subprocess, sys\n"
            f"code = {SLEEPING!r}\n"
            "python = [sys.executable, '-c', code]\n"
            "pipes = [subprocess.Popen(python, stdout=subprocess.PIPE) for _ in range(2)]\n"
            "[pipe.stdout.readline() for pipe in pipes]\n"
            "other = subprocess.Popen(['/bin/sleep', '600'])\n"
            "print('here', flush=True)\n"
            "try: input()\n"
            "finally: [pipe.kill() for pipe in (*pipes, other)]\n"
        )
        with running(sys.executable, "-c", workers) as pid:
            sample = sample_once(py_spy, pid, lambda one: sleeps(one) and len(one.processes) == 4)
            root, *children = sample.processes
            for child in children:
                os.kill(child.pid, signal.SIGKILL)

        assert names(root.threads[0]) == ["<module>"]
        assert [child.parent_pid for child in children] == [pid] * 3
        stacks = {child.program: names(child.threads[0]) for child in children}
        assert stacks.pop("sleep") == []
        assert list(stacks.values()) == [["wait", "<module>"]]

    def test_of_a_shell_has_the_stacks_of_its_python(self, py_spy: PySpy) -> None:
        script = f"{sys.executable} -c '{SLEEPING}'; true"
        with running("/bin/sh", "-c", script) as pid:
            sample = sample_once(py_spy, pid, lambda one: one.error is None)
            os.kill(sample.processes[1].pid, signal.SIGKILL)

        shell, python = sample.processes
        assert [thread.frames for thread in shell.threads] == [()]
        assert names(python.threads[0])[-1] == "<module>"

    def test_in_turn_has_the_stacks_of_many_workers(self) -> None:
        program = find_py_spy()
        if program is None:
            missing("py-spy is not installed: pip install -e '.[stacks]'")
        assert program is not None
        py_spy = PySpy(program, SystemClock(), most_workers=1)
        code = (
            "import os, time\n"
            "pids = [os.fork() for _ in range(2)]\n"  # four processes
            "print('here', flush=True)\n"
            "time.sleep(600)\n"
        )
        with running(sys.executable, "-c", code) as pid:
            samples = [
                sample_once(py_spy, pid, lambda one: sleeps(one) and len(one.processes) == 4)
                for _ in range(6)
            ]
            for process in samples[-1].processes[1:]:
                os.kill(process.pid, signal.SIGKILL)

        seen = [
            {process.pid for process in one.processes[1:] if process.threads[0].frames}
            for one in samples
        ]
        assert all(len(pids) <= 1 for pids in seen)
        assert len(set.union(*seen)) == 3


class TestAProcess:
    def test_of_2000_threads_is_read_within_bounds(self, py_spy: PySpy) -> None:
        with running(sys.executable, "-c", WITH_THREADS.format(count=2_000)) as pid:
            sample = sample_once(py_spy, pid, lambda one: one.error is None)

        threads = sample.processes[0].threads
        assert len(threads) == MAX_THREADS
        assert threads[0].tid == pid

    @pytest.mark.parametrize("version", PYTHONS)
    def test_with_a_recursion_of_10000_frames_is_read_or_one_sentence(
        self, py_spy: PySpy, version: str
    ) -> None:
        code = (
            "import sys, time, threading\n"
            "sys.setrecursionlimit(20_000)\n"
            "threading.stack_size(512 << 20)\n"
            "def f(n):\n"
            "    if n: f(n - 1)\n"
            "    else: print('here', flush=True); time.sleep(600)\n"
            "threading.Thread(target=f, args=(10_000,), daemon=True).start()\n"
            "time.sleep(600)\n"
        )
        with running(interpreter(version), "-c", code) as pid:
            sample = py_spy.read(pid)

        assert sample.error is not None
        assert "deeper than 4,096 calls" in sample.error
        assert len(sample.processes[0].threads) == 2

    def test_with_a_recursion_of_3000_frames_keeps_both_ends(self, py_spy: PySpy) -> None:
        code = (
            "import sys, time\n"
            "sys.setrecursionlimit(20_000)\n"
            "def f(n):\n"
            "    if n: f(n - 1)\n"
            "    else: print('here', flush=True); time.sleep(600)\n"
            "f(3_000)\n"
        )
        with running(sys.executable, "-c", code) as pid:
            [thread] = sample_once(py_spy, pid, sleeps).processes[0].threads

        assert len(thread.frames) == 1_000
        assert (names(thread)[0], names(thread)[-1]) == ("f", "<module>")

    def test_with_hostile_names_cannot_control_a_terminal(self, py_spy: PySpy) -> None:
        name = '<script>alert(1)</script>\x1b[2J\x1b]0;title\x07\n{"pid": 1}]\u202e\\ größe 読'
        code = (
            "import time, threading\n"
            f"name = {name!r}\n"
            "def wait(): print('here', flush=True); time.sleep(600)\n"
            "wait.__code__ = wait.__code__.replace(co_name=name, co_filename=name, "
            "co_qualname=name)\n"
            "thread = threading.Thread(target=wait, name=name); thread.start(); thread.join()\n"
        )
        with running(sys.executable, "-c", code) as pid:
            sample = sample_once(py_spy, pid, sleeps)

        thread = next(one for one in sample.processes[0].threads if one.tid != pid)
        [frame] = [one for one in thread.frames if "script" in one.function]
        for text in (frame.function, frame.path, thread.name):
            assert text.isprintable()
            assert text.startswith("<script>alert(1)</script>\ufffd[2J")
            assert text.endswith("größe 読")

    def test_that_ends_meanwhile_is_one_sentence(self, py_spy: PySpy) -> None:
        for delay_ms in range(0, 40, 2):
            with running(sys.executable, "-c", "print('here', flush=True); input()") as pid:
                timer = subprocess.Popen(["/bin/sh", "-c", f"sleep 0.{delay_ms:03}; kill -9 {pid}"])
                for _ in range(4):
                    sample = py_spy.read(pid)
                    assert sample.error is None or sample.error.isprintable()
                timer.wait()
            assert py_spy.read(pid).error == f"there is no process {pid}, or it is hidden"

    def test_that_is_a_zombie_is_one_sentence(self, py_spy: PySpy) -> None:
        with ending(subprocess.Popen(["/bin/true"])) as process:
            sample = sample_once(py_spy, process.pid, lambda one: "zombie" in str(one.error))

        assert "has ended" in str(sample.error)

    def test_that_execs_is_read_as_what_it_became(self, py_spy: PySpy) -> None:
        again = "import time; print('here', flush=True); time.sleep(600)"
        code = (
            "import os, sys\n"
            "print('here', flush=True)\n"
            "for n in range(60): pass\n"
            f"os.execv(sys.executable, [sys.executable, '-c', {again!r}])\n"
        )
        with running(sys.executable, "-c", code) as pid:
            seen = [py_spy.read(pid) for _ in range(20)]
            last = sample_once(py_spy, pid, sleeps)

        assert all(one.error is None or one.error.isprintable() for one in seen)
        assert names(last.processes[0].threads[0]) == ["<module>"]

    def test_in_state_d_is_read(self, py_spy: PySpy) -> None:
        """The parent of a vfork sleeps in that state until its child execs."""
        code = (
            "import ctypes, os\n"
            "print('here', flush=True)\n"
            "libc = ctypes.PyDLL(None)\n"
            "if libc.vfork() == 0: libc.sleep(600)\n"
        )
        with running(sys.executable, "-c", code) as pid:
            sample = sample_once(py_spy, pid, lambda one: one.processes[0].threads[0].state == "D")
            for process in sample.processes[1:]:
                os.kill(process.pid, signal.SIGKILL)

        assert sample.end_ns - sample.start_ns < 2_000_000_000
        assert names(sample.processes[0].threads[0])[-1:] in ([], ["<module>"])

    def test_that_is_stopped_is_read_and_stays_stopped(self, py_spy: PySpy) -> None:
        with running(sys.executable, "-c", SLEEPING) as pid:
            sample_once(py_spy, pid, sleeps)
            os.kill(pid, signal.SIGSTOP)
            sample = sample_once(py_spy, pid, lambda one: one.processes[0].threads[0].state == "T")

        assert names(sample.processes[0].threads[0]) == ["wait", "<module>"]

    def test_of_a_container_has_its_ids_here(self, py_spy: PySpy) -> None:
        command = [needed("unshare", "util-linux"), "--pid", "--fork", "--kill-child"]
        able = subprocess.run([*command, "/bin/true"], capture_output=True, check=False)
        if able.returncode != 0:
            pytest.skip(f"not permitted here: {able.stderr.decode()}")
        code = WITH_THREADS.format(count=2)
        with running(*command, sys.executable, "-c", code) as pid:
            sample = sample_once(py_spy, pid, lambda one: one.error is None)

            python = sample.processes[1]
            threads = Path(f"/proc/{python.pid}/task").iterdir()
            assert {one.tid for one in python.threads} == {int(one.name) for one in threads}
        assert python.threads[0].tid == python.pid
        assert names(python.threads[0]) == ["<module>"]

    @as_root
    def test_of_another_user_is_not_read_as_a_descendant(self, py_spy: PySpy) -> None:
        code = (
            "import os, time\n"
            "if os.fork() == 0:\n"
            f"    os.setgroups([]); os.setgid({OTHER_UID}); os.setuid({OTHER_UID})\n"
            "    print('here', flush=True)\n"
            "time.sleep(600)\n"
        )
        with running(sys.executable, "-c", code) as pid:
            sample = sample_once(py_spy, pid, sleeps)
            root, child = sample.processes
            os.kill(child.pid, signal.SIGKILL)

        assert names(root.threads[0]) == ["<module>"]
        assert [thread.frames for thread in child.threads] == [()]

    @as_root
    def test_of_another_user_is_read_by_root_and_refused_to_that_user(self, py_spy: PySpy) -> None:
        become = f"import os\nos.setgroups([]); os.setgid({OTHER_UID}); os.setuid({OTHER_UID})\n"
        with running(sys.executable, "-c", become + SLEEPING) as pid:
            assert names(sample_once(py_spy, pid, sleeps).processes[0].threads[0])[0] == "wait"

        code = (
            "import ctypes, pwd\n"
            "from gpumon.sources.stacks.py_spy import PySpy, find_py_spy\n"
            "from gpumon.sources.system_clock import SystemClock\n"
            f"py_spy = PySpy('/bin/false', SystemClock())\n{become}"
            f"print(py_spy.read({os.getpid()}).error)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert f"process {os.getpid()}" in done.stdout
        assert "failed" not in done.stdout

    def test_that_computes_is_read_or_the_failure_is_retryable(self, py_spy: PySpy) -> None:
        """Without stopping it, some stacks are caught while they change."""
        code = (
            "import json\n"
            "rows = [{'a': [n, {'b': str(n)}]} for n in range(50)]\n"
            "def compute(): json.loads(json.dumps(rows, indent=1))\n"
            "print('here', flush=True)\n"
            "while True: compute()\n"
        )
        with running(sys.executable, "-c", code) as pid:
            samples = [py_spy.read(pid) for _ in range(60)]

        assert all(one.is_retryable for one in samples if one.error)
        whole = [one for one in samples if one.error is None]
        assert len(whole) >= 30
        assert {names(one.processes[0].threads[0])[-1] for one in whole} == {"<module>"}
