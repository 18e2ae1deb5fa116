"""Find, read and remove the phase rings of this machine."""

from __future__ import annotations

import contextlib
import errno
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.core.owner_quotas import (
    RingCandidate,
    choose_rings,
    largest_owners,
    left_out_message,
)
from gpumon.core.phase import TrainingPhase
from gpumon.core.ring_format.events import KEEP_ENDED_NS, RingCounts, RingReading, RingsReading
from gpumon.errors import RingError
from gpumon.sources.ring_reader.open_ring import (
    BEING_MADE_NS,
    MAX_RECORDS_PER_READ,
    OpenRing,
    RingNotReadyError,
)
from gpumon.sources.ring_reader.ring_folder import (
    MAX_FOLDERS,
    FolderListing,
    Place,
    RingOpener,
    Unlink,
    candidates_in,
    folders_to_read,
    refusal_of,
    unlink_if_ours,
)
from gpumon.sources.ring_reader.watchers import is_watched

MAX_RINGS: Final = 256

_RETRY_NS: Final = 60 * NS_PER_S
_FIND_FOLDERS_EVERY_NS: Final = 5 * NS_PER_S
_TICK_RECORDS: Final = 131_072
"""Records decoded in one tick: 0.1 s of work, however many rings are full."""
_FAIR_RECORDS: Final = 256
_OUR_OWN_FAULTS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def leave_alone(_place: Place, _owner_uid: int, _folder: int) -> None:
    """Remove nothing."""


@dataclass(slots=True)
class _Followed:
    ring: OpenRing
    candidate: RingCandidate
    is_removed: bool = False  # its file went while it lived
    freed_ns: int | None = None  # when its lock was first seen free


@dataclass(slots=True)
class _Refused:
    first_seen_ns: int
    retry_ns: int
    is_counted: bool = False
    is_our_fault: bool = False


@dataclass(slots=True)
class _Tick:
    now_ns: int
    opener: RingOpener
    records_left: int = _TICK_RECORDS
    readings: list[RingReading] = field(default_factory=list)


class PhaseRingReader:
    """Reads the rings in the given runtime folders, once a tick.

    Rings are untrusted: no link is followed, sizes are exact, and a ring that contradicts itself
    is counted and left alone. A ring of this process is never opened: closing it would release
    the lock that shows that the process lives.

    Where there are more rings than can be read, each owner has a fair share
    (``core.owner_quotas``), in which bad files count, too. A ring that was
    removed while its process lives is followed until the process has ended.
    """

    def __init__(
        self,
        directories: Iterable[str | Path],
        *,
        boot_id: str,
        max_rings: int = MAX_RINGS,
        unlink: Unlink = unlink_if_ours,
    ) -> None:
        """Read nothing yet.

        Args:
            directories: Runtime folders as shell patterns, which are expanded every few seconds.
            boot_id: Rings of another boot are refused.
            max_rings: How many are read at most.
            unlink: Removes the file of a ring ``KEEP_ENDED_NS`` after its lock was released; a
                command that runs while a daemon does leaves that to the daemon.
        """
        self._patterns = tuple(str(directory) for directory in directories)
        self._boot_id = boot_id
        self._max_rings = max_rings
        self._unlink = unlink
        self._folders: dict[str, FolderListing] = {}
        self._find_folders_at_ns = 0
        self._chosen: tuple[RingCandidate, ...] = ()
        self._must_choose = False
        self._followed: dict[Place, _Followed] = {}
        self._inodes: set[tuple[str, int]] = set()  # of the followed rings, with their folder
        self._refused: dict[Place, _Refused] = {}
        self._finished: set[Place] = set()  # ended runs whose file may still be there
        self._rejected = 0
        self._refusal: str | None = None
        self._left_out: tuple[tuple[int | None, int], ...] = ()
        self._is_fair = self._is_listed = True
        self._turn = threading.Lock()  # another thread may request a report between two ticks

    def read(self, now_ns: int) -> RingsReading:
        """Read all rings at ``now_ns`` of CLOCK_MONOTONIC. Never raises for what it finds."""
        opener = RingOpener(self._boot_id, self._inodes)
        with self._turn, contextlib.closing(opener):
            return self._read(_Tick(now_ns, opener))

    def newest_counts(self, now_ns: int) -> dict[int, RingCounts]:
        """What living runs have counted since the last ``read``, by pid. From any thread.

        Nothing is opened, refused or removed; a pid that two rings name is left out.
        """
        counts: defaultdict[int, list[RingCounts]] = defaultdict(list)
        with self._turn:
            for followed in self._followed.values():
                with contextlib.suppress(RingError, OSError):
                    if (found := followed.ring.counts(now_ns)) is not None:
                        counts[found[0]].append(found[1])
        return {pid: found[0] for pid, found in counts.items() if len(found) == 1}

    def close(self) -> None:
        """Close every ring. Safe to call twice."""
        with self._turn:
            for followed in self._followed.values():
                followed.ring.close()
            self._followed.clear()
            self._inodes.clear()
            for listing in self._folders.values():
                listing.close()

    def _read(self, tick: _Tick) -> RingsReading:
        self._find_folders(tick.now_ns)
        has_changed = self._list()
        if has_changed:
            self._drop_removed()
        if has_changed or self._must_choose:
            self._choose(tick)
        for candidate in self._chosen:
            followed = self._followed.get(candidate.place) or self._follow(candidate, tick)
            if followed is not None:
                self._read_ring(candidate.place, followed, tick)
        heartbeats = chain.from_iterable(one.heartbeats for one in self._folders.values())
        is_hindered = any(refused.is_our_fault for refused in self._refused.values())
        left_out = self._left_out
        return RingsReading(
            rings=tuple(tick.readings),
            rejected=self._rejected,
            message=left_out_message(left_out, self._max_rings) if left_out else self._refusal,
            left_out=left_out,
            is_whole=self._is_fair and self._is_listed and not is_hindered,
            is_watched=is_watched(heartbeats, tick.opener.phases_of, self._unlink),
        )

    def _find_folders(self, now_ns: int) -> None:
        """Folders that match a pattern come and go: users log in and out."""
        if now_ns < self._find_folders_at_ns:
            return
        began_ns = time.perf_counter_ns()
        for folder in islice(folders_to_read(self._patterns), MAX_FOLDERS):
            if folder not in self._folders:
                self._folders[folder] = FolderListing(folder, self._max_rings)
        took_ns = time.perf_counter_ns() - began_ns
        # Even if /tmp is full of folders, this takes a thousandth of the time.
        self._find_folders_at_ns = now_ns + max(_FIND_FOLDERS_EVERY_NS, 1_000 * took_ns)

    def _list(self) -> bool:
        """List the folders that have changed; return whether any listing has."""
        has_changed, self._is_listed = False, True
        for listing in self._folders.values():
            try:
                if not listing.update(self._finished):
                    continue
            except OSError as error:
                self._is_listed = self._is_listed and error.errno not in _OUR_OWN_FAULTS
                continue
            has_changed = True
            self._finished -= listing.gone
        return has_changed

    def _drop_removed(self) -> None:
        """Note the rings that lost their file; those of ended runs are dropped."""
        for place, followed in [*self._followed.items()]:
            if followed.is_removed or not followed.ring.is_removed:
                continue
            if followed.freed_ns is None:
                followed.is_removed = True  # read on through the open descriptor
            else:
                self._drop(place)

    def _choose(self, tick: _Tick) -> None:
        candidates = {
            place: followed.candidate._replace(freed_ns=followed.freed_ns)
            for place, followed in self._followed.items()
        }
        listed, unlisted = candidates_in(self._folders.values())
        for candidate in listed:
            if candidate.place not in self._finished:
                candidates.setdefault(candidate.place, candidate)
        choice = choose_rings(candidates.values(), self._max_rings, unlisted)
        for candidate in choice.given_up:
            self._remove(candidate.place, tick)
        self._chosen = choice.taken
        places = {candidate.place for candidate in choice.taken}
        for place in [place for place in self._followed if place not in places]:
            self._drop(place)
        self._refused = {p: refused for p, refused in self._refused.items() if p in places}
        self._left_out, self._is_fair = largest_owners(choice.left_out), choice.is_fair
        self._must_choose = False

    def _read_ring(self, place: Place, followed: _Followed, tick: _Tick) -> None:
        limit = max(_FAIR_RECORDS, min(MAX_RECORDS_PER_READ, tick.records_left))
        now_ns = tick.now_ns
        try:
            reading = followed.ring.read(now_ns, max_records=limit)
        except (RingError, OSError) as error:
            self._drop(place)
            self._refuse(place, error, now_ns)
            return
        if self._refused:
            self._refused.pop(place, None)
        tick.records_left -= len(reading.events)
        if reading.alive:
            followed.freed_ns = None
        elif followed.freed_ns is None:
            followed.freed_ns = now_ns
            self._must_choose = self._must_choose or bool(self._left_out)
            if followed.is_removed and _is_empty(reading):
                self._drop(place)  # its process withdrew it
                return
        if followed.freed_ns is not None and now_ns - followed.freed_ns >= KEEP_ENDED_NS:
            self._remove(place, tick)
            return
        tick.readings.append(reading)

    def _follow(self, candidate: RingCandidate, tick: _Tick) -> _Followed | None:
        """Open a new ring; ``None`` if it must not, or need not, be read."""
        place = candidate.place
        refused = self._refused.get(place)
        if refused is not None and tick.now_ns < refused.retry_ns:
            return None
        try:
            ring = tick.opener.open(place, tick.now_ns)
        except FileNotFoundError:
            return None
        except (RingError, OSError) as error:
            self._refuse(place, error, tick.now_ns)
            return None
        if ring is not None:
            self._followed[place] = _Followed(ring, candidate)
        return self._followed.get(place)

    def _remove(self, place: Place, tick: _Tick) -> None:
        """Drop an ended run for good, and remove its file if that is allowed."""
        followed = self._followed[place]
        with contextlib.suppress(OSError):
            if not followed.ring.is_removed:
                descriptor = tick.opener.phases_of(place[0])
                self._unlink(place, followed.ring.owner_uid, descriptor)
        self._drop(place)
        self._finished.add(place)

    def _refuse(self, place: Place, error: Exception, now_ns: int) -> None:
        refused = self._refused.setdefault(place, _Refused(now_ns, now_ns))
        waits = isinstance(error, RingNotReadyError)
        if waits and now_ns - refused.first_seen_ns < BEING_MADE_NS:
            return
        refused.retry_ns = now_ns + _RETRY_NS
        if isinstance(error, OSError) and error.errno in _OUR_OWN_FAULTS:
            refused.is_our_fault, refused.retry_ns = True, now_ns
        if not refused.is_counted:
            refused.is_counted = True
            self._rejected += 1
            self._refusal = refusal_of(place, error)

    def _drop(self, place: Place) -> None:
        followed = self._followed.pop(place, None)
        if followed is not None:
            followed.ring.close()
            self._inodes.discard(place[::2])
            self._must_choose = True


def _is_empty(reading: RingReading) -> bool:
    return not reading.steps and not reading.phase_ns.keys() - {TrainingPhase.START_UP}
