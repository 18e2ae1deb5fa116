"""The ring reader: rings are untrusted, and links are not followed."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.clock import NS_PER_S
from gpumon.core.owner_quotas import choose_rings
from gpumon.core.phase import PHASE_NUMBER, TrainingPhase
from gpumon.core.ring_format.events import RingsReading
from gpumon.core.ring_format.format import PAGE_BYTES, RECORD_BYTES, RING_BYTES
from gpumon.sources.ring_reader import phase_rings
from gpumon.sources.ring_reader.phase_rings import PhaseRingReader
from tests.builders.ring import (
    BOOT_ID,
    HOSTILE_RINGS,
    WatchedRing,
    WrittenRing,
    held_by_a_process,
    kinds,
    now,
    phases_folder,
    run_facts,
)

INPUT_WAIT = PHASE_NUMBER[TrainingPhase.INPUT_WAIT]
MINUTES_15 = 15 * 60 * NS_PER_S


def descriptors_of(path: Path) -> int:
    """How many descriptors this process has of a ring, removed or not."""
    names = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the one that lists this very folder
            names.append(str(link.readlink()))
    return sum(name.removesuffix(" (deleted)") == str(path) for name in names)


def test_a_daemon_that_stood_still_after_its_tick_believes_the_rings(
    ring: WatchedRing, tmp_path: Path
) -> None:
    with ring.held():
        ring.read()
        tick_ns = now()
        time.sleep(1.2)
        ring.writer.enter(INPUT_WAIT)
        ring.writer.step()
        late = WrittenRing(tmp_path, replace(run_facts(), run="another"))
        reading = ring.reader.read(tick_ns)

    assert {run.facts.run for run in reading.rings} == {ring.facts.run, late.facts.run}
    assert reading.rejected == 0


class TestARunThatEnded:
    def test_stays_listed_with_its_totals_but_not_alive(self, ring: WatchedRing) -> None:
        ring.writer.step()
        with ring.held() as pid:
            ring.read()
            held_ns = now()
            ring.reader.read(held_ns)
        ended = ring.read()

        assert (ended.alive, ended.ended_ns, ended.host_pid) == (False, held_ns, pid)
        assert ring.read().steps == 1

    def test_before_the_first_reading_ended_with_its_last_record(self, ring: WatchedRing) -> None:
        ring.writer.enter(INPUT_WAIT)
        written_ns = now()

        run = ring.read()

        assert run.ended_ns is not None
        assert ring.facts.started_ns < run.ended_ns <= written_ns
        assert run.host_pid == ring.facts.pid
        assert run.events
        assert not ring.read().events

    def test_is_removed_and_closed_a_quarter_of_an_hour_after_its_lock_was_freed(
        self, ring: WatchedRing
    ) -> None:
        of_the_writer = descriptors_of(ring.path)
        freed_ns = now()
        ring.reader.read(freed_ns)

        before = ring.reader.read(freed_ns + MINUTES_15 - 1)
        assert ring.path.exists()
        assert descriptors_of(ring.path) > of_the_writer
        after = ring.reader.read(freed_ns + MINUTES_15)

        assert len(before.rings) == 1
        assert (after.rings, after.rejected) == ((), 0)
        assert not ring.path.exists()
        assert descriptors_of(ring.path) == of_the_writer

    def test_of_another_user_is_no_longer_listed_but_not_removed(
        self, ring: WatchedRing, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ring.read()
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)

        assert ring.read_all(MINUTES_15).rings == ()
        assert ring.read_all(2 * MINUTES_15).rings == ()
        assert ring.path.exists()

    def test_whose_file_vanished_is_forgotten(self, ring: WatchedRing) -> None:
        ring.read()
        ring.path.unlink()

        assert ring.read_all() == RingsReading()


class TestAHostileRing:
    @pytest.mark.parametrize("make", HOSTILE_RINGS.values(), ids=HOSTILE_RINGS)
    def test_is_counted_once_and_keeps_no_other_from_being_read(
        self, tmp_path: Path, reader: PhaseRingReader, make: Callable[[Path], object]
    ) -> None:
        make(phases_folder(tmp_path))
        good = WrittenRing(tmp_path, run_facts(run="good", pid=2_999_999))

        readings = [reader.read(now() + tick * NS_PER_S) for tick in range(0, 300, 3)]

        assert [run.facts.run for run in readings[-1].rings] == [good.facts.run]
        assert readings[-1].rejected == 1
        assert readings[-1].message

    def test_that_runs_backwards_is_dropped(self, ring: WatchedRing) -> None:
        for _ in range(100):
            ring.writer.step()
        with ring.held():
            ring.read()
            ring.memory.words[4] = 3
            reading = ring.read_all()

        assert (reading.rings, reading.rejected) == ((), 1)

    def test_whose_totals_fall_is_dropped(self, ring: WatchedRing) -> None:
        ring.writer.step(5)
        ring.writer.epoch(1)
        with ring.held():
            ring.read()
            ring.writer.steps = 1
            ring.writer.epoch(2)
            reading = ring.read_all()

        assert (reading.rings, reading.rejected) == ((), 1)

    def test_that_shrinks_is_dropped(self, ring: WatchedRing) -> None:
        with ring.held():
            ring.read()
            ring.writer.step()
            os.truncate(ring.path, PAGE_BYTES + RECORD_BYTES)
            reading = ring.read_all()
            os.truncate(ring.path, RING_BYTES)

        assert (reading.rings, reading.rejected) == ((), 1)

    def test_loses_its_records_of_impossible_times(self, ring: WatchedRing) -> None:
        ring.writer.device_done(1, now() + 3600 * NS_PER_S)
        ring.writer.device_done(2, 5)

        run = ring.read()

        assert (kinds(run.events), run.lost_events) == (["ENTER"], 2)

    def test_cannot_be_listed_twice_under_two_names(self, ring: WatchedRing) -> None:
        (ring.path.parent / "9-9.ring").hardlink_to(ring.path)

        reading = ring.read_all()

        assert (len(reading.rings), reading.rejected) == (1, 1)

    def test_in_a_linked_folder_is_not_read(self, tmp_path: Path) -> None:
        real = tmp_path / "real"
        real.mkdir()
        WrittenRing(real)
        (tmp_path / "link").symlink_to(real)

        assert PhaseRingReader([tmp_path / "link"], boot_id=BOOT_ID).read(now()).rings == ()


class TestARingThatIsBeingMade:
    def test_is_neither_listed_nor_counted_until_it_is_done(self, ring: WatchedRing) -> None:
        magic, ring.memory.words[0] = ring.memory.words[0], 0

        unready = ring.read_all()
        ring.memory.words[0] = magic

        assert unready == RingsReading()
        assert ring.read()


@pytest.fixture
def reader_of_three(tmp_path: Path) -> Iterator[PhaseRingReader]:
    reader = PhaseRingReader([tmp_path], boot_id=BOOT_ID, max_rings=3)
    yield reader
    reader.close()


def rings_in(folder: Path, count: int) -> list[WrittenRing]:
    return [WrittenRing(folder, run_facts(pid=2_000_000 + n)) for n in range(count)]


class TestManyRings:
    def test_are_followed_up_to_a_limit(
        self, tmp_path: Path, reader_of_three: PhaseRingReader
    ) -> None:
        with contextlib.ExitStack() as held:
            for ring in rings_in(tmp_path, 5):
                held.enter_context(held_by_a_process(ring.path))
            reading = reader_of_three.read(now())

        assert (len(reading.rings), reading.rejected) == (3, 0)
        assert reading.left_out == ((os.getuid(), 2),)
        assert str(reading.message).endswith(f" 3: 2 of uid {os.getuid()}")

    def test_of_runs_that_ended_make_room_for_one_that_lives(
        self, tmp_path: Path, reader_of_three: PhaseRingReader
    ) -> None:
        rings_in(tmp_path, 3)
        reader_of_three.read(now())
        living = WrittenRing(tmp_path)
        with held_by_a_process(living.path):
            reading = reader_of_three.read(now())

        assert any(f"/{living.path.name}#" in run.key for run in reading.rings)
        assert reading.rejected == 0
        assert len(list(living.path.parent.iterdir())) == 3

    def test_are_not_chosen_among_again_while_nothing_changes(
        self, tmp_path: Path, reader_of_three: PhaseRingReader, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        choices = 0

        def counted(*claims: Any) -> Any:
            nonlocal choices
            choices += 1
            return choose_rings(*claims)

        monkeypatch.setattr(phase_rings, "choose_rings", counted)
        rings_in(tmp_path, 5)  # of runs that ended: two are let go of
        began_ns, reported = now(), []

        for tick in range(10):
            reader_of_three.read(began_ns + 10 * tick * NS_PER_S)
            reported.append(choices)

        assert 0 < reported[4] == reported[-1]


class TestADaemonThatIsShortOfFiles:
    def test_reports_that_it_reads_too_little_until_it_does_not(
        self, ring: WatchedRing, tmp_path: Path
    ) -> None:
        ring.read()  # what is loaded late is loaded
        WrittenRing(tmp_path, run_facts(pid=2_000_000))
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        highest = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
        blockers: list[int] = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
        try:
            with contextlib.suppress(OSError):
                while True:
                    blockers.append(os.dup(0))
            short = ring.read_all()
        finally:
            for blocker in blockers:
                os.close(blocker)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        again = ring.read_all()

        assert (len(short.rings), short.is_whole) == (1, False)
        assert (len(again.rings), again.is_whole) == (2, True)


class TestARingOfThisVeryProcess:
    def test_is_never_opened_for_that_would_free_its_lock(
        self, tmp_path: Path, reader: PhaseRingReader
    ) -> None:
        WrittenRing(tmp_path, run_facts(pid=os.getpid()))

        assert reader.read(now()) == RingsReading()

    def test_is_distinguished_from_one_of_the_same_pid_in_a_container(
        self, ring: WatchedRing
    ) -> None:
        copy = ring.path.with_name(f"{os.getpid()}-8.ring")
        copy.write_bytes(ring.path.read_bytes())
        ring.path.rename(ring.path.with_name(f"{os.getpid()}-7.ring"))

        assert f"/{copy.name}#" in ring.read().key
