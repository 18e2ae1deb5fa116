"""One folder of rings, several users: what one of them does there costs the others nothing."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from subprocess import Popen

import pytest

from gpumon.sources.ring_reader.phase_rings import PhaseRingReader
from tests.call_count import count_calls
from tests.e2e.ring_programs import JUNK, MANY, THIRD_UID, by, daemon_in
from tests.other_users import OTHER_UID, as_root, shared_runtime_folder
from tests.training_processes import TRAINING, process, read, reader_of
from tests.waiting import until, wait_until

REPORTED = f"4,745 phase rings are not read, for there are more than 256: 4,745 of uid {OTHER_UID}"

MOST_CALLS = 15_000
"""For 512 names that are listed and 256 files that are tried: 10 ms, where a call takes 0.7 us."""


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """In memory, as /run is: there a folder's newest names are listed first."""
    if os.access("/dev/shm", os.W_OK):
        monkeypatch.setattr(tempfile, "tempdir", "/dev/shm")
    with shared_runtime_folder() as runtime:
        yield runtime


Started = Callable[..., AbstractContextManager["Popen[str]"]]


@pytest.fixture
def junk(shared: Path) -> Started:
    """Files that another user creates, with that name and content."""
    return lambda count, name="{}-1.ring", content="": process(
        by(OTHER_UID, JUNK), shared, str(shared), str(count), name, content
    )


@pytest.fixture
def many(shared: Path) -> Started:
    """Living rings of a user."""
    return lambda uid, count: process(by(uid, MANY), shared, str(shared), str(count))


def pids(reader: PhaseRingReader) -> set[int]:
    return {run.host_pid for run in read(reader).rings if run.alive}


def read_until_listed(reader: PhaseRingReader, ticks: int = 16) -> None:
    """A folder of thousands of names takes some ticks to list."""
    for _ in range(ticks):
        read(reader)


@as_root
class TestFilesOfAnotherUser:
    @pytest.mark.parametrize("name", ["junk-{}", "{}-1.ring"])
    def test_hide_no_living_run(self, shared: Path, junk: Started, name: str) -> None:
        reader = reader_of(shared)
        with process(TRAINING, shared) as before:
            read(reader)
            with junk(5000, name):
                during = [pids(reader) for _ in range(8)]
                with process(TRAINING, shared) as after:
                    read_until_listed(reader)
                    found = pids(reader)

        assert during == [{before.pid}] * 8
        assert found == {before.pid, after.pid}

    def test_are_read_no_more_often_than_there_are_places(
        self, shared: Path, junk: Started
    ) -> None:
        reader = reader_of(shared)
        with junk(5_000):
            read(reader)
            called = [count_calls(lambda: read(reader)) for _ in range(20)]

        assert max(called) < MOST_CALLS


@as_root
class TestRingsOfAnotherUser:
    def test_keep_no_new_one_of_another_user_from_being_read(
        self, shared: Path, many: Started
    ) -> None:
        reader = reader_of(shared)
        with many(OTHER_UID, 300) as his:
            read(reader)
            with process(by(THIRD_UID, TRAINING), shared) as honest:
                found = read(reader)

        alive = [run.host_pid for run in found.rings if run.alive]
        assert honest.pid in alive
        assert alive.count(his.pid) == 255
        assert found.left_out == ((OTHER_UID, 45),)
        assert found.is_whole


@as_root
class TestFoldersOfAnotherUser:
    @pytest.mark.parametrize("name", ["gpumon-{:05}", "gpumon-0x{:03}", "gpumon-{:03}-65534"])
    def test_that_have_other_users_names_hide_no_run(self, shared: Path, name: str) -> None:
        for number in range(300):  # as in /tmp, which all users may write
            (shared / name.format(number)).mkdir()
            os.chown(shared / name.format(number), OTHER_UID, OTHER_UID)
        own = shared / f"gpumon-{THIRD_UID}"
        own.mkdir()
        os.chown(own, THIRD_UID, THIRD_UID)
        reader = reader_of(shared / "gpumon-*")
        with process(by(THIRD_UID, TRAINING), own) as training:
            assert pids(reader) == {training.pid}


@as_root
class TestADaemonWithAGreedyUser:
    def test_shows_whose_rings_are_left_out_and_that_nothing_failed(
        self, tmp_path: Path, shared: Path, junk: Started
    ) -> None:
        spans = tmp_path / "busy.jsonl"
        spans.touch()
        series = f'gpumon_phase_rings_left_out{{uid_of_owner="{OTHER_UID}"}}'
        with daemon_in(shared, tmp_path, f"follow:{spans}") as daemon, process(TRAINING, shared):
            daemon.wait_for(lambda state: any(run["alive"] for run in state["runs"]))
            with junk(5000):
                wait_until(lambda: daemon.metrics().get(series) == 5_001 - 256, patience_s=40)
                metrics, report, state = daemon.metrics(), daemon.report(), daemon.state()

        assert [run["alive"] for run in state["runs"]] == [True]
        assert metrics['gpumon_collector_success{collector="phase_rings"}'] == 1
        assert any(REPORTED in note for note in report["notes"])
        assert f"phase_rings: {REPORTED}" in daemon.log()

    def test_shows_every_run_of_another_user_in_its_metrics(
        self, tmp_path: Path, shared: Path, many: Started
    ) -> None:
        spans = tmp_path / "busy.jsonl"
        spans.touch()
        left_out = f'gpumon_training_runs_left_out{{uid_of_owner="{OTHER_UID}"}}'
        with ExitStack() as stack:
            daemon = stack.enter_context(daemon_in(shared, tmp_path, f"follow:{spans}"))
            stack.enter_context(many(OTHER_UID, 300))
            wait_until(lambda: daemon.metrics().get(left_out, 0) > 100, patience_s=40)
            others = [
                stack.enter_context(process(by(THIRD_UID, TRAINING), shared)) for _ in range(3)
            ]
            wanted = {f'pid="{one.pid}"' for one in others}

            def shown() -> set[str]:
                series = [name for name in daemon.metrics() if "_training_run_info{" in name]
                return {pid for pid in wanted if any(pid in name for name in series)}

            until(lambda: shown() == wanted, within_s=40, every_s=0.05)

            assert shown() == wanted
            assert daemon.metrics()[left_out] > 100
