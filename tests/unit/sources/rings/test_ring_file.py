"""Specification of reading one ring: what is new, told once; detail may go, totals never."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from gpumon.core.clock import NS_PER_S
from gpumon.core.phase import PHASE_NUMBER, TrainingPhase
from gpumon.core.ring.events import RingKind
from gpumon.core.ring.format import PAGE_BYTES, RECORD_COUNT
from gpumon.sources.rings.phase_rings import PhaseRingReader
from tests.builders_ring import (
    WrittenRing,
    held_by_a_process,
    kinds,
    now,
    only,
    run_facts,
)

INPUT_WAIT = PHASE_NUMBER[TrainingPhase.INPUT_WAIT]
TRAIN_STEP = PHASE_NUMBER[TrainingPhase.TRAIN_STEP]
MINUTES_15 = 15 * 60 * NS_PER_S


@pytest.fixture
def ring(tmp_path: Path) -> WrittenRing:
    return WrittenRing(tmp_path)


class TestALivingRun:
    def test_is_told_with_its_facts_and_the_holder_of_its_lock(
        self, ring: WrittenRing, reader: PhaseRingReader
    ) -> None:
        with held_by_a_process(ring.path) as pid:
            run = only(reader.read(now()))

        assert (run.alive, run.host_pid, run.ended_ns) == (True, pid, None)
        assert run.facts == ring.facts
        assert run.owner_uid == os.getuid()
        assert f"/{ring.path.name}#" in run.key

    def test_is_told_by_what_is_new_each_time(
        self, ring: WrittenRing, reader: PhaseRingReader
    ) -> None:
        with held_by_a_process(ring.path):
            first = only(reader.read(now()))
            ring.writer.enter(INPUT_WAIT)
            ring.writer.step(1, 32)
            second = only(reader.read(now()))
            third = only(reader.read(now()))

        assert kinds(first.events) == ["ENTER"]
        assert kinds(second.events) == ["ENTER", "STEP", "SAMPLES"]
        assert not third.events

    def test_has_cumulative_totals(self, ring: WrittenRing, reader: PhaseRingReader) -> None:
        ring.writer.epoch(2)
        began_ns = now()
        ring.writer.enter(INPUT_WAIT)
        time.sleep(0.02)
        ring.writer.enter(TRAIN_STEP)
        waited_ns = now() - began_ns
        ring.writer.step(2, 64)

        run = only(reader.read(now()))

        assert 20_000_000 <= run.phase_ns[TrainingPhase.INPUT_WAIT] <= waited_ns
        assert (run.steps, run.samples, run.epoch) == (2, 64, 2)
        assert TrainingPhase.TRAIN_STEP not in run.phase_ns

    def test_counts_the_steps_of_its_last_records_where_it_was_killed_before_its_totals(
        self, ring: WrittenRing, reader: PhaseRingReader
    ) -> None:
        ring.writer.step(2)
        ring.writer.count(1, 0)
        ring.writer.enter(INPUT_WAIT)

        assert only(reader.read(now())).steps == 3

    def test_may_restate_its_facts(self, ring: WrittenRing, reader: PhaseRingReader) -> None:
        with held_by_a_process(ring.path):
            reader.read(now())
            ring.writer.restate(run_facts(run="renamed", started_ns=ring.facts.started_ns))
            run = only(reader.read(now()))

        assert run.facts.run == "renamed"


class TestBetweenTwoTicks:
    def test_a_living_run_says_what_it_has_counted_since(
        self, ring: WrittenRing, reader: PhaseRingReader
    ) -> None:
        with held_by_a_process(ring.path) as pid:
            reader.read(now())
            ring.writer.step(7, 0)
            counts = reader.newest_counts(now())
            kinds_read_later = kinds(only(reader.read(now())).events)

        assert counts[pid].steps == 7
        assert 0 < counts[pid].wall_ns <= now() - ring.facts.started_ns
        assert kinds_read_later == ["STEP"]

    def test_it_says_its_samples_with_its_steps(
        self, ring: WrittenRing, reader: PhaseRingReader
    ) -> None:
        with held_by_a_process(ring.path) as pid:
            reader.read(now())
            ring.writer.step(7, 7 * 32)

            assert reader.newest_counts(now())[pid].samples == 7 * 32

    def test_a_run_that_has_just_ended_still_does(
        self, ring: WrittenRing, reader: PhaseRingReader
    ) -> None:
        with held_by_a_process(ring.path) as pid:
            reader.read(now())
        ring.writer.step(7, 0)

        assert reader.newest_counts(now())[pid].steps == 7

    def test_one_whose_end_was_read_has_nothing_to_add(
        self, ring: WrittenRing, reader: PhaseRingReader
    ) -> None:
        ring.writer.step(7, 0)
        reader.read(now())

        assert reader.newest_counts(now()) == {}

    def test_a_ring_that_is_damaged_says_nothing_and_is_refused_in_its_turn(
        self, ring: WrittenRing, reader: PhaseRingReader
    ) -> None:
        with held_by_a_process(ring.path):
            reader.read(now())
            with ring.path.open("r+b") as file:
                file.write(bytes(64))

            assert reader.newest_counts(now()) == {}
            assert reader.read(now()).rejected == 1


class TestAnOverrunRing:
    def test_loses_detail_and_says_how_much_but_no_totals(
        self, ring: WrittenRing, reader: PhaseRingReader
    ) -> None:
        with held_by_a_process(ring.path):
            reader.read(now())
            for _ in range(RECORD_COUNT + 100):
                ring.writer.step()
            run = only(reader.read(now()))

        assert run.steps == RECORD_COUNT + 100
        steps = [event for event in run.events if event.kind is RingKind.STEP]
        assert len(steps) + run.lost_events == RECORD_COUNT + 100
        assert steps[-1].value == RECORD_COUNT + 100

    def test_still_says_which_phase_is_under_way(
        self, ring: WrittenRing, reader: PhaseRingReader
    ) -> None:
        ring.writer.enter(INPUT_WAIT, 1)
        for _ in range(RECORD_COUNT):
            ring.writer.step()

        first = only(reader.read(now())).events[0]

        assert (first.kind, first.phase, first.value) == (
            RingKind.ENTER,
            TrainingPhase.INPUT_WAIT,
            1,
        )

    def test_is_read_across_the_seam(self, ring: WrittenRing, reader: PhaseRingReader) -> None:
        with held_by_a_process(ring.path):
            for _ in range(RECORD_COUNT - 5):
                ring.writer.step()
            reader.read(now())
            for _ in range(10):
                ring.writer.step()
            run = only(reader.read(now()))

        assert len(run.events) == 10
        assert run.lost_events == 0


class TestARecordThatIsUnderWay:
    def test_is_waited_for_once_and_then_counted_as_lost(
        self, ring: WrittenRing, reader: PhaseRingReader
    ) -> None:
        ring.writer.step()
        ring.writer.step()
        ring.memory.words[PAGE_BYTES // 8 + 4] ^= 1  # the first STEP
        with held_by_a_process(ring.path):
            first = only(reader.read(now()))
            second = only(reader.read(now()))

        assert (kinds(first.events), first.lost_events) == (["ENTER"], 0)
        assert (kinds(second.events), second.lost_events) == (["ENTER", "STEP"], 1)

    def test_is_not_waited_for_when_the_process_is_dead(
        self, ring: WrittenRing, reader: PhaseRingReader
    ) -> None:
        ring.writer.step()
        ring.writer.step()
        ring.memory.words[PAGE_BYTES // 8 + 4] ^= 1

        run = only(reader.read(now()))

        assert (len(run.events), run.lost_events) == (2, 1)


class TestCost:
    def test_of_an_idle_ring_is_one_read(
        self, tmp_path: Path, reader: PhaseRingReader, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ring = WrittenRing(tmp_path)
        reads: list[int] = []
        pread = os.pread

        def counted(descriptor: int, length: int, offset: int) -> bytes:
            reads.append(length)
            return pread(descriptor, length, offset)

        with held_by_a_process(ring.path):
            reader.read(now())
            monkeypatch.setattr(os, "pread", counted)
            reader.read(now())

        assert reads == [1024]
