"""Specification of the ring writer in trouble: it never complains, and what stands is believed."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from gpumon.core.phase import PHASES, TrainingPhase
from tests.builders_ring import WrittenRing
from tests.processes import code_of_fork
from tests.unit.trainer_hooks.ring.what_a_ring_holds import (
    CHECKPOINT,
    COMPILE,
    INPUT_WAIT,
    OTHER,
    events,
    totals,
)
from trainer_hooks.ring import ring_writer


class TestTrouble:
    def test_is_told_once_and_ends_the_writing(self, tmp_path: Path) -> None:
        told: list[Exception] = []
        ring = WrittenRing(tmp_path)
        ring.writer._on_trouble = told.append
        ring.writer._words = memoryview(b"").cast("Q")

        ring.writer.enter(INPUT_WAIT)
        ring.writer.step()
        ring.writer.amount(COMPILE, 1)
        ring.writer.epoch(1)
        ring.writer.device_done(1, 1)
        ring.writer.restate(ring.facts)

        assert len(told) == 1
        assert not ring.writer.enabled

    def test_of_a_value_that_does_not_fit_raises_nothing(self, ring: WrittenRing) -> None:
        ring.writer.epoch(-5)

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
    def test_at_any_line_leaves_totals_that_are_believed_and_sum_to_less_than_the_wall(
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
    def test_in_the_middle_of_a_record_takes_no_time_back(self, ring: WrittenRing) -> None:
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
