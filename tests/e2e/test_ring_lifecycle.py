"""The ring between real processes: begun, killed, forked, read at full speed, and left behind."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from gpumon.core.phase import TrainingPhase
from gpumon.core.ring_format.events import RingEvent, RingKind
from gpumon.core.ring_format.format import RING_BYTES
from gpumon.core.sample import Device, GpuSample
from gpumon.pipeline.gpu_join import GpuJoin
from tests.builders.ring import only, phases_folder
from tests.e2e.ring_programs import answer
from tests.neighbours import OTHER_UID, as_root, become, shared_runtime_folder
from tests.patience import PATIENCE_S
from tests.programs import ran_python
from tests.training_processes import ROOT, TRAINING, process, read, reader_of
from trainer_hooks.ring.other_rings import MOST_LOOKED_AT

DAY_S = 24 * 3600

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
def take_down():  # before gpumon's, so it is called after it, as a framework's own end is
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

SCRIPT = """\
from trainer_hooks import phase, step, timed

total = 0
for item in timed(range(50)):
    with phase("train_step"):
        total += item
    step(samples=1)
print(total)
"""
FIRST_HOOK = 4


class TestATrainingRun:
    def test_that_was_there_before_the_daemon_is_reported_from_its_start(
        self, tmp_path: Path
    ) -> None:
        with process(TRAINING, tmp_path) as training:
            run = only(read(reader_of(tmp_path)))

        assert (run.alive, run.host_pid, run.steps, run.samples) == (True, training.pid, 3, 12)
        assert run.phase_ns[TrainingPhase.TRAIN_STEP] >= 60_000_000
        assert run.events[0].phase is TrainingPhase.START_UP

    def test_that_takes_long_to_go_has_ended_before(self, tmp_path: Path) -> None:
        with process(SLOW_TO_GO, tmp_path) as training:
            assert training.stdout is not None
            assert training.stdout.readline() == "going\n"
            run = only(read(reader_of(tmp_path)))
            is_there = training.poll() is None

        assert is_there
        assert (run.alive, run.steps, run.samples) == (False, 1, 8)

    def test_that_runs_without_a_daemon_can_be_read_afterwards(self, tmp_path: Path) -> None:
        with process(TRAINING, tmp_path) as training:
            training.communicate("", timeout=PATIENCE_S)

        run = only(read(reader_of(tmp_path)))

        assert (run.alive, run.steps) == (False, 3)

    def test_that_comes_later_and_is_killed_keeps_its_totals_and_its_open_phase(
        self, tmp_path: Path
    ) -> None:
        reader = reader_of(tmp_path)
        assert read(reader).rings == ()
        with process(TRAINING, tmp_path) as training:
            before = only(read(reader))
            training.kill()
            training.wait(PATIENCE_S)
            after = only(read(reader))
        afresh = only(read(reader_of(tmp_path)))

        assert (before.alive, after.alive, afresh.alive) == (True, False, False)
        assert after.phase_ns == before.phase_ns == afresh.phase_ns
        assert after.host_pid == training.pid
        entered = [event for event in afresh.events if event.kind is RingKind.ENTER]
        assert entered[-1].phase is TrainingPhase.INPUT_WAIT

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
    assert steps == sorted(set(steps)), "a step was told twice, or out of order"
    assert steps[-1] == run.steps
    assert {event.kind for event in events} == {RingKind.ENTER, RingKind.STEP, RingKind.SAMPLES}
    assert {event.value for event in events if event.kind is RingKind.ENTER} <= {0, 1, 2}
    stamps = [event.at_ns for event in events]
    assert stamps == sorted(stamps)
    with_samples = sum(1 for number in range(1, run.steps + 1) if number % 7)
    written = 1 + 2 * run.steps + with_samples  # the first is START_UP
    assert lost + len(events) == written, "a record is told, or told as lost"


@as_root
def test_a_run_of_another_user_is_read_by_the_superuser_and_its_owner_noted() -> None:
    with shared_runtime_folder() as runtime, process(become() + TRAINING, runtime):
        run = only(read(reader_of(runtime)))

    assert (run.owner_uid, run.alive) == (OTHER_UID, True)


def left_behind(phases: Path, count: int, days_ago: float) -> list[Path]:
    """So many files of processes that were killed while they made their rings."""
    then_s = time.time() - days_ago * DAY_S
    paths = [phases / f"{number}-1.ring" for number in range(count)]
    for path in paths:
        path.touch()
        os.truncate(path, RING_BYTES)
        os.utime(path, (then_s, then_s))
    return paths


class TestRingsThatNoOneRemoves:
    def test_are_taken_away_by_the_runs_that_come_after(self, tmp_path: Path) -> None:
        left_behind(phases_folder(tmp_path), 300, days_ago=2)
        with ExitStack() as running:
            runs = [running.enter_context(process(TRAINING, tmp_path)).pid for _ in range(8)]
            left = list((tmp_path / "phases").iterdir())
            alive = {run.host_pid for run in read(reader_of(tmp_path)).rings if run.alive}

        assert alive == set(runs)
        assert len(left) < 300 + len(runs) - MOST_LOOKED_AT

    def test_stay_while_they_are_young_or_their_process_lives(self, tmp_path: Path) -> None:
        young = left_behind(phases_folder(tmp_path), 20, days_ago=0.5)
        with process(TRAINING, tmp_path) as living, process(TRAINING, tmp_path) as dying:
            dying.kill()
            dying.wait(PATIENCE_S)
            for ring in (tmp_path / "phases").glob(f"{living.pid}-*"):
                os.utime(ring, (0, 0))
            with process(TRAINING, tmp_path) as newest:
                found = {run.host_pid: run.alive for run in read(reader_of(tmp_path)).rings}

        assert all(path.exists() for path in young)
        assert found == {living.pid: True, dying.pid: False, newest.pid: True}


def uuids(count: int) -> list[str]:
    return [f"GPU-{n:08x}-d72c-4106-c12f-20bd9faed9f6" for n in range(count)]


def test_a_run_on_many_gpus_is_joined_to_each_that_cuda_lets_it_use(tmp_path: Path) -> None:
    gpus = [GpuSample(Device(uuid=u, index=n)) for n, u in enumerate(uuids(20))]
    visible = ",".join(uuids(16))

    with process(TRAINING, tmp_path, environ={"CUDA_VISIBLE_DEVICES": visible}):
        run = only(read(reader_of(tmp_path)))

    assert GpuJoin(gpus, simulated=False).gpus_of(run) == set(uuids(16))


class TestATrainingInTrouble:
    @pytest.fixture
    def script(self, tmp_path: Path) -> Path:
        script = tmp_path / "train.py"
        script.write_text(SCRIPT)
        return script

    def train(self, script: Path, runtime: Path, **environ: str) -> CompletedProcess[str]:
        """It goes on, with one warning, which points at its own first line that is a hook's."""
        folders = {"PYTHONPATH": str(ROOT), "GPUMON_RUNTIME_DIR": str(runtime)}
        done = ran_python(script, environ={**folders, **environ})
        assert (done.returncode, done.stdout) == (0, "1225\n")
        assert done.stderr.count("RuntimeWarning") == 1
        assert done.stderr.startswith(f"{script}:{FIRST_HOOK}: RuntimeWarning: ")
        return done

    def test_whose_list_of_gpus_is_too_long_is_reported_so_once(
        self, tmp_path: Path, script: Path
    ) -> None:
        done = self.train(script, tmp_path / "a", CUDA_VISIBLE_DEVICES=",".join(uuids(300)))

        assert "GPUMON_GPUS=0,1" in done.stderr

    @pytest.mark.parametrize("kind", ["file", "link", "open to all"])
    def test_that_finds_no_folder_is_reported_at_its_own_line_what_to_do(
        self, tmp_path: Path, script: Path, kind: str
    ) -> None:
        runtime = tmp_path / "runtime"
        if kind == "file":
            runtime.touch()
        elif kind == "link":
            runtime.symlink_to(tmp_path)
        else:
            runtime.mkdir()
            runtime.chmod(0o777)

        done = self.train(script, runtime)

        assert str(runtime) in done.stderr
        assert "set GPUMON_RUNTIME_DIR" in done.stderr
