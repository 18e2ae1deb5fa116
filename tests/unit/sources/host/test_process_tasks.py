"""Tests of a process's threads: their time on cores between two inspections."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from gpumon.core.waits.evidence import TaskSample
from gpumon.sources.host.kept_files import KeptFiles
from gpumon.sources.host.process_tasks import (
    MAX_THREADS,
    MAX_WITH_STATE,
    ProcessTasks,
    Span,
    inner_number,
    parse_stat,
)
from tests.builders.proc import PID, FakeProc
from tests.builders.time import s

SECOND = Span(s(1), s(2))


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path / "proc")


def listed(proc: FakeProc, pid: int = PID) -> ProcessTasks:
    """A process after its first inspection."""
    tasks = ProcessTasks(pid, KeptFiles(), str(proc.folder))
    tasks.list_threads()
    tasks.advance(s(1), with_switches=True)
    return tasks


def others(tasks: ProcessTasks, *, with_state: bool = True) -> tuple[TaskSample, ...]:
    return tasks.others(PID, SECOND, with_state=with_state, may_wait=False)


class TestAThread:
    def test_wants_its_run_time_and_its_queue_time(self, proc: FakeProc) -> None:
        proc.task(PID, ran_ns=s(5), queued_ns=s(1))
        tasks = listed(proc)
        proc.task(PID, ran_ns=s(5.3), queued_ns=s(1.5))
        tasks.advance(s(2))

        look = tasks.main(PID, SECOND, with_state=False, may_wait=False)

        assert look is not None
        assert look.on_cpu_cores == pytest.approx(0.3)
        assert look.queued_cores == pytest.approx(0.5)
        assert look.wanted_cores == pytest.approx(0.8)
        assert (look.state, look.sleeps_in) == (None, None)

    @pytest.mark.parametrize("wchan", ["0", ""])
    def test_has_no_sleep_function_on_a_hardened_kernel(self, proc: FakeProc, wchan: str) -> None:
        proc.task(PID, wchan=wchan, state="D")
        tasks = listed(proc)

        look = tasks.main(PID, SECOND, with_state=True, may_wait=False)

        assert look is not None
        assert (look.state, look.sleeps_in) == ("D", None)

    def test_that_ended_is_closed(self, proc: FakeProc) -> None:
        proc.task(PID)
        task = proc.task(PID, 8, ran_ns=5)
        tasks = listed(proc)
        task.rename(proc.folder / "gone")
        (proc.folder / str(PID) / "task" / "8").mkdir()
        tasks.advance(s(2))

        assert others(tasks) == ()

    def test_that_is_idle_is_read_less_often(self, proc: FakeProc) -> None:
        proc.task(PID)
        proc.task(PID, 8)
        tasks = listed(proc)
        for second in range(2, 6):
            tasks.advance(s(second))
        seen = []
        for second in range(6, 14):
            proc.task(PID, 8, ran_ns=s(second))
            tasks.advance(s(second))
            seen.append([look.on_cpu_cores for look in others(tasks)])

        awake = seen.index([1.0])
        assert seen[:awake] == [[]] * awake
        assert awake <= 4
        assert seen[awake:] == [[1.0]] * (8 - awake)

    def test_with_a_reused_id_wants_nothing(self, proc: FakeProc) -> None:
        proc.task(PID, ran_ns=s(5), queued_ns=s(1))
        tasks = listed(proc)
        proc.task(PID, ran_ns=s(0.1))
        tasks.advance(s(2))

        look = tasks.main(PID, SECOND, with_state=False, may_wait=False)

        assert look is not None
        assert look.wanted_cores == 0.0


class TestManyThreads:
    def test_are_bounded(self, proc: FakeProc) -> None:
        for tid in range(PID, PID + MAX_THREADS + 50):
            proc.task(PID, tid, ran_ns=1)

        tasks = listed(proc)
        for tid in range(PID, PID + MAX_THREADS + 50):
            proc.task(PID, tid, ran_ns=2)
        tasks.advance(s(2))
        looks = others(tasks)

        assert len(looks) == MAX_WITH_STATE
        assert len(tasks.inner_numbers()) <= MAX_THREADS


class TestAProcess:
    def test_counts_from_its_start_if_that_is_after_the_last_inspection(
        self, proc: FakeProc
    ) -> None:
        ticks = os.sysconf("SC_CLK_TCK")
        proc.task(PID, ran_ns=s(0.5), began_ticks=10 * ticks)
        wanted = []
        for inspected_boot_s in (9.0, 11.0, None):
            tasks = ProcessTasks(PID, KeptFiles(), str(proc.folder))
            tasks.list_threads(inspected_boot_s)
            tasks.advance(s(2))
            wanted.append(tasks.whole(SECOND, with_state=False, may_wait=False).wanted_cores)

        assert wanted == [0.5, 0.0, 0.0]

    def test_is_the_sum_of_its_threads_with_the_state_of_the_first(self, proc: FakeProc) -> None:
        proc.task(PID, wchan="wait_woken")
        proc.task(PID, 8, wchan="futex_do_wait")
        tasks = listed(proc)
        proc.task(PID, ran_ns=s(0.2), wchan="wait_woken")
        proc.task(PID, 8, ran_ns=s(0.3), queued_ns=s(0.1))
        tasks.advance(s(2))

        assert tasks.whole(SECOND, with_state=True, may_wait=False) == TaskSample(
            0.5, 0.1, state="S", sleeps_in="wait_woken"
        )

    def test_has_the_bytes_read_since_the_last_call(self, proc: FakeProc) -> None:
        proc.task(PID, faults=10)
        proc.reads(PID, 4_096)
        tasks = listed(proc)
        first = tasks.fetched_since()
        proc.task(PID, faults=25)
        proc.reads(PID, 12_288)

        assert (first, tasks.fetched_since()) == ((None, None), (8_192, 15))

    def test_reads_only_the_children_of_threads_that_ran(self, proc: FakeProc) -> None:
        proc.task(PID)
        proc.starts(PID, 21, 22)
        tasks = listed(proc)
        first = tasks.new_children()
        proc.starts(PID, 21, 22, 23)
        quiet = tasks.new_children()
        proc.task(PID, ran_ns=1)
        proc.starts(PID, 21, 22, 23)
        tasks.advance(s(2))

        assert (first, quiet, tasks.new_children()) == ([21, 22], [], [21, 22, 23])


class TestTheKernel:
    def test_counts_a_thread_that_computes(self) -> None:
        tids: list[int] = []
        is_over = threading.Event()

        def burn() -> None:
            tids.append(threading.get_native_id())
            while not is_over.is_set():
                pass

        thread = threading.Thread(target=burn)
        thread.start()
        try:
            tasks, began_ns = ProcessTasks(os.getpid(), KeptFiles()), time.monotonic_ns()
            tasks.list_threads()
            tasks.advance(began_ns)
            time.sleep(0.3)
            tasks.advance(now_ns := time.monotonic_ns())
            burner = tasks.main(tids[0], Span(began_ns, now_ns), with_state=True, may_wait=True)
        finally:
            is_over.set()
            thread.join()
            tasks.close()

        assert burner is not None
        assert burner.wanted_cores > 0.7
        assert burner.state == "R"


class TestParsing:
    def test_a_stat_may_have_any_name(self) -> None:
        raw = b"7 (x) R 1 (y)) D 1 2 3 4 5 6 7 8 " + b"9 0 0 0 0 0 0 0 0 0 300 0 0"

        reported = parse_stat(raw)

        assert (reported.state, reported.major_faults) == ("D", 9)
        assert reported.started_s == 300 / os.sysconf("SC_CLK_TCK")

    @pytest.mark.parametrize("raw", [b"", b"7 (x) R 1 2", b"7 x R"])
    def test_another_file_is_no_stat(self, raw: bytes) -> None:
        with pytest.raises(ValueError, match=r".+"):
            parse_stat(raw)

    def test_a_status_has_the_inner_number(self) -> None:
        assert inner_number(b"Name:\tx\nNSpid:\t4711\t7\nFoo:\t1\n") == 7
        assert inner_number(b"Name:\tx\n") is None
