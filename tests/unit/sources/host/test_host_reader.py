"""Tests of host inspection: of runs that lose time, and of quiet ones that may be stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.owner_quotas import FairTurns
from gpumon.core.phase import TrainingPhase
from gpumon.core.ring_format.events import RingEvent, RingKind, RingReading, RingRecords
from gpumon.core.sample import BusySample, Device, Frame, GpuSample
from gpumon.core.waits.evidence import HostReading, ProcessState
from gpumon.sources.host.host_reader import HostReader, ProcessStates
from gpumon.sources.host.kept_files import KeptFiles
from tests.builders.proc import PID, FakeProc, reading_of
from tests.builders.time import s
from tests.processes import ending
from tests.waiting import until

WAIT, STEP, OTHER = TrainingPhase.INPUT_WAIT, TrainingPhase.TRAIN_STEP, TrainingPhase.OTHER


class Watched:
    """One run on a simulated machine, second by second."""

    def __init__(self, folder: Path) -> None:
        self.proc = FakeProc(folder)
        self.proc.task(PID)
        self.reader = HostReader(str(self.proc.folder))
        self.ring = reading_of()
        self.second = 0
        self.others: tuple[GpuSample, ...] = ()
        self.spent_ns: dict[TrainingPhase, int] = {}

    def passes(
        self, phase: TrainingPhase, *, for_s: float = 1.0, busy: float | None = 0.0, **ring: Any
    ) -> HostReading:
        """Let a second pass, with the run in that phase for ``for_s``; ``None``: no sample."""
        began_ns = s(self.second)
        self.second += 1
        reported = [(phase, began_ns), (OTHER, began_ns + s(for_s))][: 1 + (for_s < 1.0)]
        events = RingRecords.of(RingEvent(RingKind.ENTER, at_ns, one, 0) for one, at_ns in reported)
        spent_ns = dict(self.spent_ns)
        if for_s < 1.0:
            spent_ns[phase] = spent_ns.get(phase, 0) + s(for_s)
        self.ring = self.ring._replace(
            read_at_ns=s(self.second), events=events, phase_ns=spent_ns, **ring
        )
        self.spent_ns = {**spent_ns, phase: self.spent_ns.get(phase, 0) + s(for_s)}
        return self.inspect(busy, self.ring)

    def inspect(self, busy: float | None, *rings: RingReading) -> HostReading:
        now_ns = s(self.second)
        samples = () if busy is None else (BusySample(now_ns - s(1), now_ns, busy),)
        of_gpu = GpuSample(Device(uuid="GPU-0", index=0), busy=samples)
        others = () if busy is None else self.others
        return self.reader.inspect(rings, (Frame(now_ns, (of_gpu, *others)),), now_ns)


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path / "proc")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are read from here on."""
    paths: list[str] = []
    whole = KeptFiles.read

    def noted(self: KeptFiles, path: str, *max_bytes: int) -> bytes:
        paths.append(path)
        return whole(self, path, *max_bytes)

    monkeypatch.setattr(KeptFiles, "read", noted)
    return paths


class TestARunThatWaits:
    def test_is_inspected_from_its_second_tick_on(self, watched: Watched) -> None:
        reported = [watched.passes(WAIT) for _ in range(3)]

        assert [list(one.of_run) for one in reported] == [
            [],
            [watched.ring.key],
            [watched.ring.key],
        ]

    @pytest.mark.parametrize(("for_s", "inspected"), [(0.009, 0), (0.01, 1)])
    def test_is_inspected_from_a_hundredth_of_its_time_on(
        self, watched: Watched, for_s: float, inspected: int
    ) -> None:
        reported = [watched.passes(WAIT, for_s=for_s) for _ in range(3)]

        assert len(reported[-1].of_run) == inspected

    def test_has_its_waiting_ratio(self, watched: Watched) -> None:
        watched.passes(WAIT)
        (evidence,) = watched.passes(WAIT, for_s=0.3).of_run.values()

        assert evidence.waiting_ratio == pytest.approx(0.3)
        assert evidence.main is not None
        assert evidence.main.state is None  # it does not wait any more


class TestARunInItsSteps:
    def test_is_inspected_while_a_gpu_is_idle(self, watched: Watched) -> None:
        reported = [watched.passes(STEP, busy=0.5) for _ in range(2)]

        assert len(reported[-1].of_run) == 1

    def test_is_inspected_until_the_next_samples_if_a_gpu_was_idle(self, watched: Watched) -> None:
        levels = [0.5, None, None, None, 1.0, None, 1.0, 0.5, None]
        reported = [watched.passes(STEP, busy=level) for level in levels]

        assert [len(one.of_run) for one in reported] == [0, 1, 1, 1, 0, 0, 0, 0, 1]

    def test_is_inspected_while_any_gpu_was_idle_in_its_own_newest_samples(
        self, watched: Watched
    ) -> None:
        idle = GpuSample(Device(uuid="GPU-1", index=1), busy=(BusySample(0, s(1), 0.0),))
        read_later = idle._replace(busy=())
        reported = []
        for others in ((idle,), (read_later,), (read_later,), ()):
            watched.others = others
            reported.append(watched.passes(STEP, busy=1.0))

        assert [len(one.of_run) for one in reported] == [0, 1, 1, 0]

    def test_is_not_inspected_while_its_gpus_are_busy(
        self, watched: Watched, read: list[str]
    ) -> None:
        watched.passes(STEP, busy=1.0)
        read.clear()
        reported = [watched.passes(STEP, busy=0.97) for _ in range(3)]

        assert reported == [HostReading()] * 3
        assert read == []


class TestARunThatCannotBeInspected:
    def test_is_reported_and_tried_again_a_minute_later(self, watched: Watched) -> None:
        watched.proc.ends(PID)
        reported = [watched.passes(WAIT) for _ in range(2)]
        watched.proc.task(PID)
        watched.second += 60
        later = [watched.passes(WAIT) for _ in range(2)]

        assert all("resnet" in str(one.message) for one in reported)
        assert [len(one.of_run) for one in later] == [0, 1]
        assert later[-1].message is None


class TestManyRuns:
    """Nine runs that wait, more than one tick inspects."""

    def test_take_turns(self, watched: Watched) -> None:
        watched.reader._turns = FairTurns(3)
        inspected = [set(inspect_nine(watched, second).of_run) for second in range(1, 10)]

        assert [len(keys) for keys in inspected] == [0, 0, 0, 3, 3, 3, 3, 3, 3]
        assert set().union(*inspected[3:6]) == set().union(*inspected[6:9]) == NINE

    def test_of_one_user_leave_the_others_their_share(self, watched: Watched) -> None:
        watched.reader._turns = FairTurns(2)
        inspected = [inspect_nine(watched, second, {"8": 1001}).of_run for second in range(1, 6)]

        assert ["8" in keys for keys in inspected[1:]] == [True] * 4


NINE = {str(number) for number in range(9)}


def inspect_nine(
    watched: Watched, second: int, owners: Mapping[str, int] | None = None
) -> HostReading:
    """Inspect nine runs that wait, some with another owner."""
    watched.second = second
    events = RingRecords.of([RingEvent(RingKind.ENTER, 0, WAIT, 0)])
    rings = [
        watched.ring._replace(
            key=key, events=events, read_at_ns=s(second),
            owner_uid=(owners or {}).get(key, watched.ring.owner_uid),
        )
        for key in sorted(NINE)
    ]  # fmt: skip
    return watched.inspect(0.0, *rings)


class TestARunThatEnded:
    def test_leaves_nothing_open(self, watched: Watched) -> None:
        before = len([*Path("/proc/self/fd").iterdir()])
        watched.passes(WAIT)
        watched.passes(WAIT)
        watched.inspect(0.0, watched.ring._replace(alive=False, ended_ns=s(2)))

        assert len([*Path("/proc/self/fd").iterdir()]) == before
        watched.reader.close()
        assert len([*Path("/proc/self/fd").iterdir()]) == before


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


class TestAQuietProcess:
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

    def test_is_read_again_after_twenty_seconds(
        self, proc: FakeProc, states: ProcessStates
    ) -> None:
        proc.task(PID, wchan="pipe_read")
        for second in range(1, 12):
            state_of(states, reading_of(), second)
        proc.task(PID, wchan="futex_wait")

        slept = [state_of(states, reading_of(), second) for second in (20, 30, 35)]
        assert [one.sleeps_in for one in slept if one] == ["pipe_read", "pipe_read", "futex_wait"]


class TestARunThatIsQuietForLong:
    def test_is_looked_at_after_a_tenth_of_that_time_and_every_five_seconds(
        self, proc: FakeProc, states: ProcessStates
    ) -> None:
        proc.task(PID, state="S")
        for second in range(1, 101):
            state_of(states, reading_of(), second)
        proc.task(PID, state="T")

        stopped = [state_of(states, reading_of(), second) == STOPPED for second in range(101, 107)]
        assert sum(stopped) in range(1, 6)

        state_of(states, reading_of(events=WROTE), 107)
        assert state_of(states, reading_of(), 108) == STOPPED  # quiet for short: at once


class TestManyQuietRuns:
    def test_of_one_user_do_not_displace_another(
        self, proc: FakeProc, states: ProcessStates
    ) -> None:
        readings = [reading_of(PID + at)._replace(key=str(at), owner_uid=1) for at in range(200)]
        readings.append(reading_of(PID + 200)._replace(key="other", owner_uid=2))
        for reading in readings:
            proc.task(reading.host_pid, state="T")

        assert "other" in states.inspect(readings, s(1))


class TestARealQuietProcess:
    def test_is_found_stopped_and_running_again(self) -> None:
        states = ProcessStates(KeptFiles())
        with ending(subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1)) as process:
            reading = reading_of(process.pid)
            assert state_of(states, reading) is None
            process.send_signal(signal.SIGSTOP)
            assert until(lambda: state_of(states, reading) == STOPPED)
            process.send_signal(signal.SIGCONT)
            assert until(lambda: state_of(states, reading) is None)

    @pytest.mark.parametrize(
        ("root", "file", "frozen", "thawed"),
        [
            ("/sys/fs/cgroup/freezer", "freezer.state", "FROZEN", "THAWED"),
            ("/sys/fs/cgroup/unified", "cgroup.freeze", "1", "0"),
            ("/sys/fs/cgroup", "cgroup.freeze", "1", "0"),
        ],
        ids=["version 1", "version 2 with version 1", "version 2"],
    )
    def test_is_found_frozen_with_its_cgroup(
        self, root: str, file: str, frozen: str, thawed: str
    ) -> None:
        folder = Path(root, f"gpumon-test-{os.getpid()}")
        if not Path(root, "cgroup.procs").exists():
            pytest.skip(f"no cgroups are mounted at {root}")
        try:
            folder.mkdir()
        except OSError as error:
            pytest.skip(f"no cgroup can be made here: {error}")
        states = ProcessStates(KeptFiles())
        with ExitStack() as stack:
            stack.callback(folder.rmdir)
            started = subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1)
            reading = reading_of(stack.enter_context(ending(started)).pid)
            (folder / "cgroup.procs").write_text(str(started.pid))
            assert state_of(states, reading) is None
            stack.callback((folder / file).write_text, thawed)  # else it cannot end
            (folder / file).write_text(frozen)
            assert until(lambda: state_of(states, reading) == STOPPED)
            (folder / file).write_text(thawed)
            assert until(lambda: state_of(states, reading) is None)
