"""The ring writer: what it receives can be read, and it never raises."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from gpumon.core.phase import PHASES, TrainingPhase
from gpumon.core.ring_format.events import RingEvent, RingKind
from gpumon.core.ring_format.format import (
    PAGE_BYTES,
    RECORD_BYTES,
    RECORD_COUNT,
    RING_BYTES,
    decode_records,
    parse_header,
)
from tests.builders.ring import WrittenRing, phases_folder, run_facts
from tests.processes import code_of_fork
from tests.unit.trainer_hooks.ring.ring_contents import (
    CALLBACKS,
    CHECKPOINT,
    COMPILE,
    INPUT_WAIT,
    OTHER,
    SYNC,
    TRAIN_STEP,
    events,
    totals,
)
from trainer_hooks.ring import ring_writer
from trainer_hooks.ring.mapped_file import RingFolder, make_ring

MS = 1_000_000


class TestTheFile:
    def test_is_allocated_to_its_last_byte(self, ring: WrittenRing) -> None:
        status = ring.path.stat()

        assert ring.path.name == f"{ring.facts.pid}-{ring.facts.started_ns}.ring"
        assert status.st_size == RING_BYTES
        assert status.st_blocks * 512 >= RING_BYTES

    @pytest.mark.parametrize("mode", [0o600, 0o644])
    def test_has_the_folders_mode_whatever_the_umask(self, tmp_path: Path, mode: int) -> None:
        before = os.umask(0o077)
        try:
            memory = make_ring(RingFolder(phases_folder(tmp_path), mode), run_facts(), wall_ns=0)
        finally:
            os.umask(before)

        assert memory.path.stat().st_mode & 0o777 == mode

    def test_is_not_made_over_anything_that_is_there(self, tmp_path: Path) -> None:
        facts = run_facts()
        there = phases_folder(tmp_path) / f"{facts.pid}-{facts.started_ns}.ring"
        there.symlink_to(tmp_path / "target")

        with pytest.raises(FileExistsError):
            make_ring(RingFolder(there.parent, 0o600), facts, wall_ns=0)
        assert not (tmp_path / "target").exists()

    def test_is_not_left_behind_where_there_is_no_room(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def no_room(descriptor: int, offset: int, length: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "posix_fallocate", no_room)

        with pytest.raises(OSError, match="No space"):
            make_ring(RingFolder(phases_folder(tmp_path), 0o600), run_facts(), wall_ns=0)
        assert list(phases_folder(tmp_path).iterdir()) == []


class TestRecords:
    def test_are_stamped_and_in_order(self, ring: WrittenRing) -> None:
        before_ns = time.monotonic_ns()
        ring.writer.enter(INPUT_WAIT, 1)
        ring.writer.step(2, 32)
        ring.writer.epoch(3)
        ring.writer.device_done(2, 77)
        ring.writer.event(-1)

        start_up, *written = events(ring)

        started_ns = ring.facts.started_ns
        assert start_up == RingEvent(RingKind.ENTER, started_ns, TrainingPhase.START_UP, 0)
        assert [(e.kind.name, e.value) for e in written] == [
            ("ENTER", 1),
            ("STEP", 2),
            ("SAMPLES", 32),
            ("EPOCH", 3),
            ("DEVICE_DONE", 2),
            ("EVENT", (1 << 64) - 1),
        ]
        assert before_ns <= written[0].at_ns <= written[1].at_ns <= time.monotonic_ns()
        assert written[4].at_ns == 77

    def test_step_and_device_records_come_with_the_next_phase(self, ring: WrittenRing) -> None:
        ring.writer.enter(TRAIN_STEP)
        ring.writer.count(1, 32)
        ring.writer.enter(SYNC)
        ring.writer.enter(CALLBACKS, is_done=True)

        written = events(ring)[2:]

        assert [(e.kind.name, e.phase.value, e.value) for e in written] == [
            ("STEP", "train_step", 1),
            ("ENTER", "device_sync", 0),
            ("DEVICE_DONE", "device_sync", 1),
            ("ENTER", "callbacks", 0),
        ]
        assert written[0].at_ns == written[1].at_ns < written[2].at_ns == written[3].at_ns

    def test_step_records_are_complete_without_a_next_phase(self, ring: WrittenRing) -> None:
        ring.writer.count(1, 8)
        ring.writer.count(1, 8)
        ring.writer.enter(OTHER, is_done=True)
        assert (totals(ring).steps, totals(ring).samples) == (2, 16)
        ring.writer.count(1, 8)
        ring.writer.end()

        written = events(ring)[1:]

        assert [(e.kind.name, e.value) for e in written] == [
            ("STEP", 1),
            ("STEP", 2),
            ("DEVICE_DONE", 2),
            ("ENTER", 0),
            ("SAMPLES", 16),
            ("STEP", 3),
            ("SAMPLES", 24),
        ]

    def test_related_records_stay_together_at_the_end_of_the_ring(self, ring: WrittenRing) -> None:
        for _ in range(RECORD_COUNT // 2):  # after the one that the ring begins with
            ring.writer.count(1, 0)
            ring.writer.enter(INPUT_WAIT)

        raw = ring.path.read_bytes()
        head = parse_header(raw).head
        last, first = raw[-RECORD_BYTES:], raw[PAGE_BYTES : PAGE_BYTES + RECORD_BYTES]

        assert head == RECORD_COUNT + 1
        assert all(decode_records(last, RECORD_COUNT - 1)[1])
        assert all(decode_records(first, RECORD_COUNT)[1])

    def test_records_of_two_threads_are_complete(self, ring: WrittenRing) -> None:
        def finish() -> None:
            for number in range(5_000):
                ring.writer.device_done(number, number)

        other = threading.Thread(target=finish)
        other.start()
        for _ in range(5_000):
            ring.writer.count(1, 0)
            ring.writer.enter(INPUT_WAIT)
        other.join()
        ring.writer.enter(OTHER)

        assert len(events(ring)) == 1 + 5_000 + 2 * 5_000 + 1


class TestTotals:
    def test_lag_by_ten_milliseconds_at_most_while_steps_follow_each_other(
        self, ring: WrittenRing
    ) -> None:
        until_ns = time.monotonic_ns() + 50 * MS
        while time.monotonic_ns() < until_ns:
            for phase in (INPUT_WAIT, TRAIN_STEP):
                before_ns = time.monotonic_ns()
                ring.writer.enter(phase)
                ring.writer.step(1, 8)
                now = totals(ring)

                assert sum(now.phase_ns) == now.since_ns - ring.facts.started_ns
                assert before_ns - now.since_ns < 10 * MS + (time.monotonic_ns() - before_ns)

    @pytest.mark.parametrize("amount_ns", [3 * MS, 1 << 60], ids=["a part", "more than there is"])
    def test_give_an_amount_to_its_phase_and_take_it_from_the_present_one(
        self, ring: WrittenRing, amount_ns: int
    ) -> None:
        ring.writer.enter(TRAIN_STEP)
        time.sleep(0.005)
        ring.writer.amount(COMPILE, amount_ns)
        ring.writer.enter(INPUT_WAIT)

        now = totals(ring)

        assert 3 * MS <= now.phase_ns[COMPILE] <= amount_ns
        assert sum(now.phase_ns) == now.since_ns - ring.facts.started_ns

    def test_are_complete_after_every_record(self, ring: WrittenRing) -> None:
        for number in range(200):
            ring.writer.enter(number % len(PHASES), number % 3)
            ring.writer.step(1, number)
            assert sum(totals(ring).phase_ns) == totals(ring).since_ns - ring.facts.started_ns
            ring.writer.settle()
            assert totals(ring).present is PHASES[number % len(PHASES)]
            assert totals(ring).steps == number + 1
            ring.writer.epoch(number)
            assert totals(ring).epoch == number


class TestTrouble:
    @pytest.mark.parametrize("is_odd", [False, True], ids=["a lost file", "a value without room"])
    def test_is_recorded_once_and_ends_the_writing(self, ring: WrittenRing, is_odd: bool) -> None:
        recorded: list[Exception] = []
        ring.writer._on_trouble = recorded.append
        if is_odd:
            ring.writer.epoch(-5)
        else:
            ring.writer._words = memoryview(b"").cast("Q")

        ring.writer.enter(INPUT_WAIT)
        ring.writer.step()
        ring.writer.amount(COMPILE, 1)
        ring.writer.epoch(1)
        ring.writer.device_done(1, 1)
        ring.writer.write_facts(ring.facts)

        assert len(recorded) == 1
        assert not ring.writer.enabled


class TestAForkedChild:
    def test_writes_nothing(self, ring: WrittenRing) -> None:
        def write() -> bool:
            ring.writer.enter(INPUT_WAIT)
            return not ring.writer.enabled

        assert code_of_fork(write) == 0
        assert len(events(ring)) == 1
        ring.writer.enter(INPUT_WAIT)
        assert len(events(ring)) == 2


class TestAnInterrupt:
    @pytest.mark.parametrize("after", range(1, 80))
    def test_interrupt_at_any_line_leaves_valid_totals_below_wall_time(
        self, ring: WrittenRing, after: int
    ) -> None:
        left = after

        def interrupt(frame: FrameType, event: str, _: object) -> Any:
            nonlocal left
            if frame.f_code.co_filename != ring_writer.__file__:
                return None
            if event == "line":
                left -= 1
                if left == 0:
                    raise KeyboardInterrupt
            return interrupt

        writer = ring.writer
        sys.settrace(interrupt)
        try:
            for _ in range(3):
                writer.count(1, 4)
                writer.enter(OTHER)
                writer.step(1, 4)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        writer.enter(INPUT_WAIT)
        writer.enter(OTHER)

        now = totals(ring)
        assert left <= 0
        assert now.present is TrainingPhase.OTHER
        assert (now.steps, now.samples) == (writer.steps, writer.samples)
        assert sum(now.phase_ns) <= now.since_ns - ring.facts.started_ns


class TestASignalsHandlerThatTags:
    def test_tagging_in_the_middle_of_a_record_takes_no_time_back(self, ring: WrittenRing) -> None:
        writer, handled = ring.writer, 0

        def save(*_: object) -> None:
            """As a handler of SIGTERM would."""
            nonlocal handled
            handled += 1
            before = writer.present
            writer.enter(CHECKPOINT)
            writer.enter(*before)

        before = signal.signal(signal.SIGALRM, save)
        signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
        falls, spent_ns = 0, [0] * len(PHASES)
        try:
            while handled < 2_000:
                writer.enter(INPUT_WAIT)
                writer.enter(OTHER)
                before_ns, spent_ns = spent_ns, list(writer._spent_ns)
                falls += any(now < then for now, then in zip(spent_ns, before_ns, strict=True))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        writer.settle()
        now = totals(ring)

        assert falls == 0
        assert now.phase_ns[CHECKPOINT] > 0
        assert sum(now.phase_ns) == now.since_ns - ring.facts.started_ns
