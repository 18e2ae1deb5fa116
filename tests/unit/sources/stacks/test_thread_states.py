"""Tests of what /proc shows of a process and its descendants."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from gpumon.sources.host.run_inspection import MOST_WORKERS
from gpumon.sources.stacks import thread_states
from gpumon.sources.stacks.thread_states import ThreadStates, script_of
from gpumon.sources.system_clock import SystemClock
from tests.builders.proc import PID, FakeProc
from tests.processes import ending
from tests.waiting import wait_until


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path / "proc")


def states_in(proc: FakeProc) -> ThreadStates:
    return ThreadStates(SystemClock(), str(proc.folder))


def runs(proc: FakeProc, raw: bytes, *, executable: str = "/usr/bin/python3.11") -> None:
    """Give the process this command line, as the kernel shows it, and this executable."""
    folder = proc.folder / str(PID)
    (folder / "cmdline").write_bytes(raw)
    (folder / "comm").write_text("a comm\n")
    if executable:
        (folder / "exe").symlink_to(executable)


class TestASample:
    def test_has_states_and_where_threads_sleep(self, proc: FakeProc) -> None:
        proc.task(PID, state="D", wchan="nfs_wait_bit_killable")
        proc.task(PID, PID + 1, state="R", wchan="0")
        before_ns = time.monotonic_ns()

        sample = states_in(proc).read(PID, "not permitted")

        assert before_ns <= sample.start_ns < sample.end_ns <= time.monotonic_ns()
        assert (sample.pid, sample.error, sample.is_retryable) == (PID, "not permitted", False)
        [process] = sample.processes
        first, second = process.threads
        assert (first.tid, first.state, first.sleeps_in) == (PID, "D", "nfs_wait_bit_killable")
        assert (second.tid, second.state, second.sleeps_in) == (PID + 1, "R", None)
        assert (first.is_active, second.is_active) == (False, True)
        assert first.name == "a name) with brackets"
        assert first.frames == second.frames == ()

    def test_has_descendants_after_their_parents(self, proc: FakeProc) -> None:
        for pid in (PID, 10, 20, 30):
            proc.task(pid)
        proc.starts(PID, 30, 10)
        proc.starts(10, 20)

        sample = states_in(proc).read(PID)

        assert [(one.pid, one.parent_pid) for one in sample.processes] == [
            (PID, None), (30, PID), (10, PID), (20, 10),
        ]  # fmt: skip

    def test_of_a_process_that_is_gone_is_empty(self, proc: FakeProc) -> None:
        assert states_in(proc).read(PID).processes == ()

    def test_leaves_out_a_worker_that_ended_meanwhile(self, proc: FakeProc) -> None:
        proc.task(PID)
        proc.starts(PID, 30)

        assert [one.pid for one in states_in(proc).read(PID).processes] == [PID]

    def test_is_bounded_in_processes(self, proc: FakeProc) -> None:
        workers = range(10_000, 10_000 + MOST_WORKERS + 50)
        for pid in (PID, *workers):
            proc.task(pid)
        proc.starts(PID, *workers)

        assert len(states_in(proc).read(PID).processes) == MOST_WORKERS + 1

    def test_is_bounded_in_threads_with_the_first_of_each_process(
        self, proc: FakeProc, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(thread_states, "MOST_IN_ALL", 10)
        for pid in (PID, 20, 30, 40):
            for number in range(4):
                proc.task(pid, pid + number)
        proc.starts(PID, 20, 30, 40)

        processes = states_in(proc).read(PID).processes

        assert [len(process.threads) for process in processes] == [4, 4, 2, 1]

    def test_of_this_process_names_its_threads_and_children(self) -> None:
        asleep = threading.Event()
        thread = threading.Thread(target=asleep.wait)
        thread.start()
        with ending(subprocess.Popen(["/bin/sleep", "60"])) as child:
            sample = ThreadStates(SystemClock()).read(os.getpid())
        asleep.set()
        thread.join()

        us, them = sample.processes[0], {one.pid: one for one in sample.processes}
        assert us.threads[0].tid == os.getpid()
        assert us.threads[0].is_active
        assert thread.native_id in {one.tid for one in us.threads}
        assert them[child.pid].parent_pid == os.getpid()


class TestAProgram:
    @pytest.mark.parametrize(
        ("arguments", "program"),
        [
            (["python3", "train.py"], "python3 train.py"),
            (["/opt/conda/bin/python3.11", "-u", "/home/jo/train.py"], "python3.11 train.py"),
            (["python", "-X", "dev", "-W", "ignore", "-Wonce", "-OO", "t.py"], "python t.py"),
            (["python", "-m", "torch.distributed.run"], "python -m torch.distributed.run"),
            (["python", "-mpkg.train"], "python -m pkg.train"),
            (["python", "-um", "pkg.train"], "python -m pkg.train"),
            (["python", "-c", "password = 1"], "python -c"),
            (["python", "-cpassword = 1"], "python -c"),
            (["python", "-Ic", "password = 1"], "python -c"),
            (["python", "--check-hash-based-pycs", "always", "t.py"], "python t.py"),
            (["python", "/srv/hush/app/"], "python app"),
            (["python", "-"], "python"),
            (["python", "--version"], "python"),
            (["python", "-Z", "hush"], "python"),
            (["python", "-m", "--hush"], "python"),
            (["python3.13t", "t.py"], "python3.13t t.py"),
        ],
    )
    def test_is_its_base_name_with_that_of_the_script(
        self, proc: FakeProc, arguments: list[str], program: str
    ) -> None:
        proc.task(PID)
        runs(proc, "\0".join([*arguments, "--password", "hush", ""]).encode())

        shown = states_in(proc).program(PID)

        assert shown == program

    @pytest.mark.parametrize(
        "raw",
        [
            b"/home/hush/trainer\0--password\0hush\0",
            b"python train.py --password hush",  # as setproctitle writes it
            b"ray::train(hush)\0\0\0",
            b"sh -c 'hush'\0",
            b"/bin/sh\0-c\0hush\0",
            b"",
        ],
    )
    def test_of_anything_else_is_its_executable(self, proc: FakeProc, raw: bytes) -> None:
        proc.task(PID)
        runs(proc, raw, executable="/home/hush/trainer")

        assert states_in(proc).program(PID) == "trainer"

    def test_whose_executable_is_hidden_is_what_the_kernel_calls_it(self, proc: FakeProc) -> None:
        proc.task(PID)
        runs(proc, b"/hush/trainer\0hush\0", executable="")

        assert states_in(proc).program(PID) == "a comm"

    def test_never_has_half_an_argument(self, proc: FakeProc) -> None:
        """Long command lines are read in part: the last argument is then cut."""
        proc.task(PID)
        runs(proc, b"python\0-u\0/" + b"d/" * 4_000 + b"train.py\0")

        assert states_in(proc).program(PID) == "python"

    def test_cannot_control_a_terminal(self, proc: FakeProc) -> None:
        proc.task(PID)
        runs(proc, b"python\0\x1b[31m\xff\n.py\0")

        assert states_in(proc).program(PID) == "python \ufffd[31m\ufffd\ufffd.py"

    def test_that_is_gone_has_no_name(self, proc: FakeProc) -> None:
        assert states_in(proc).program(PID) == ""

    def test_of_this_process_is_pythons(self) -> None:
        assert ThreadStates(SystemClock()).program(os.getpid()).startswith("python")


class TestAScript:
    def test_is_no_value_of_an_option(self) -> None:
        for letter in "bBdEhiIOPqRsSuvVx":
            assert list(script_of([f"-{letter}", "t.py", "hush"])) == ["t.py"]
        for letter in "WXQ":
            assert list(script_of([f"-{letter}", "hush", "t.py"])) == ["t.py"]
            assert list(script_of([f"-{letter}hush", "t.py"])) == ["t.py"]


class TestPython:
    def test_is_recognised_by_its_executable(self) -> None:
        states = ThreadStates(SystemClock())

        assert states.is_python(os.getpid())
        assert states.is_interpreter(os.getpid())

    def test_in_another_program_is_recognised_by_its_library(self, proc: FakeProc) -> None:
        proc.task(PID)
        runs(proc, b"trainer\0", executable="/opt/trainer")
        maps = proc.folder / str(PID) / "maps"
        states = states_in(proc)

        maps.write_text("7f00-7f10 r-xp 0 00:00 7  /usr/lib/libc.so.6\n")
        assert not states.is_python(PID)
        maps.write_text("7f00-7f10 r-xp 0 00:00 7  /usr/lib/libpython3.11.so.1.0\n")
        assert states.is_python(PID)
        assert not states.is_interpreter(PID)

    def test_is_no_shell(self) -> None:
        with ending(subprocess.Popen(["/bin/sleep", "60"])) as child:
            wait_until(lambda: "sleep" in Path(f"/proc/{child.pid}/comm").read_text())

            assert not ThreadStates(SystemClock()).is_python(child.pid)

    def test_whose_file_was_replaced_is_still_one(self, proc: FakeProc) -> None:
        proc.task(PID)
        runs(proc, b"x\0", executable="/usr/bin/python3.11 (deleted)")

        assert states_in(proc).is_python(PID)


class TestAContainer:
    def test_has_other_thread_ids_inside(self, proc: FakeProc) -> None:
        proc.task(PID, inner=1)
        proc.task(PID, PID + 3, inner=9)

        assert states_in(proc).inner_tids(PID) == {1: PID, 9: PID + 3}

    def test_without_a_namespace_has_the_same(self, proc: FakeProc) -> None:
        proc.task(PID)

        assert states_in(proc).inner_tids(PID) is None
