"""The ring between real processes: started in any order, killed, forked, read at full speed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from gpumon.core.phase import TrainingPhase
from gpumon.core.ring.events import RingEvent, RingKind
from tests.builders_ring import only
from tests.neighbours import NOBODY, as_root, become, shared_runtime_folder
from tests.patience import PATIENCE_S
from tests.trainings import TRAINING, process, read, reader_of

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


class TestATraining:
    def test_that_was_there_before_the_daemon_is_told_from_its_start(self, tmp_path: Path) -> None:
        with process(TRAINING, tmp_path) as training:
            run = only(read(reader_of(tmp_path)))

        assert (run.alive, run.host_pid, run.steps, run.samples) == (True, training.pid, 3, 12)
        assert run.phase_ns[TrainingPhase.TRAIN_STEP] >= 60_000_000
        assert run.events[0].phase is TrainingPhase.START_UP

    def test_that_takes_long_to_go_has_ended_before(self, tmp_path: Path) -> None:
        with process(SLOW_TO_GO, tmp_path) as training:
            assert training.stdout is not None
            while training.stdout.readline() != "going\n":
                pass
            run = only(read(reader_of(tmp_path)))
            is_there = training.poll() is None

        assert is_there
        assert (run.alive, run.steps, run.samples) == (False, 1, 8)

    def test_that_comes_after_the_daemon_is_found(self, tmp_path: Path) -> None:
        reader = reader_of(tmp_path)
        assert read(reader).rings == ()

        with process(TRAINING, tmp_path):
            assert only(read(reader)).alive

    def test_that_runs_without_a_daemon_can_be_read_afterwards(self, tmp_path: Path) -> None:
        with process(TRAINING, tmp_path) as training:
            training.communicate("", timeout=PATIENCE_S)

        run = only(read(reader_of(tmp_path)))

        assert (run.alive, run.steps) == (False, 3)

    def test_that_is_killed_keeps_its_totals_and_its_open_phase(self, tmp_path: Path) -> None:
        reader = reader_of(tmp_path)
        with process(TRAINING, tmp_path) as training:
            before = only(read(reader))
            training.send_signal(signal.SIGKILL)
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
            assert training.stdin is not None
            assert training.stdout is not None
            training.stdin.write("\n")
            training.stdin.flush()
            assert training.stdout.readline() == "gone\n"
            childless = only(read(reader))
            training.send_signal(signal.SIGKILL)
            training.wait(PATIENCE_S)
            ended = only(read(reader))

        assert (with_child.host_pid, childless.alive, ended.alive) == (training.pid, True, False)
        assert childless.steps == 0
        assert TrainingPhase.CHECKPOINT not in childless.phase_ns
        assert len(list((tmp_path / "phases").iterdir())) == 1


@pytest.mark.usefixtures("small_heap")
def test_no_torn_record_is_ever_believed_while_a_process_writes_at_full_speed(
    tmp_path: Path,
) -> None:
    reader = reader_of(tmp_path)
    events: list[RingEvent] = []
    lost = 0
    with process(FULL_SPEED, tmp_path) as training:
        assert training.stdout is not None
        os.set_blocking(training.stdout.fileno(), False)
        last_sum_ns = 0
        while not (told := training.stdout.readline()):
            run = only(read(reader))
            events += run.events
            lost += run.lost_events
            sum_ns = sum(run.phase_ns.values())
            assert sum_ns >= last_sum_ns, "totals fell: a torn copy was believed"
            last_sum_ns = sum_ns
            time.sleep(0.001)
        run = only(read(reader))
        events += run.events
        lost += run.lost_events

    steps = [event.value for event in events if event.kind is RingKind.STEP]
    assert run.steps == int(told)
    assert len(steps) > 1_000
    assert steps == sorted(set(steps)), "a step was told twice, or out of order"
    assert steps[-1] == run.steps
    for event in events:
        assert event.kind in (RingKind.ENTER, RingKind.STEP, RingKind.SAMPLES)
        if event.kind is RingKind.ENTER:
            assert event.value in (0, 1, 2)
    stamps = [event.at_ns for event in events]
    assert stamps == sorted(stamps)
    with_samples = sum(1 for number in range(1, run.steps + 1) if number % 7)
    written = 1 + 2 * run.steps + with_samples  # the first is START_UP
    assert lost + len(events) == written, "a record is told, or told as lost"


@as_root
def test_a_training_of_another_user_is_read_by_the_superuser_and_its_owner_noted() -> None:
    with shared_runtime_folder() as runtime, process(become() + TRAINING, runtime):
        run = only(read(reader_of(runtime)))

    assert (run.owner_uid, run.alive) == (NOBODY, True)
