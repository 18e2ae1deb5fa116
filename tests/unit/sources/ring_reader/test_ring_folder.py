"""The listing of a folder: a full one costs no tick much, and each owner has a cap."""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.core.clock import NS_PER_S
from gpumon.sources.ring_reader.ring_folder import (
    MAX_HEARTBEATS,
    NAMES_PER_TICK,
    RINGS_PER_TICK,
    FolderListing,
    Place,
    folders_to_read,
)
from tests.builders.ring import phases_folder
from tests.other_users import OTHER_UID, as_root


class Folder:
    """A runtime folder and its listing."""

    def __init__(self, runtime: Path) -> None:
        self.runtime = runtime
        self.phases = phases_folder(runtime)
        self.listing = FolderListing(str(runtime), slots=256)
        self.finished: set[Place] = set()

    def make(self, count: int, name: str = "{}-1.ring") -> None:
        for number in range(count):
            (self.phases / name.format(number)).touch()

    def ticks(self, count: int) -> list[bool]:
        return [self.listing.update(self.finished) for _ in range(count)]

    def set_changed(self, seconds_ago: int) -> None:
        then_ns = time.time_ns() - seconds_ago * NS_PER_S
        os.utime(self.phases, ns=(then_ns, then_ns))

    def counts(self) -> dict[int, int]:
        return {uid: own.count for uid, own in self.listing.owners.items()}

    def place(self, name: str = "0-1.ring") -> Place:
        return str(self.runtime), name, (self.phases / name).stat().st_ino


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(tmp_path)
    yield made
    made.listing.close()


class TestAFolder:
    @pytest.mark.parametrize("seconds_ago", [60, -60], ids=["long ago", "by a clock set back"])
    def test_is_listed_twice_after_a_change_because_stamps_are_coarse(
        self, folder: Folder, seconds_ago: int
    ) -> None:
        folder.make(3)
        folder.set_changed(seconds_ago)
        first = folder.ticks(3)
        (folder.phases / "0-1.ring").unlink()
        folder.set_changed(seconds_ago + 1)

        assert first == folder.ticks(3) == [True, True, False]
        assert folder.counts() == {os.geteuid(): 2}

    def test_counts_nothing_but_rings(self, folder: Folder) -> None:
        folder.make(10, "junk-{}")
        folder.make(2)
        folder.ticks(1)

        assert folder.counts() == {os.geteuid(): 2}

    def test_that_does_not_exist_yet_is_listed_when_it_is_made(self, tmp_path: Path) -> None:
        listing = FolderListing(str(tmp_path / "later"), slots=256)
        before = [listing.update(()) for _ in range(3)]
        (tmp_path / "later").mkdir()
        (phases_folder(tmp_path / "later") / "1-1.ring").touch()

        assert before == [True, False, False]
        assert listing.update(())
        assert sum(own.count for own in listing.owners.values()) == 1

    def test_that_was_replaced_is_listed_again(self, folder: Folder) -> None:
        folder.make(3)
        folder.ticks(3)
        old = folder.phases.rename(folder.runtime / "old")
        folder.phases.mkdir()
        os.utime(folder.phases, ns=(old.stat().st_mtime_ns,) * 2)

        assert folder.ticks(1) == [True]
        assert folder.counts() == {}

    def test_that_is_named_is_read_whatever_its_owner(self, tmp_path: Path) -> None:
        named = tmp_path / "[1]" / "gpumon-of-the-lab"
        named.mkdir(parents=True)
        if os.getuid() == 0:
            os.chown(named, OTHER_UID, -1)

        assert [*folders_to_read([glob.escape(str(named))])] == [str(named)]


of_names_or_rings = pytest.mark.parametrize(
    ("name", "per_tick"), [("junk-{}", NAMES_PER_TICK), ("{}-1.ring", RINGS_PER_TICK)]
)


class TestAFullFolder:
    @of_names_or_rings
    def test_takes_several_ticks(self, folder: Folder, name: str, per_tick: int) -> None:
        folder.make(2 * per_tick + 10, name)
        before = _open_files()
        folder.ticks(1)
        assert _open_files() > before  # under way
        folder.ticks(2)

        assert _open_files() == before
        assert sum(folder.counts().values()) == (2 * per_tick + 10 if "ring" in name else 0)

    def test_keeps_its_last_listing_until_the_next_is_complete(self, folder: Folder) -> None:
        folder.make(3)
        folder.ticks(3)
        folder.make(RINGS_PER_TICK + 10, "more-{}.ring")

        assert folder.ticks(1) == [False]
        assert folder.counts() == {os.geteuid(): 3}
        assert folder.ticks(1) == [True]
        assert folder.counts() == {os.geteuid(): RINGS_PER_TICK + 13}

    def test_keeps_the_oldest_rings_of_an_owner_and_counts_the_others(self, folder: Folder) -> None:
        folder.make(1_000)
        folder.ticks(2)
        (own,) = folder.listing.owners.values()

        kept = sorted(candidate.changed_ns for candidate in own.oldest)
        changed = sorted(path.stat().st_ctime_ns for path in folder.phases.iterdir())
        assert own.count == 1_000
        assert len(kept) < 2 * 256
        assert kept[:256] == changed[:256]

    def test_does_not_believe_a_modification_time_that_a_user_set(self, folder: Folder) -> None:
        folder.make(1)
        folder.ticks(2)
        (before,) = folder.listing.owners[os.geteuid()].oldest
        os.utime(folder.phases / "0-1.ring", (0, 0))
        (folder.phases / "another").touch()
        folder.ticks(1)
        (after,) = folder.listing.owners[os.geteuid()].oldest

        assert after.changed_ns >= before.changed_ns > 0

    @as_root
    def test_of_many_owners_stays_small_in_memory(self, folder: Folder) -> None:
        folder.make(900)
        for number in range(900):
            os.chown(folder.phases / f"{number}-1.ring", OTHER_UID - number % 300, -1)
        folder.ticks(2)

        assert set(folder.counts().values()) == {3}
        assert sum(len(own.oldest) for own in folder.listing.owners.values()) <= 2 * 300

    @as_root
    def test_keeps_few_heartbeats_in_memory(self, folder: Folder) -> None:
        folder.make(300, "{}.watch")
        for uid in range(300):
            os.chown(folder.phases / f"{uid}.watch", uid, -1)
        folder.ticks(2)

        assert len(folder.listing.heartbeats) == MAX_HEARTBEATS


class TestAFinishedRing:
    def test_takes_none_of_its_owners_share_and_is_gone_when_its_file_is(
        self, folder: Folder
    ) -> None:
        folder.make(2)
        folder.finished = {folder.place()}
        folder.ticks(2)
        there = folder.listing.gone, folder.counts()
        (folder.phases / "0-1.ring").unlink()
        folder.ticks(1)

        assert there == (set(), {os.geteuid(): 1})
        assert folder.listing.gone == folder.finished

    def test_is_gone_with_its_folder(self, folder: Folder) -> None:
        folder.make(1)
        folder.finished = {folder.place()}
        folder.phases.rename(folder.runtime / "away")
        folder.ticks(1)

        assert folder.listing.gone == folder.finished
        assert folder.counts() == {}

    def test_that_finishes_during_a_listing_waits_for_the_next(self, folder: Folder) -> None:
        folder.make(RINGS_PER_TICK + 10)
        folder.ticks(1)
        folder.finished.add(folder.place())
        folder.ticks(1)

        assert folder.listing.is_complete
        assert folder.listing.gone == set()


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
