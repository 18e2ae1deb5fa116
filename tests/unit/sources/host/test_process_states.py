"""Tests of processes that cannot run: stopped by a signal, or frozen with their cgroup."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gpumon.core.phase import TrainingPhase
from gpumon.core.ring_format.events import RingEvent, RingKind, RingReading, RingRecords
from gpumon.core.waits.evidence import ProcessState
from gpumon.sources.host.kept_files import KeptFiles
from gpumon.sources.host.process_states import ProcessStates
from tests.builders.proc import PID, FakeProc, reading_of
from tests.builders.time import s
from tests.processes import ending
from tests.waiting import until

STOPPED = ProcessState(is_stopped=True)
WROTE = RingRecords.of([RingEvent(RingKind.STEP, 1, TrainingPhase.OTHER, 1)])


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    made = FakeProc(tmp_path / "proc")
    made.task(PID)
    return made


@pytest.fixture
def states(proc: FakeProc, tmp_path: Path) -> ProcessStates:
    return ProcessStates(KeptFiles(), str(proc.folder), str(tmp_path / "cgroup"))


def state_of(states: ProcessStates, reading: RingReading, at_s: float = 1) -> ProcessState | None:
    return states.inspect([reading], s(at_s)).get(reading.key)


def in_cgroup(proc: FakeProc, tmp_path: Path, lines: str, file: str, text: str) -> Path:
    (proc.folder / str(PID) / "cgroup").write_text(lines)
    path = tmp_path / "cgroup" / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return path


class TestAProcess:
    @pytest.mark.parametrize(("letter", "is_stopped"), [("T", True), ("t", False), ("S", False)])
    def test_is_stopped_by_a_signal_and_not_by_a_debugger(
        self, proc: FakeProc, states: ProcessStates, letter: str, is_stopped: bool
    ) -> None:
        proc.task(PID, state=letter)

        assert state_of(states, reading_of()) == (STOPPED if is_stopped else None)

    @pytest.mark.parametrize(
        ("lines", "file", "frozen", "thawed"),
        [
            ("0::/job\n", "job/cgroup.events", "populated 1\nfrozen 1\n", "frozen 0\n"),
            ("0::/job\n", "unified/job/cgroup.events", "frozen 1\n", "populated 1\nfrozen 0\n"),
            ("6:freezer:/job\n", "freezer/job/freezer.state", "FROZEN\n", "THAWED\n"),
            ("6:freezer:/job\n", "freezer/job/freezer.state", "FROZEN\n", "FREEZING\n"),
        ],
    )
    def test_is_stopped_while_its_cgroup_is_frozen(
        self, proc: FakeProc, states: ProcessStates, tmp_path: Path,
        lines: str, file: str, frozen: str, thawed: str,
    ) -> None:  # fmt: skip
        path = in_cgroup(proc, tmp_path, lines, file, frozen)
        assert state_of(states, reading_of(), 1) == STOPPED
        path.write_text(thawed)
        assert state_of(states, reading_of(), 2) is None

    def test_of_another_namespace_is_not_frozen(
        self, proc: FakeProc, states: ProcessStates, tmp_path: Path
    ) -> None:
        in_cgroup(proc, tmp_path, "0::/../../job\n", "job/cgroup.events", "frozen 1\n")

        assert state_of(states, reading_of()) is None

    def test_is_found_in_a_new_cgroup_within_a_minute(
        self, proc: FakeProc, states: ProcessStates, tmp_path: Path
    ) -> None:
        in_cgroup(proc, tmp_path, "0::/a\n", "a/cgroup.events", "frozen 0\n")
        assert state_of(states, reading_of(), 1) is None
        in_cgroup(proc, tmp_path, "0::/b\n", "b/cgroup.events", "frozen 1\n")
        assert state_of(states, reading_of(), 61) == STOPPED

    @pytest.mark.parametrize(
        "reading",
        [
            reading_of(events=WROTE),
            reading_of(alive=False),
            reading_of(is_pid_seen=False),
        ],
        ids=["writes", "is gone", "is in another namespace"],
    )
    def test_is_not_inspected_if_it(
        self, proc: FakeProc, states: ProcessStates, reading: RingReading
    ) -> None:
        proc.task(PID, state="T")

        assert state_of(states, reading) is None

    def test_that_ended_or_is_unreadable_is_skipped(
        self, proc: FakeProc, states: ProcessStates
    ) -> None:
        (proc.folder / str(PID) / "stat").write_text("garbage")
        assert state_of(states, reading_of()) is None
        proc.ends(PID)
        assert state_of(ProcessStates(KeptFiles(), str(proc.folder)), reading_of()) is None


class TestTheFunctionItSleepsIn:
    def test_is_read_after_ten_quiet_seconds(self, proc: FakeProc, states: ProcessStates) -> None:
        proc.task(PID, wchan="nfs_wait_bit_killable")

        assert state_of(states, reading_of(), 1) is None
        assert state_of(states, reading_of(), 10) is None
        assert state_of(states, reading_of(), 11) == ProcessState(False, "nfs_wait_bit_killable")


class TestManyRuns:
    def test_of_one_user_do_not_displace_another(
        self, proc: FakeProc, states: ProcessStates
    ) -> None:
        readings = [replace(reading_of(PID + at), key=str(at), owner_uid=1) for at in range(200)]
        readings.append(replace(reading_of(PID + 200), key="other", owner_uid=2))
        for reading in readings:
            proc.task(reading.host_pid, state="T")

        assert "other" in states.inspect(readings, s(1))


class TestARealProcess:
    def test_is_found_stopped_and_running_again(self) -> None:
        states = ProcessStates(KeptFiles())
        with ending(subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1)) as process:
            reading = reading_of(process.pid)
            assert state_of(states, reading) is None
            process.send_signal(signal.SIGSTOP)
            assert until(lambda: state_of(states, reading) == STOPPED)
            process.send_signal(signal.SIGCONT)
            assert until(lambda: state_of(states, reading) is None)
