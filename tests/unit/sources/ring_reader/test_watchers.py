"""Heartbeats of readers: whose counts, and what a hostile folder costs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpumon.core.clock import NS_PER_S
from gpumon.core.ring_format.runtime_paths import watch_name
from gpumon.sources.ring_reader.phase_rings import PhaseRingReader
from gpumon.sources.ring_reader.ring_folder import MAX_HEARTBEATS, RINGS_PER_TICK
from tests.builders.ring import BOOT_ID, now, phases_folder
from tests.call_count import count_calls
from tests.other_users import OTHER_UID, as_root

OWN = watch_name(os.geteuid())
MINUTES_15 = 15 * 60.0


class Phases:
    """A folder of rings, and what its reader says of the heartbeats in it."""

    def __init__(self, runtime: Path) -> None:
        self.path = phases_folder(runtime)
        self.reader = PhaseRingReader([runtime], boot_id=BOOT_ID)

    def touch(self, name: str = OWN, *, seconds_ago: float = 0.0) -> Path:
        path = self.path / name
        path.touch()
        then_ns = time.time_ns() - round(seconds_ago * NS_PER_S)
        os.utime(path, ns=(then_ns, then_ns))
        return path

    def is_watched(self, ticks: int = 1) -> bool:
        return [self.reader.read(now()).is_watched for _ in range(ticks)][-1]


@pytest.fixture
def phases(tmp_path: Path) -> Iterator[Phases]:
    made = Phases(tmp_path)
    yield made
    made.reader.close()


class TestAHeartbeat:
    def test_of_now_counts_as_a_look(self, phases: Phases) -> None:
        before = phases.is_watched()
        phases.touch()

        assert (before, phases.is_watched()) == (False, True)

    def test_that_is_touched_again_needs_no_new_listing(
        self, phases: Phases, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        phases.touch(seconds_ago=60)
        assert not phases.is_watched(ticks=3)
        monkeypatch.delattr(os, "scandir")
        phases.touch()

        assert phases.is_watched()

    @pytest.mark.parametrize(
        ("seconds_ago", "is_watched"), [(2.5, True), (3.5, False), (-2.5, True), (-3.5, False)]
    )
    def test_counts_within_three_seconds_either_way(
        self, phases: Phases, seconds_ago: float, is_watched: bool
    ) -> None:
        phases.touch(seconds_ago=seconds_ago)

        assert phases.is_watched() is is_watched

    def test_is_not_opened_so_its_mode_and_content_do_not_matter(self, phases: Phases) -> None:
        path = phases.touch()
        path.write_bytes(os.urandom(4096))
        path.chmod(0)

        assert phases.is_watched()

    def test_ends_with_its_file(self, phases: Phases) -> None:
        path = phases.touch()
        assert phases.is_watched()
        path.unlink()

        assert not phases.is_watched()

    @as_root
    def test_of_each_user_counts(self, phases: Phases) -> None:
        phases.touch(seconds_ago=60)
        os.chown(phases.touch(watch_name(OTHER_UID)), OTHER_UID, -1)

        assert phases.is_watched()


def a_link(path: Path) -> None:
    target = path.with_name("target")
    target.touch()
    path.symlink_to(target)


NOT_HEARTBEATS: dict[str, Callable[[Path], object]] = {
    "a link": a_link,
    "a link to nowhere": lambda path: path.symlink_to("/nonexistent/x"),
    "a pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "another user's name": lambda path: path.with_name(watch_name(OTHER_UID)).touch(),
    "a name with zeros": lambda path: path.with_name(f"0{OWN}").touch(),
    "a name with a sign": lambda path: path.with_name(f"+{OWN}").touch(),
    "no number": lambda path: path.with_name(".watch").touch(),
    "another suffix": lambda path: path.with_name(f"{OWN}.old").touch(),
}


class TestNoHeartbeat:
    @pytest.mark.parametrize("make", NOT_HEARTBEATS.values(), ids=NOT_HEARTBEATS)
    def test_raises_the_cadence(self, phases: Phases, make: Callable[[Path], object]) -> None:
        make(phases.path / OWN)

        assert not phases.is_watched(ticks=3)

    @pytest.mark.parametrize("make", NOT_HEARTBEATS.values(), ids=NOT_HEARTBEATS)
    def test_that_takes_the_place_of_one_does(
        self, phases: Phases, make: Callable[[Path], object]
    ) -> None:
        path = phases.touch(seconds_ago=60)
        assert not phases.is_watched(ticks=3)
        changed_ns = phases.path.stat().st_mtime_ns
        path.unlink()
        make(path)
        os.utime(phases.path, ns=(changed_ns, changed_ns))  # so that it is not listed again

        assert not phases.is_watched()

    @as_root
    def test_of_another_owner_does(self, phases: Phases) -> None:
        os.chown(phases.touch(), OTHER_UID, -1)

        assert not phases.is_watched(ticks=3)


class TestAnOldHeartbeat:
    @pytest.mark.parametrize("way", [1, -1], ids=["old", "from the future"])
    def test_is_removed_after_a_quarter_of_an_hour(self, phases: Phases, way: int) -> None:
        path = phases.touch(seconds_ago=way * (MINUTES_15 - 5))
        phases.is_watched()
        assert path.exists()
        phases.touch(seconds_ago=way * (MINUTES_15 + 5))

        assert not phases.is_watched()
        assert not path.exists()

    def test_is_left_alone_by_whoever_may_not_remove_it(
        self, phases: Phases, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = phases.touch(seconds_ago=2 * MINUTES_15)
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)

        assert not phases.is_watched()
        assert path.exists()


class TestAFullFolder:
    def test_costs_no_tick_much_and_hides_no_heartbeat(self, phases: Phases) -> None:
        calls = []
        for number in range(3 * RINGS_PER_TICK):
            phases.touch(f"{10**6 + number}.watch")
            if number % RINGS_PER_TICK == RINGS_PER_TICK - 1:
                phases.touch(f"begin-{number}.watch")  # so that there is more to list
                calls.append(count_calls(phases.is_watched))
                phases.is_watched(ticks=9)
        phases.touch()

        assert calls[2] < 1.1 * calls[0]
        assert phases.is_watched(ticks=9)

    @as_root
    def test_of_many_owners_is_looked_at_only_in_part(
        self, phases: Phases, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for uid in range(10**6, 10**6 + 2 * MAX_HEARTBEATS):
            os.chown(phases.touch(watch_name(uid), seconds_ago=60), uid, -1)
        phases.is_watched(ticks=5)
        looked_at: list[object] = []
        real_stat = os.stat

        def counted(*args: object, **named: object) -> os.stat_result:
            looked_at.append(args)
            return real_stat(*args, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(os, "stat", counted)

        assert not phases.is_watched()
        assert len(looked_at) == MAX_HEARTBEATS
