"""Tests of inspecting one run: the process that wrote the ring, its descendants, and no other."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from math import floor
from pathlib import Path

import pytest

from gpumon.core.waits.evidence import HostEvidence
from gpumon.sources.host import run_inspection
from gpumon.sources.host.kept_files import KeptFiles
from gpumon.sources.host.machine_totals import MachineRates
from gpumon.sources.host.process_tasks import Span
from gpumon.sources.host.run_inspection import (
    MOST_WORKERS,
    NotOursError,
    ProcessTree,
    RunInspection,
)
from tests.builders.proc import PID, FakeProc, reading_of
from tests.builders.time import s
from tests.other_users import as_root, become
from tests.processes import ending
from tests.programs import ran

IDLE = MachineRates(disk_busy_ratio=0.0)
BUSY = MachineRates(disk_busy_ratio=0.9)
TICKS = os.sysconf("SC_CLK_TCK")


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    proc = FakeProc(tmp_path / "proc")
    proc.task(PID)
    return proc


def inspection_of(proc: FakeProc, **reading: object) -> RunInspection:
    return RunInspection(reading_of(**reading), KeptFiles(), str(proc.folder))  # type: ignore[arg-type]


def inspect(
    inspection: RunInspection, at_s: float, machine: MachineRates = IDLE, tid: int | None = None
) -> HostEvidence | None:
    return inspection.inspect(s(at_s), tid, machine, waiting_ratio=0.8, is_waiting=True)


class TestTheFirstInspection:
    @pytest.mark.parametrize("into_a_hundredth_s", [0.0, 0.009])
    def test_of_a_new_run_covers_the_processes_that_it_started(
        self, proc: FakeProc, into_a_hundredth_s: float
    ) -> None:
        now_ns = time.monotonic_ns()
        boot_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        ticks = floor((boot_s - 0.2) * TICKS)
        # The kernel cuts off what is beyond a hundredth.
        ring_began_ns = now_ns - s(boot_s - ticks / TICKS - into_a_hundredth_s)
        proc.task(PID, ran_ns=s(9))
        proc.task(PID, 8, ran_ns=s(0.1), began_ticks=ticks)
        proc.task(21, ran_ns=s(0.1), state="D", began_ticks=ticks)
        proc.starts(PID, 21)
        ring = reading_of(read_at_ns=now_ns)
        ring = ring._replace(facts=replace(ring.facts, started_ns=ring_began_ns))
        inspection = RunInspection(ring, KeptFiles(), str(proc.folder))

        # How busy a disk is needs two looks, too.
        evidence = inspection.inspect(
            now_ns, None, MachineRates(), waiting_ratio=0.5, is_waiting=True
        )

        assert evidence is not None
        assert evidence.start_ns == ring_began_ns
        assert evidence.main is not None
        tasks = (evidence.main, *evidence.threads, *evidence.workers)
        began = pytest.approx(s(0.1) / (now_ns - ring_began_ns))
        assert [one.on_cpu_cores for one in tasks] == [0.0, began, began]
        assert evidence.workers[0].state == "D"
        assert evidence.main is not None
        assert evidence.main.on_cpu_cores == 0.0  # what it counts is older than the training


class TestAnInspection:
    def test_counts_a_new_worker_from_its_start(self, proc: FakeProc) -> None:
        inspection = inspection_of(proc)
        inspect(inspection, 1)
        began_s = time.clock_gettime(time.CLOCK_BOOTTIME) + 1
        ticks = round(began_s * TICKS)
        proc.task(21, ran_ns=s(0.4), began_ticks=ticks)
        proc.task(PID, ran_ns=1)
        proc.starts(PID, 21)

        evidence = inspect(inspection, 2)

        assert evidence is not None
        assert [one.on_cpu_cores for one in evidence.workers] == [pytest.approx(0.4)]

    def test_reads_io_only_while_a_disk_is_busy(self, proc: FakeProc) -> None:
        inspection = inspection_of(proc)
        read = []
        for second, machine in enumerate((IDLE, BUSY, BUSY, IDLE, BUSY, BUSY), start=1):
            proc.reads(PID, 1_000_000 * second)
            proc.task(PID, faults=10 * second)
            evidence = inspect(inspection, second, machine)
            read.append(evidence and evidence.read_bytes_per_second)

        assert read == [None, 1_000_000, 1_000_000, None, None, 1_000_000]

    def test_has_the_cores_that_the_run_may_use(self) -> None:
        inspection = RunInspection(reading_of(os.getpid()), KeptFiles())
        inspect(inspection, 1)
        evidence = inspect(inspection, 2)
        inspection.close()

        assert evidence is not None
        assert evidence.usable_cores is not None
        assert 0 < evidence.usable_cores <= len(os.sched_getaffinity(0))

    def test_distinguishes_the_training_thread_from_the_others(self, proc: FakeProc) -> None:
        proc.task(PID, 8)
        inspection = inspection_of(proc)
        inspect(inspection, 1)
        proc.task(PID, ran_ns=s(0.1))
        proc.task(PID, 8, ran_ns=s(0.7))

        evidence = inspect(inspection, 2, tid=8)

        assert evidence is not None
        assert evidence.main is not None
        assert evidence.main.on_cpu_cores == pytest.approx(0.7)
        assert [one.on_cpu_cores for one in evidence.threads] == [pytest.approx(0.1)]


class TestAPid:
    def test_of_a_container_is_matched_by_its_inner_number(self, proc: FakeProc) -> None:
        proc.task(PID, inner=7)
        proc.task(PID, 8, inner=12)
        inspection = inspection_of(proc, inner=7)
        inspect(inspection, 1)
        proc.task(PID, 8, ran_ns=s(0.6), inner=12)

        evidence = inspect(inspection, 2, tid=12)

        assert evidence is not None
        assert evidence.main is not None
        assert evidence.main.on_cpu_cores == pytest.approx(0.6)

    def test_that_was_reused_is_refused(self, proc: FakeProc) -> None:
        in_a_minute = time.clock_gettime(time.CLOCK_BOOTTIME) + 60
        proc.task(PID, began_ticks=round(in_a_minute * TICKS))

        with pytest.raises(NotOursError, match="not the one"):
            inspection_of(proc)

    def test_that_is_not_visible_is_refused(self, proc: FakeProc) -> None:
        with pytest.raises(NotOursError, match="not visible"):
            inspection_of(proc, is_pid_seen=False)

    def test_of_another_user_is_refused(self, proc: FakeProc) -> None:
        if os.geteuid() == 0:
            os.chown(proc.folder / str(PID), 1, 1)

        with pytest.raises(NotOursError, match="another user"):
            inspection_of(proc, owner_uid=4_242)

    def test_of_another_namespace_is_refused(self, proc: FakeProc) -> None:
        proc.task(PID, inner=9)

        with pytest.raises(NotOursError, match="not the one"):
            inspection_of(proc, inner=7)


CPU = "import subprocess, sys; subprocess.Popen([sys.executable, '-S', '-c', 'while True: pass'])"
GIL = """
import threading
def burn():
    while True:
        pass
for _ in range(3):
    threading.Thread(target=burn, daemon=True).start()
"""
DISK = """
import mmap, os, sys
if os.fork() == 0:
    file, block = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, 1 << 20)
    while True:
        for at in range(64):
            os.preadv(file, [block], at << 20)
"""
WATCH = """
import sys, time
from dataclasses import replace
for pid in sys.argv[1:]:
    files = KeptFiles()
    machine = MachineTotals()
    look, looks = RunInspection(reading_of(int(pid), owner_uid=0), files), []
    for _ in range(5):
        now_ns = time.monotonic_ns()
        rates = machine.advance(now_ns, with_networks=False)
        seen = look.inspect(now_ns, None, rates, waiting_ratio=0.8, is_waiting=True)
        looks += [] if seen is None else [seen]
        time.sleep(0.4)
    print(diagnose_wait(looks).reasons[0].value, seen.read_bytes_per_second)
"""
IMPORTS = """
from gpumon.core.waits.wait_rules import diagnose_wait
from gpumon.sources.host.kept_files import KeptFiles
from gpumon.sources.host.machine_totals import MachineTotals
from gpumon.sources.host.run_inspection import RunInspection
from tests.builders.proc import reading_of
"""


@pytest.fixture
def pids_of_runs(tmp_path: Path) -> Iterator[list[int]]:
    """Three runs of root: short of CPU, of the GIL, of a disk."""
    file = tmp_path / "cold"
    file.write_bytes(os.urandom(64 << 20))
    with ExitStack() as around:
        pids = []
        for program in (CPU, GIL, DISK):
            words = [sys.executable, "-S", "-c", f"{program}\nimport time; time.sleep(60)"]
            process = subprocess.Popen([*words, str(file)], start_new_session=True)
            around.enter_context(ending(process))
            around.callback(os.killpg, process.pid, 9)
            pids.append(process.pid)
        time.sleep(0.3)
        yield pids


@as_root
@pytest.mark.slow
@pytest.mark.measured
def test_another_user_sees_cpu_gil_and_disk_waits(
    pids_of_runs: list[int],
) -> None:
    """As the shipped unit runs: a user of its own without any capability."""
    leaves = become(imports="psutil, gpumon, tests")
    program = f"{IMPORTS}{leaves}{WATCH}"

    reported = ran(sys.executable, "-c", program, *map(str, pids_of_runs), timeout_s=60)

    assert reported.returncode == 0, reported.stderr
    reasons, read = zip(*(line.split() for line in reported.stdout.splitlines()), strict=True)
    assert reasons == ("cpu_bound", "gil_bound", "disk_bound")
    assert set(read) == {"None"}


PARENT = """
import subprocess, sys
child = "import subprocess as s; p = s.Popen(['sleep', '60']); print(p.pid, flush=True); p.wait()"
print(subprocess.Popen([sys.executable, "-S", "-c", child]).pid, flush=True)
input()
"""


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
        monkeypatch.setattr(run_inspection, "MOST_IN_ALL", 8)
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


class TestTheKernelsListOfChildren:
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
