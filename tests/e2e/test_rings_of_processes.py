"""Rings of real processes: forked, executed, at full speed, in a container, of another version."""

from __future__ import annotations

import errno
import gc
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.core.phase import TrainingPhase
from gpumon.core.ring_format.events import RingEvent, RingKind
from gpumon.core.ring_format.format import RING_BYTES
from tests.builders.ring import of_version, only
from tests.daemon import RunningDaemon
from tests.e2e.ring_programs import answer
from tests.needs import needed
from tests.other_users import as_root, become, shared_runtime_folder
from tests.programs import ran, ran_python
from tests.training_processes import TRAINING, process, read, reader_of
from tests.waiting import PATIENCE_S, until

FULL_SPEED = """
import sys, time
from trainer_hooks.ring.process_ring import process_ring
writer = process_ring().writer
print("there", flush=True)
number, until = 0, time.monotonic() + 2.5
while time.monotonic() < until:
    for _ in range(500):
        number += 1
        writer.enter(number % 12, number % 3)
        writer.step(1, number % 7)
print(writer.steps, flush=True)
sys.stdin.read()
"""

SLOW_TO_GO = """
import atexit, sys, time
@atexit.register
def shut_down():  # before gpumon's, so it is called after it, as a framework's own end is
    print("going", flush=True)
    sys.stdin.read()
from trainer_hooks import phase, step
with phase("train_step"):
    step(8)
print("there", flush=True)
"""

FORKING = """
import os, sys, time
from trainer_hooks import phase, step
with phase("train_step"):
    child = os.fork()
    if child == 0:
        with phase("checkpoint"):
            step()
        os._exit(0)
    os.waitpid(child, 0)
sleeper = os.fork()
if sleeper == 0:
    time.sleep(0.3)
    os._exit(0)
print("there", flush=True)
sys.stdin.readline()
os.waitpid(sleeper, 0)
print("gone", flush=True)
sys.stdin.read()
"""

EXECUTES_ITSELF = """
import os, sys
from trainer_hooks import phase, step
step()
if len(sys.argv) == 1:
    code = open("/proc/self/cmdline").read().split("\\0")[2]
    os.execv(sys.executable, [sys.executable, "-c", code, "again"])
step()
print("there", flush=True)
sys.stdin.read()
"""

READ_AS_OTHER_USER = (
    become(imports="gpumon.sources.ring_reader.phase_rings, gpumon.sources.system_clock")
    + """
import sys, time
from gpumon.sources.ring_reader.phase_rings import PhaseRingReader
from gpumon.sources.system_clock import read_boot_id
reader = PhaseRingReader([sys.argv[1]], boot_id=read_boot_id())
reading = reader.read(time.monotonic_ns())
print(len(reading.rings), reading.rejected, reading.message)
"""
)


class TestARun:
    def test_that_takes_long_to_go_has_ended_before(self, tmp_path: Path) -> None:
        with process(SLOW_TO_GO, tmp_path) as training:
            assert training.stdout is not None
            assert training.stdout.readline() == "going\n"
            run = only(read(reader_of(tmp_path)))
            is_there = training.poll() is None

        assert is_there
        assert (run.alive, run.steps, run.samples) == (False, 1, 8)

    def test_that_forks_keeps_its_lock_and_its_phases(self, tmp_path: Path) -> None:
        reader = reader_of(tmp_path)
        with process(FORKING, tmp_path) as training:
            with_child = only(read(reader))
            assert answer(training) == "gone\n"
            childless = only(read(reader))
            training.send_signal(signal.SIGKILL)
            training.wait(PATIENCE_S)
            ended = only(read(reader))

        assert (with_child.host_pid, childless.alive, ended.alive) == (training.pid, True, False)
        assert childless.steps == 0
        assert TrainingPhase.CHECKPOINT not in childless.phase_ns
        assert len(list((tmp_path / "phases").iterdir())) == 1


@pytest.fixture
def small_heap() -> Iterator[None]:
    """What thousands of collected tests hold is no burden to whoever makes many objects now."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("small_heap")
def test_no_torn_record_is_ever_believed_while_a_process_writes_at_full_speed(
    tmp_path: Path,
) -> None:
    reader = reader_of(tmp_path)
    events: list[RingEvent] = []
    lost = last_sum_ns = 0
    reported = ""
    with process(FULL_SPEED, tmp_path) as training:
        assert training.stdout is not None
        os.set_blocking(training.stdout.fileno(), False)
        is_over = False
        while not is_over:
            reported = training.stdout.readline()
            is_over = bool(reported)  # asked first: then all that it wrote is read
            run = only(read(reader))
            events += run.events
            lost += run.lost_events
            sum_ns = sum(run.phase_ns.values())
            assert sum_ns >= last_sum_ns, "totals fell: a torn copy was believed"
            last_sum_ns = sum_ns
            time.sleep(0.001)

    steps = [event.value for event in events if event.kind is RingKind.STEP]
    assert run.steps == int(reported)
    assert len(steps) > 1_000
    assert steps == sorted(set(steps)), "a step was read twice, or out of order"
    assert steps[-1] == run.steps
    assert {event.kind for event in events} == {RingKind.ENTER, RingKind.STEP, RingKind.SAMPLES}
    assert {event.value for event in events if event.kind is RingKind.ENTER} <= {0, 1, 2}
    stamps = [event.at_ns for event in events]
    assert stamps == sorted(stamps)
    with_samples = sum(1 for number in range(1, run.steps + 1) if number % 7)
    written = 1 + 2 * run.steps + with_samples  # the first is START_UP
    assert lost + len(events) == written, "a record is read, or counted as lost"


@pytest.fixture
def shared_runtime() -> Iterator[Path]:
    with shared_runtime_folder() as runtime:
        yield runtime


class TestARunThatExecutesItself:
    def test_ends_one_run_and_begins_another_under_one_pid(self, tmp_path: Path) -> None:
        with process(EXECUTES_ITSELF, tmp_path) as training:
            rings = sorted(read(reader_of(tmp_path)).rings, key=lambda run: run.facts.started_ns)

        assert [(run.alive, run.steps) for run in rings] == [(False, 1), (True, 2)]
        assert {run.host_pid for run in rings} == {training.pid}


class TestARunInAPidNamespace:
    @pytest.fixture
    def unshare(self) -> tuple[str, ...]:
        """The command that starts a program in a new namespace."""
        command = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
        needed(command[0], "util-linux")
        tried = ran(*command, "true")
        if tried.returncode != 0:
            pytest.skip(f"not permitted here: {' '.join(command)} ({tried.stderr.strip()})")
        return command

    def test_is_known_by_the_pid_that_the_host_gives_it(
        self, tmp_path: Path, unshare: tuple[str, ...]
    ) -> None:
        with process(TRAINING, tmp_path, before=unshare) as outer:
            children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
            run = only(read(reader_of(tmp_path)))

        assert run.alive
        assert run.facts.pid == 1
        assert [run.host_pid] == [int(pid) for pid in children]

    def test_ends_when_the_container_does(self, tmp_path: Path, unshare: tuple[str, ...]) -> None:
        reader = reader_of(tmp_path)
        with process(TRAINING, tmp_path, before=unshare) as outer:
            alive = only(read(reader))
            outer.kill()
            outer.wait(PATIENCE_S)
            assert until(lambda: not only(read(reader)).alive)
            ended = only(read(reader))

        assert (ended.host_pid, ended.steps) == (alive.host_pid, 3)


@as_root
class TestWithoutPermission:
    def test_to_write_the_folder_a_run_goes_on_with_one_warning(self, shared_runtime: Path) -> None:
        (shared_runtime / "phases").chmod(0o555)
        environ = {"GPUMON_RUNTIME_DIR": str(shared_runtime)}
        done = ran_python("-c", become() + TRAINING, environ=environ)

        assert (done.returncode, done.stdout) == (0, "there\n")
        assert done.stderr.count("RuntimeWarning") == 1
        assert f" {shared_runtime}/phases " in done.stderr
        assert list((shared_runtime / "phases").iterdir()) == []

    def test_to_read_a_ring_a_daemon_reports_it_and_reads_the_others(
        self, shared_runtime: Path
    ) -> None:
        with (
            process(TRAINING, shared_runtime) as training,
            process(become() + TRAINING, shared_runtime),
        ):
            for ring in (shared_runtime / "phases").glob(f"{training.pid}-*"):
                ring.chmod(0o600)
            seen = ran_python("-c", READ_AS_OTHER_USER, shared_runtime)

        counts, _, message = seen.stdout.strip().partition(" 1 ")
        assert counts == "1"
        assert message.endswith(f".ring: {os.strerror(errno.EACCES)}")


def following(folder: Path) -> RunningDaemon:
    spans = folder / "busy.jsonl"
    spans.touch()
    return RunningDaemon(folder, "--source", f"follow:{spans}", "--period", "0.25")


class TestARingOfAnotherVersion:
    def test_is_reported_with_its_file_both_versions_and_what_to_update(
        self, tmp_path: Path
    ) -> None:
        def noted(version: int, name: str, length: int) -> list[str]:
            of_version(daemon.runtime_dir / "phases", version, name=name, length=length)
            daemon.wait_for(lambda state: f"version {version}" in str(state["collectors"]))
            notes: list[str] = daemon.report()["notes"]
            # Not that a busy machine held the source up.
            return [note for note in notes if note.startswith("phase_rings: ")]

        with following(tmp_path) as daemon:
            newer = noted(2, "12-newer.ring", 4096)
            older = noted(0, "11-older.ring", RING_BYTES)
            errors = daemon.metrics()['gpumon_collector_errors_total{collector="phase_rings"}']

        for (note,), name, version, to_update in (
            (newer, "12-newer.ring", 2, "this gpumon"),
            (older, "11-older.ring", 0, "the gpumon of the training run"),
        ):
            assert note.startswith(f"phase_rings: {name}: ")
            assert re.findall(r"version (\d)", note) == [str(version), "1"]
            assert f"update {to_update}" in note
        assert "(2 " in older[0]
        assert errors == 2
        assert f"gpumon: {newer[0].partition(', and')[0]}" in daemon.log()
