"""Tests of a run's processes: found by descent, and bounded."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from gpumon.sources.host import process_tree
from gpumon.sources.host.kept_files import KeptFiles
from gpumon.sources.host.process_tasks import Span
from gpumon.sources.host.process_tree import MOST_WORKERS, ProcessTree
from tests.builders.proc import PID, FakeProc
from tests.builders.time import s
from tests.processes import ending

PARENT = """
import subprocess, sys
child = "import subprocess as s; p = s.Popen(['sleep', '60']); print(p.pid, flush=True); p.wait()"
print(subprocess.Popen([sys.executable, "-S", "-c", child]).pid, flush=True)
input()
"""


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    proc = FakeProc(tmp_path / "proc")
    proc.task(PID)
    return proc


def tree_of(proc: FakeProc) -> ProcessTree:
    return ProcessTree(PID, KeptFiles(), str(proc.folder))


class TestWorkers:
    def test_that_end_are_closed_and_new_ones_are_found(self, proc: FakeProc) -> None:
        proc.task(21)
        proc.starts(PID, 21)
        tree = tree_of(proc)
        for second in (1, 2, 3):
            tree.advance(s(second), None)
        proc.ends(21)
        proc.task(22)
        proc.task(PID, ran_ns=5)  # who starts a process runs
        proc.starts(PID, 22)
        tree.advance(s(3.1), None)  # notices that one is gone
        tree.advance(s(3.2), None)

        assert list(tree.workers) == [22]

    def test_are_bounded(self, proc: FakeProc) -> None:
        pids = range(10_000, 10_000 + 2 * MOST_WORKERS)
        for pid in pids:
            proc.task(pid)
        proc.starts(PID, *pids)
        tree = tree_of(proc)
        tree.advance(s(1), None)

        assert len(tree.workers) == MOST_WORKERS

    def test_have_a_bounded_number_of_threads(
        self, proc: FakeProc, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(process_tree, "MOST_IN_ALL", 8)
        pids = (21, 22, 23)
        for pid in pids:
            for tid in range(pid, 5 * pid, pid):
                proc.task(pid, tid)
        proc.starts(PID, *pids)
        tree = tree_of(proc)
        counts = []
        for second, pid in enumerate(pids, start=1):
            tree.advance(s(10 * second), None)
            counts.append([*map(len, tree)])
            for tid in range(1_000, 1_009):
                proc.task(pid, tid)  # and it starts more of them

        assert all(min(of_each) == 1 for of_each in counts)
        assert all(8 <= sum(of_each) <= 8 + len(pids) for of_each in counts)

    def test_count_a_thread_that_replaces_another(self, proc: FakeProc) -> None:
        proc.task(21)
        old = proc.task(21, 25)
        proc.starts(PID, 21)
        tree = tree_of(proc)
        tree.advance(s(1), None)
        (old / "schedstat").write_text("")  # as whoever has it open sees it
        shutil.rmtree(old)
        proc.task(21, 26)
        for second in (10, 20):
            tree.advance(s(second), None)
        proc.task(21, 26, ran_ns=s(0.5))
        tree.advance(s(21), None)

        look = tree.workers[21].whole(Span(s(20), s(21)), with_state=False, may_wait=False)

        assert look.on_cpu_cores == pytest.approx(0.5)

    def test_are_listed_less_often_over_time(self, proc: FakeProc) -> None:
        tree = tree_of(proc)

        listed = [second for second in range(1, 99) if tree.advance(s(second), None)]

        assert listed[:3] == [1, 2, 3]
        assert {late - early for early, late in pairwise(listed[9:])} == {10}


class TestTheKernel:
    def test_shows_two_generations_and_leaves_nothing_open(self) -> None:
        before = len([*Path("/proc/self/fd").iterdir()])
        parent = subprocess.Popen(
            [sys.executable, "-S", "-c", PARENT],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        with ending(parent):
            assert parent.stdout is not None
            child, grandchild = (int(parent.stdout.readline()) for _ in range(2))
            try:
                tree = ProcessTree(parent.pid, KeptFiles())
                tree.advance(time.monotonic_ns(), None)
                found = sorted(tree.workers)
                os.kill(grandchild, signal.SIGKILL)
                os.kill(child, signal.SIGKILL)
                for _ in range(20):
                    tree.advance(time.monotonic_ns(), None)
                    time.sleep(0.02)
                tree.close()
            finally:
                for pid in (child, grandchild):
                    if Path(f"/proc/{pid}").exists():
                        os.kill(pid, signal.SIGKILL)

        assert found == sorted([child, grandchild])
        assert parent.stdin is not None
        parent.stdin.close()
        parent.stdout.close()
        assert len([*Path("/proc/self/fd").iterdir()]) == before
