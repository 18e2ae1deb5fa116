"""One ring is read: new records once; records may be lost, totals never."""

from __future__ import annotations

import fcntl
import os
import time
from types import ModuleType
from typing import Any

import pytest

from gpumon.core.clock import NS_PER_S
from gpumon.core.phase import PHASE_NUMBER, TrainingPhase
from gpumon.core.ring_format.events import RingKind
from gpumon.core.ring_format.format import COUNT_LIMIT, PAGE_BYTES, RECORD_COUNT
from tests.builders.ring import WatchedRing, kinds, lock_holder, now, only, run_facts

INPUT_WAIT = PHASE_NUMBER[TrainingPhase.INPUT_WAIT]
TRAIN_STEP = PHASE_NUMBER[TrainingPhase.TRAIN_STEP]


def write_steps(ring: WatchedRing, count: int) -> None:
    for _ in range(count):
        ring.writer.step()


class TestALivingRun:
    def test_is_listed_with_its_facts_its_lock_and_what_is_new(self, ring: WatchedRing) -> None:
        with ring.held() as pid:
            first = ring.read()
            ring.writer.enter(INPUT_WAIT)
            ring.writer.step(1, 32)
            second, third = ring.read(), ring.read()

        assert (first.alive, first.host_pid, first.ended_ns) == (True, pid, None)
        assert (first.facts, first.owner_uid) == (ring.facts, os.getuid())
        assert f"/{ring.path.name}#" in first.key
        assert kinds(first.events) == ["ENTER"]
        assert kinds(second.events) == ["ENTER", "STEP", "SAMPLES"]
        assert not third.events

    def test_has_cumulative_totals(self, ring: WatchedRing) -> None:
        ring.writer.epoch(2)
        began_ns = now()
        ring.writer.enter(INPUT_WAIT)
        time.sleep(0.02)
        ring.writer.enter(TRAIN_STEP)
        waited_ns = now() - began_ns
        ring.writer.step(2, 64)

        run = ring.read()

        assert 20_000_000 <= run.phase_ns[TrainingPhase.INPUT_WAIT] <= waited_ns
        assert (run.steps, run.samples, run.epoch) == (2, 64, 2)
        assert TrainingPhase.TRAIN_STEP not in run.phase_ns

    def test_that_was_killed_before_its_totals_has_the_steps_of_its_last_records(
        self, ring: WatchedRing
    ) -> None:
        ring.writer.step(2)
        ring.writer.count(1, 0)
        ring.writer.enter(INPUT_WAIT)

        assert ring.read().steps == 3

    def test_may_restate_its_facts_but_not_its_start(self, ring: WatchedRing) -> None:
        with ring.held():
            ring.read()
            ring.writer.write_facts(run_facts(run="renamed", started_ns=ring.facts.started_ns))
            assert ring.read().facts.run == "renamed"

            ring.writer.write_facts(run_facts(run="older", started_ns=1))
            assert ring.read().facts.run == "renamed"

    def test_has_no_impossible_number_of_steps(self, ring: WatchedRing) -> None:
        ring.writer.steps = 1 << 60
        ring.writer.step()

        assert ring.read().steps == COUNT_LIMIT


class TestARunThatLostItsLock:
    """As a process does that closes another descriptor of its ring's file."""

    def test_lives_as_long_as_its_process_runs_and_is_gone_with_it(self, ring: WatchedRing) -> None:
        with lock_holder(ring.path) as holder:
            ring.read()
            holder.free_lock()
            for _ in range(3):
                write_steps(ring, 1)
                assert ring.read().alive
            silent = [only(ring.read_all(later_ns=at_s * NS_PER_S)) for at_s in (1, 120, 1_000)]
            assert [(run.alive, run.is_gone) for run in silent] == [(True, False)] * 3
            write_steps(ring, 2)
            last = only(ring.read_all(later_ns=1_001 * NS_PER_S))
            assert (last.steps, last.ended_ns) == (5, None)

        gone = only(ring.read_all(later_ns=1_002 * NS_PER_S))
        assert (gone.is_gone, gone.alive) == (True, False)
        last = ring.read()
        write_steps(ring, 2)  # no process that could is left
        assert ring.read() is last

    def test_has_ended_where_its_process_closed_it(self, ring: WatchedRing) -> None:
        with lock_holder(ring.path) as holder:
            ring.read()
            ring.writer.end()
            holder.free_lock()

            assert not ring.read().alive

    def test_whose_process_cannot_be_seen_lives_for_a_minute_after_it_wrote(
        self, ring: WatchedRing
    ) -> None:
        assert not ring.read().alive
        write_steps(ring, 1)
        assert ring.read().alive

        assert only(ring.read_all(later_ns=59 * NS_PER_S)).alive
        assert not only(ring.read_all(later_ns=61 * NS_PER_S)).alive


class TestBetweenTwoTicks:
    def test_a_living_run_has_newer_counts(self, ring: WatchedRing) -> None:
        with ring.held() as pid:
            ring.read()
            ring.writer.step(7, 7 * 32)
            counts = ring.reader.newest_counts(now())[pid]
            kinds_read_later = kinds(ring.read().events)

        assert (counts.steps, counts.samples) == (7, 7 * 32)
        assert 0 < counts.wall_ns <= now() - ring.facts.started_ns
        assert kinds_read_later == ["STEP", "SAMPLES"]

    def test_the_last_records_are_enough_whatever_was_overwritten(
        self, ring: WatchedRing, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read_bytes = 0

        def counted(descriptor: int, length: int, offset: int) -> bytes:
            nonlocal read_bytes
            read_bytes += length
            return pread(descriptor, length, offset)

        pread = os.pread
        with ring.held() as pid:
            ring.read()
            for _ in range(3_000):
                ring.writer.step()
            monkeypatch.setattr(os, "pread", counted)
            steps = ring.reader.newest_counts(now())[pid].steps

        assert steps == 3_000
        assert read_bytes <= 4 * PAGE_BYTES

    def test_a_run_has_its_last_counts_until_its_end_is_read(self, ring: WatchedRing) -> None:
        with ring.held() as pid:
            ring.read()
        ring.writer.step(7, 0)

        assert ring.reader.newest_counts(now())[pid].steps == 7
        ring.read()
        assert ring.reader.newest_counts(now()) == {}

    def test_a_damaged_ring_has_no_counts_and_is_refused_by_the_next_tick(
        self, ring: WatchedRing
    ) -> None:
        with ring.held():
            ring.read()
            with ring.path.open("r+b") as file:
                file.write(bytes(64))

            assert ring.reader.newest_counts(now()) == {}
            assert ring.read_all().rejected == 1


class TestAnOverrunRing:
    def test_loses_detail_and_counts_how_much_but_no_totals(self, ring: WatchedRing) -> None:
        with ring.held():
            ring.read()
            ring.writer.enter(INPUT_WAIT, 1)
            write_steps(ring, RECORD_COUNT + 100)
            run = ring.read()

        assert run.steps == RECORD_COUNT + 100
        first, *steps = run.events
        assert (first.kind, first.phase, first.value) == (
            RingKind.ENTER, TrainingPhase.INPUT_WAIT, 1,
        )  # fmt: skip
        assert len(steps) + run.lost_events == RECORD_COUNT + 101
        assert steps[-1].value == RECORD_COUNT + 100

    def test_is_read_across_the_seam(self, ring: WatchedRing) -> None:
        with ring.held():
            write_steps(ring, RECORD_COUNT - 5)
            ring.read()
            write_steps(ring, 10)
            run = ring.read()

        assert (len(run.events), run.lost_events) == (10, 0)


class TestARecordThatIsUnderWay:
    @pytest.fixture(autouse=True)
    def is_the_first_of_two_steps(self, ring: WatchedRing) -> None:
        write_steps(ring, 2)
        ring.memory.words[PAGE_BYTES // 8 + 4] ^= 1

    def test_is_waited_for_once_and_then_counted_as_lost(self, ring: WatchedRing) -> None:
        with ring.held():
            first, second = ring.read(), ring.read()

        assert (kinds(first.events), first.lost_events) == (["ENTER"], 0)
        assert (kinds(second.events), second.lost_events) == (["ENTER", "STEP"], 1)

    def test_is_not_waited_for_when_the_process_is_dead(self, ring: WatchedRing) -> None:
        run = ring.read()

        assert (len(run.events), run.lost_events) == (2, 1)


class TestCost:
    def test_of_an_idle_ring_is_one_read_and_one_question_about_its_lock(
        self, ring: WatchedRing, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls: list[str] = []

        def count(module: ModuleType, name: str) -> None:
            called = getattr(module, name)

            def counted(*values: Any) -> Any:
                calls.append(name)
                return called(*values)

            monkeypatch.setattr(module, name, counted)

        with ring.held():
            ring.read()
            ring.read()  # the folder is listed once more, as a file may have come at the same time
            for module, name in ((os, "pread"), (os, "fstat"), (os, "open"), (fcntl, "fcntl")):
                count(module, name)
            ring.read()

        assert sorted(calls) == ["fcntl", "pread"]
