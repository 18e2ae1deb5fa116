"""The ring between real processes: begun, killed, forked, read at full speed, and left behind."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.core.phase import TrainingPhase
from gpumon.core.ring_format.events import RingEvent, RingKind
from tests.builders.ring import only
from tests.e2e.ring_programs import answer
from tests.patience import PATIENCE_S
from tests.training_processes import process, read, reader_of

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


class TestATrainingRun:
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
