"""Tests of the cores that workers want, and get."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpumon.sources.stacks.worker_cores import CoresOfProcess, CoresOfTree, WorkerCores
from tests.builders.proc import PID, FakeProc
from tests.builders.time import s
from tests.processes import ending

MS = 1_000_000


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path / "proc")


class TestTheCores:
    def test_are_time_on_a_core_and_in_the_queue(self, proc: FakeProc) -> None:
        proc.task(PID)
        proc.task(20)
        proc.starts(PID, 20)
        cores = WorkerCores(PID, str(proc.folder))

        assert cores.measure(s(1)) is None
        proc.task(PID, ran_ns=200 * MS)
        proc.task(20, ran_ns=900 * MS, queued_ns=600 * MS)

        assert cores.measure(s(2)) == CoresOfTree(
            s(1), s(2), CoresOfProcess(PID, 0.2, 0.2), (CoresOfProcess(20, 1.5, 0.9),)
        )
        cores.close()

    def test_of_a_process_that_ends_are_unknown(self, proc: FakeProc) -> None:
        proc.task(PID)
        cores = WorkerCores(PID, str(proc.folder))
        cores.measure(s(1))
        proc.ends(PID)

        assert cores.measure(s(2)) is None
        assert cores.measure(s(3)) is None
        cores.close()

    def test_of_a_kernel_without_such_counters_are_unknown(self, proc: FakeProc) -> None:
        (proc.task(PID) / "schedstat").unlink()
        cores = WorkerCores(PID, str(proc.folder))

        assert [cores.measure(s(at)) for at in (1, 2)] == [None, None]

    def test_of_two_workers_on_one_core_are_wanted_twice(self) -> None:
        core = min(os.sched_getaffinity(0))
        spin = f"import os\nos.sched_setaffinity(0, [{core}])\nwhile True: pass"
        command = [sys.executable, "-c", spin]
        with ending(subprocess.Popen(command)) as one, ending(subprocess.Popen(command)) as two:
            cores = WorkerCores(os.getpid())
            cores.measure(time.monotonic_ns())
            time.sleep(0.5)
            cores.measure(time.monotonic_ns())
            time.sleep(1.0)
            found = cores.measure(time.monotonic_ns())
            cores.close()

        assert found is not None
        ours = [worker for worker in found.workers if worker.pid in (one.pid, two.pid)]
        assert sum(worker.wanted_cores for worker in ours) == pytest.approx(2, abs=0.3)
        assert sum(worker.got_cores for worker in ours) < 1.1
