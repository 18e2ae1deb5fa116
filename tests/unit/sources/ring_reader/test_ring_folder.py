"""Specification of the listing: it costs no tick much, whoever fills the folder."""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.core.clock import NS_PER_S
from gpumon.sources.ring_reader.ring_folder import (
    NAMES_A_TICK,
    RINGS_A_TICK,
    FolderListing,
    Place,
    folders_to_read,
)
from tests.builders_ring import phases_folder
from tests.neighbours import NOBODY, as_root

NOBODYS: frozenset[Place] = frozenset()


class Story:
    """A folder that is looked at once a second."""

    def __init__(self, runtime: Path) -> None:
        self.runtime = runtime
        self.phases = phases_folder(runtime)
        self.listing = FolderListing(str(runtime), places=256)
        self._now_s = 100

    def make(self, count: int, name: str = "{}-1.ring") -> None:
        for number in range(count):
            (self.phases / name.format(number)).touch()

    def changed(self, seconds_ago: int) -> None:
        """The folder's stamp says that a name came or went so long ago."""
        then_ns = time.time_ns() - seconds_ago * NS_PER_S
        os.utime(self.phases, ns=(then_ns, then_ns))

    def tick(self, watched: frozenset[Place] = NOBODYS, done: frozenset[Place] = NOBODYS) -> bool:
        self._now_s += 1
        return self.listing.go_on(self._now_s * NS_PER_S, watched, done)

    def ticks(self, count: int) -> list[bool]:
        return [self.tick() for _ in range(count)]

    def counts(self) -> dict[int, int]:
        return {uid: own.count for uid, own in self.listing.owners.items()}

    def first_place(self) -> Place:
        """Of the first ring that was made."""
        name = "0-1.ring"
        return str(self.runtime), name, (self.phases / name).stat().st_ino


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    made = Story(tmp_path)
    yield made
    made.listing.close()


class TestAFolder:
    def test_is_listed_again_only_when_a_name_came_or_went(self, story: Story) -> None:
        story.make(3)
        story.changed(seconds_ago=60)
        first = story.ticks(3)
        (story.phases / "0-1.ring").unlink()
        story.changed(seconds_ago=1)

        assert first == story.ticks(3) == [True, False, False]
        assert story.counts() == {os.geteuid(): 2}

    def test_that_has_changed_just_now_is_listed_once_more_for_its_stamp_is_coarse(
        self, story: Story
    ) -> None:
        story.make(3)
        story.changed(seconds_ago=-60)  # as by a clock that was set back since

        assert story.ticks(4) == [True, True, False, False]

    def test_counts_nothing_but_rings(self, story: Story) -> None:
        story.make(10, "junk-{}")
        story.make(2)
        story.tick()

        assert story.counts() == {os.geteuid(): 2}

    def test_that_is_not_there_yet_costs_nothing_and_is_seen_when_it_comes(
        self, tmp_path: Path
    ) -> None:
        listing = FolderListing(str(tmp_path / "later"), places=256)
        before = [listing.go_on(n * NS_PER_S, NOBODYS, NOBODYS) for n in range(1, 4)]
        (tmp_path / "later").mkdir()
        (phases_folder(tmp_path / "later") / "1-1.ring").touch()

        assert before == [True, False, False]
        assert listing.go_on(5 * NS_PER_S, NOBODYS, NOBODYS)
        assert sum(own.count for own in listing.owners.values()) == 1

    def test_that_is_made_anew_is_another(self, story: Story) -> None:
        story.make(3)
        story.tick()
        old = story.phases.rename(story.runtime / "old")
        story.phases.mkdir()
        os.utime(story.phases, ns=(old.stat().st_mtime_ns,) * 2)

        assert story.tick()
        assert story.counts() == {}


class TestAFolderThatIsNamed:
    def test_is_read_whoever_owns_it_even_if_its_name_had_to_be_escaped(
        self, tmp_path: Path
    ) -> None:
        folder = tmp_path / "[1]" / "gpumon-of-the-lab"
        folder.mkdir(parents=True)
        if os.getuid() == 0:
            os.chown(folder, NOBODY, -1)

        assert [*folders_to_read([glob.escape(str(folder))])] == [str(folder)]


of_names_or_rings = pytest.mark.parametrize(
    ("name", "a_tick"), [("junk-{}", NAMES_A_TICK), ("{}-1.ring", RINGS_A_TICK)]
)


class TestALongFolder:
    @of_names_or_rings
    def test_takes_several_ticks(self, story: Story, name: str, a_tick: int) -> None:
        story.make(2 * a_tick + 10, name)
        before = _open_files()
        story.tick()
        assert _open_files() > before  # under way
        story.ticks(2)

        assert _open_files() == before
        assert sum(story.counts().values()) == (2 * a_tick + 10 if "ring" in name else 0)

    @of_names_or_rings
    @pytest.mark.parametrize("less", [0, 1])
    def test_is_one_with_as_many_names_as_a_tick_looks_at(
        self, story: Story, name: str, a_tick: int, less: int
    ) -> None:
        story.ticks(3)
        story.make(a_tick - less, name)

        assert story.tick() == bool(less)

    def test_is_known_as_it_was_until_it_is_listed_anew(self, story: Story) -> None:
        story.make(3)
        story.ticks(3)
        story.make(RINGS_A_TICK + 10, "more-{}.ring")

        assert not story.tick()
        assert story.counts() == {os.geteuid(): 3}
        assert story.tick()
        assert story.counts() == {os.geteuid(): RINGS_A_TICK + 13}

    def test_keeps_the_oldest_of_an_owner_by_name_and_counts_the_others(self, story: Story) -> None:
        story.make(1_000)
        story.ticks(2)
        (own,) = story.listing.owners.values()

        kept = sorted(claim.changed_ns for claim in own.oldest)
        changed = sorted(path.stat().st_ctime_ns for path in story.phases.iterdir())
        assert own.count == 1_000
        assert len(kept) < 2 * 256
        assert kept[:256] == changed[:256]

    def test_is_not_made_older_by_a_time_that_a_user_set(self, story: Story) -> None:
        story.make(1)
        story.tick()
        (before,) = story.listing.owners[os.geteuid()].oldest
        os.utime(story.phases / "0-1.ring", (0, 0))
        (story.phases / "another").touch()
        story.tick()
        (after,) = story.listing.owners[os.geteuid()].oldest

        assert after.changed_ns >= before.changed_ns > 0

    @as_root
    def test_of_many_owners_stays_small_in_memory(self, story: Story) -> None:
        story.make(900)
        for number in range(900):
            os.chown(story.phases / f"{number}-1.ring", NOBODY - number % 300, -1)
        story.ticks(2)

        assert set(story.counts().values()) == {3}
        assert sum(len(own.oldest) for own in story.listing.owners.values()) <= 2 * 300


class TestARingThatIsWatched:
    def test_is_missing_once_a_whole_listing_has_not_seen_it(self, story: Story) -> None:
        story.make(1)
        place = story.first_place()
        story.tick(frozenset({place}))
        there = story.listing.missing(place)
        (story.phases / "0-1.ring").unlink()
        story.tick(frozenset({place}))

        assert (there, story.listing.missing(place)) == (False, True)

    def test_is_missing_with_its_folder(self, story: Story) -> None:
        story.make(1)
        place = story.first_place()
        story.tick(frozenset({place}))
        story.phases.rename(story.runtime / "away")
        story.tick(frozenset({place}))

        assert story.listing.missing(place)
        assert story.counts() == {}

    def test_that_nobody_asks_for_any_more_has_no_part(self, story: Story) -> None:
        story.make(2)
        place = story.first_place()
        story.tick(done=frozenset({place}))

        assert story.counts() == {os.geteuid(): 1}
        assert not story.listing.missing(place)


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
