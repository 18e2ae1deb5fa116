"""One folder of rings, several users: what one of them does there costs the others nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.core.clock import NS_PER_S
from gpumon.core.ring.format import RING_BYTES
from gpumon.sources.rings.phase_rings import PhaseRingReader
from tests.daemon import RunningDaemon
from tests.neighbours import NOBODY, as_root, become, shared_runtime_folder
from tests.patience import PATIENCE_S, wait_until
from tests.trainings import ROOT, TRAINING, process, read, reader_of

SOMEBODY = 54_321

JUNK = """
from pathlib import Path
import sys
phases = Path(sys.argv[1]) / "phases"
for number in range(int(sys.argv[2])):
    (phases / sys.argv[3].format(number)).write_bytes(sys.argv[4].encode())
print("there", flush=True)
sys.stdin.read()
"""
"""So many files of that name and content, made by whoever runs it."""

MANY = """
made = []
for number in range(int(sys.argv[2])):
    facts = run_facts(run=f"run-{number}", pid=100_000 + number, boot_id=read_boot_id())
    made.append(sparse_ring(Path(sys.argv[1]) / "phases", facts))
print("there", flush=True)
sys.stdin.read()
"""


def as_user(uid: int, code: str, imports: str = "trainer_hooks") -> str:
    return become(uid, imports) + code


def many_rings_of(uid: int) -> str:
    """A program that holds many living rings as that user."""
    modules = "sys, tests.builders_ring, gpumon.sources.system_clock"
    names = (
        "from pathlib import Path\n"
        "from gpumon.sources.system_clock import read_boot_id\n"
        "from tests.builders_ring import run_facts, sparse_ring\n"
    )
    return become(uid, modules) + names + MANY


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """In memory, as /run is: there a folder's newest names are listed first."""
    if os.access("/dev/shm", os.W_OK):
        monkeypatch.setattr(tempfile, "tempdir", "/dev/shm")
    with shared_runtime_folder() as runtime:
        yield runtime


def pids(reader: PhaseRingReader) -> set[int]:
    return {run.host_pid for run in read(reader).rings if run.alive}


def read_until_listed(reader: PhaseRingReader, ticks: int = 16) -> None:
    """A folder of thousands of names takes some ticks to list."""
    for _ in range(ticks):
        read(reader)


@as_root
class TestFilesOfANeighbour:
    @pytest.mark.parametrize("name", ["junk-{}", "{}-1.ring"])
    def test_hide_no_training_that_runs(self, shared: Path, name: str) -> None:
        reader = reader_of(shared)
        junk = as_user(NOBODY, JUNK)
        with process(TRAINING, shared) as before:
            read(reader)
            with process(junk, shared, str(shared), "5000", name, ""):
                during = [pids(reader) for _ in range(8)]
                with process(TRAINING, shared) as after:
                    read_until_listed(reader)
                    found = pids(reader)

        assert during == [{before.pid}] * 8
        assert found == {before.pid, after.pid}

    def test_that_are_no_rings_are_not_even_told(self, shared: Path) -> None:
        reader = reader_of(shared)
        with process(as_user(NOBODY, JUNK), shared, str(shared), "5000", "junk-{}", ""):
            read_until_listed(reader)
            told = read(reader)

        assert (told.rejected, told.message, told.left_out) == (0, None, ())

    def test_beyond_his_part_are_told_with_his_uid_and_are_no_failure(self, shared: Path) -> None:
        reader = reader_of(shared)
        junk = as_user(NOBODY, JUNK)
        with process(TRAINING, shared):
            read(reader)
            with process(junk, shared, str(shared), "5000", "{}-1.ring", "garbage"):
                read_until_listed(reader)
                told = read(reader)

        assert told.left_out == ((NOBODY, 5_001 - 256),)
        assert told.message == (
            f"4,745 phase rings are not read, for there are more than 256: 4,745 of uid {NOBODY}"
        )
        assert told.is_whole
        assert told.rejected <= 255

    @pytest.mark.usefixtures("small_heap")
    def test_are_read_no_more_often_than_there_are_places(self, shared: Path) -> None:
        reader = reader_of(shared)
        with process(as_user(NOBODY, JUNK), shared, str(shared), "20000", "{}-1.ring", ""):
            read(reader)
            spent = []
            for _ in range(40):
                began_s = time.process_time()
                read(reader)
                spent.append(time.process_time() - began_s)

        assert max(spent) < 0.1
        assert sum(spent[-10:]) / 10 < 0.01  # listed by now: nothing has changed


@as_root
class TestRingsOfANeighbour:
    def test_keep_no_new_one_of_another_user_from_being_read(self, shared: Path) -> None:
        reader = reader_of(shared)
        with process(many_rings_of(NOBODY), shared, str(shared), "300") as many:
            read(reader)
            with process(as_user(SOMEBODY, TRAINING), shared) as honest:
                found = read(reader)

        alive = [run for run in found.rings if run.alive]
        assert honest.pid in {run.host_pid for run in alive}
        assert sum(run.host_pid == many.pid for run in alive) == 255
        assert found.left_out == ((NOBODY, 45),)
        assert found.is_whole

    def test_push_out_none_that_is_within_its_owners_part(self, shared: Path) -> None:
        reader = reader_of(shared)
        with process(many_rings_of(SOMEBODY), shared, str(shared), "128") as own:
            read(reader)
            with process(many_rings_of(NOBODY), shared, str(shared), "300"):
                found = [read(reader) for _ in range(3)]

        for reading in found:
            assert sum(run.host_pid == own.pid for run in reading.rings) == 128
            assert len(reading.rings) == 256


@as_root
class TestFoldersOfANeighbour:
    @pytest.mark.parametrize("name", ["gpumon-{:05}", "gpumon-0x{:03}", "gpumon-{:03}-65534"])
    def test_that_have_other_users_names_hide_no_training(self, shared: Path, name: str) -> None:
        for number in range(300):  # as in /tmp, where anybody may
            (shared / name.format(number)).mkdir()
            os.chown(shared / name.format(number), NOBODY, NOBODY)
        own = shared / f"gpumon-{SOMEBODY}"
        own.mkdir()
        os.chown(own, SOMEBODY, SOMEBODY)
        reader = reader_of(shared / "gpumon-*")
        with process(as_user(SOMEBODY, TRAINING), own) as training:
            assert pids(reader) == {training.pid}


@as_root
class TestADaemonBesideAGreedyNeighbour:
    def test_tells_whose_rings_are_left_out_and_that_nothing_failed(
        self, tmp_path: Path, shared: Path
    ) -> None:
        words = ("--source", f"follow:{tmp_path / 'busy.jsonl'}", "--period", "0.25")
        daemon = RunningDaemon(
            tmp_path, *words, environ={"GPUMON_RUNTIME_DIR": str(shared)}, ready=False
        )
        daemon.runtime_dir = shared
        (tmp_path / "busy.jsonl").touch()
        with daemon, process(TRAINING, shared):
            wait_until(daemon.state_file.exists)
            daemon.wait_for(lambda state: any(run["alive"] for run in state["runs"]))
            junk = as_user(NOBODY, JUNK)
            with process(junk, shared, str(shared), "5000", "{}-1.ring", ""):
                series = f'gpumon_phase_rings_left_out{{uid_of_owner="{NOBODY}"}}'
                wait_until(lambda: series in daemon.metrics(), patience_s=20)
                wait_until(lambda: daemon.metrics()[series] == 5_001 - 256, patience_s=20)
                metrics, report, state = daemon.metrics(), daemon.report(), daemon.state()

        assert [run["alive"] for run in state["runs"]] == [True]
        assert metrics['gpumon_collector_success{collector="phase_rings"}'] == 1
        told = f"4,745 phase rings are not read, for there are more than 256: 4,745 of uid {NOBODY}"
        assert any(told in note for note in report["notes"])
        assert f"phase_rings: {told}" in daemon.log()


@as_root
class TestTheOwnerOfTheFolder:
    def test_removes_rings_of_any_user_that_ended_a_quarter_of_an_hour_ago(
        self, shared: Path
    ) -> None:
        os.chown(shared / "phases", NOBODY, NOBODY)
        with process(as_user(SOMEBODY, TRAINING), shared):
            pass
        (ring,) = (shared / "phases").iterdir()
        look = (
            become(
                NOBODY, "sys, time, gpumon.sources.rings.phase_rings, gpumon.sources.system_clock"
            )
            + "reader = gpumon.sources.rings.phase_rings.PhaseRingReader([sys.argv[1]],"
            " boot_id=gpumon.sources.system_clock.read_boot_id())\n"
            "now_ns = time.monotonic_ns()\n"
            f"for later_ns in (0, {15 * 60 * NS_PER_S}):\n"
            "    print(len(reader.read(now_ns + later_ns).rings))\n"
        )

        seen = subprocess.run(
            [sys.executable, "-c", look, str(shared)],
            cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=True,
        )  # fmt: skip

        assert seen.stdout.split() == ["1", "0"]
        assert not ring.exists()

    def test_frees_what_the_training_had_taken(self, shared: Path) -> None:
        with process(as_user(SOMEBODY, TRAINING), shared):
            assert [path.stat().st_size for path in (shared / "phases").iterdir()] == [RING_BYTES]
        reader = reader_of(shared)
        now_ns = time.monotonic_ns()
        reader.read(now_ns)
        reader.read(now_ns + 15 * 60 * NS_PER_S)

        assert list((shared / "phases").iterdir()) == []


class TestAFileThatIsTakenAway:
    def test_from_a_training_that_lives_does_not_end_it(self, tmp_path: Path) -> None:
        reader = reader_of(tmp_path)
        before = _open_files()
        with process(TRAINING, tmp_path) as training:
            read(reader)
            for path in (tmp_path / "phases").iterdir():
                path.unlink()
            (tmp_path / "phases").rmdir()
            living = [read(reader) for _ in range(3)]
        ended_ns = time.monotonic_ns()
        ended = [reader.read(ended_ns + n) for n in (0, 14 * 60 * NS_PER_S, 15 * 60 * NS_PER_S)]

        assert [[run.host_pid for run in reading.rings if run.alive] for reading in living] == [
            [training.pid]
        ] * 3
        assert [[run.steps for run in reading.rings] for reading in ended] == [[3], [3], []]
        assert _open_files() == before

    def test_and_made_anew_gives_room_to_the_next_training_too(self, tmp_path: Path) -> None:
        reader = reader_of(tmp_path)
        with process(TRAINING, tmp_path) as first:
            read(reader)
            for path in (tmp_path / "phases").iterdir():
                path.unlink()
            (tmp_path / "phases").rmdir()
            read(reader)
            with process(TRAINING, tmp_path) as second:
                assert pids(reader) == {first.pid, second.pid}
        reader.close()

    def test_by_a_training_that_takes_its_ring_back_is_forgotten(self, tmp_path: Path) -> None:
        """A process that only asked what it would tell has never been a run."""
        reader = reader_of(tmp_path)
        code = (
            "import sys\n"
            "from trainer_hooks.ring.process_ring import process_ring\n"
            "ring = process_ring()\n"
            "print('there', flush=True)\n"
            "sys.stdin.readline()\n"
            "ring.withdraw()\n"
            "print('taken back', flush=True)\n"
            "sys.stdin.readline()\n"
        )
        with process(code, tmp_path) as training:
            seen = read(reader).rings
            assert training.stdin is not None
            assert training.stdout is not None
            print("go", file=training.stdin, flush=True)
            assert training.stdout.readline() == "taken back\n"
            after = [read(reader).rings for _ in range(2)]

        assert len(seen) == 1
        assert after == [(), ()]


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
