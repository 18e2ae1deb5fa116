"""All phase rings of this machine: found, read, and removed when their time has come."""

from __future__ import annotations

import contextlib
import errno
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.core.phase import TrainingPhase
from gpumon.core.ring_format.events import KEEP_ENDED_NS, RingCounts, RingReading, RingsReading
from gpumon.core.ring_format.fair_share import (
    RingClaim,
    fair_choice,
    left_out_sentence,
    told_by_owner,
)
from gpumon.errors import RingError
from gpumon.sources.ring_reader.ring_file import (
    BEING_MADE_NS,
    MAX_RECORDS_PER_READ,
    RingFile,
    RingNotReadyError,
)
from gpumon.sources.ring_reader.ring_folder import (
    MOST_FOLDERS,
    FolderListing,
    Place,
    RingOpener,
    claims_in,
    folders_to_read,
    refusal_of,
    unlink_if_ours,
)

MAX_RINGS: Final = 256

_RETRY_NS: Final = 60 * NS_PER_S
_LOOK_FOR_FOLDERS_NS: Final = 5 * NS_PER_S
_TICK_RECORDS: Final = 131_072
"""Records decoded in one tick: 0.1 s of work, however many rings somebody has filled."""
_FAIR_RECORDS: Final = 256
_OUR_OWN_FAULTS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


Unlink = Callable[[Place, int, int], None]


def leave_alone(_place: Place, _owner_uid: int, _folder: int) -> None:
    """Remove nothing."""


@dataclass(slots=True)
class _Followed:
    ring: RingFile
    claim: RingClaim
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

    Rings are untrusted: no link is followed, sizes are exact, whatever
    contradicts itself is counted and left alone. A ring of this very process
    is never opened: closing it would free the lock that says the process lives.

    Where there are more than can be read, each owner has a fair part
    (``core.ring_format.fair_share``), in which his bad files count, too. A ring that was
    removed while its process lives is followed on until that has ended.
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

        Folders come as shell patterns, which are expanded anew every few seconds; rings of
        another boot than ``boot_id`` are refused. ``KEEP_ENDED_NS`` after a ring's lock was freed,
        ``unlink`` removes its file: who only looks on beside a daemon leaves that to it.
        """
        self._patterns = tuple(str(directory) for directory in directories)
        self._boot_id = boot_id
        self._max_rings = max_rings
        self._unlink = unlink
        self._folders: dict[str, FolderListing] = {}
        self._look_for_folders_ns = 0
        self._chosen: tuple[RingClaim, ...] = ()
        self._must_choose = False
        self._followed: dict[Place, _Followed] = {}
        self._inodes: set[tuple[str, int]] = set()  # of what is followed, with their folder
        self._refused: dict[Place, _Refused] = {}
        self._done: dict[Place, int] = {}  # ended runs whose file could not be removed, since when
        self._rejected = 0
        self._refusal: str | None = None
        self._left_out: tuple[tuple[int | None, int], ...] = ()
        self._is_fair = self._is_listed = True
        self._turn = threading.Lock()  # a report is asked for between two ticks, by another thread

    def read(self, now_ns: int) -> RingsReading:
        """What all rings say at ``now_ns`` of CLOCK_MONOTONIC. Never raises for what it finds."""
        opener = RingOpener(self._boot_id, self._inodes)
        with self._turn, contextlib.closing(opener):
            return self._read(_Tick(now_ns, opener))

    def newest_counts(self, now_ns: int) -> dict[int, RingCounts]:
        """What living runs have counted since the last ``read``, by pid. From any thread.

        Nothing is found, refused or removed; a pid that two rings claim is left out.
        """
        counts: defaultdict[int, list[RingCounts]] = defaultdict(list)
        with self._turn:
            for followed in self._followed.values():
                with contextlib.suppress(RingError, OSError):
                    if (found := followed.ring.counts(now_ns)) is not None:
                        counts[found[0]].append(found[1])
        return {pid: claims[0] for pid, claims in counts.items() if len(claims) == 1}

    def close(self) -> None:
        """Let go of every ring. Safe to call twice."""
        with self._turn:
            for followed in self._followed.values():
                followed.ring.close()
            self._followed.clear()
            self._inodes.clear()
            for listing in self._folders.values():
                listing.close()

    def _read(self, tick: _Tick) -> RingsReading:
        self._look_for_folders(tick.now_ns)
        if self._list(tick.now_ns) or self._must_choose:
            self._choose(tick)
        for claim in self._chosen:
            followed = self._followed.get(claim.place) or self._follow(claim, tick)
            if followed is not None:
                self._read_ring(claim.place, followed, tick)
        is_hindered = any(refused.is_our_fault for refused in self._refused.values())
        left_out = self._left_out
        return RingsReading(
            rings=tuple(tick.readings),
            rejected=self._rejected,
            message=left_out_sentence(left_out, self._max_rings) if left_out else self._refusal,
            left_out=left_out,
            is_whole=self._is_fair and self._is_listed and not is_hindered,
        )

    def _look_for_folders(self, now_ns: int) -> None:
        """Folders that a pattern fits come and go: users log in and out."""
        if now_ns < self._look_for_folders_ns:
            return
        began_ns = time.perf_counter_ns()
        for folder in islice(folders_to_read(self._patterns), MOST_FOLDERS):
            if folder not in self._folders:
                self._folders[folder] = FolderListing(folder, self._max_rings)
        took_ns = time.perf_counter_ns() - began_ns
        # Where somebody fills /tmp, this takes a thousandth of the time all the same.
        self._look_for_folders_ns = now_ns + max(_LOOK_FOR_FOLDERS_NS, 1_000 * took_ns)

    def _list(self, now_ns: int) -> bool:
        """List what has changed; whether there is another choice now."""
        has_changed, self._is_listed = False, True
        for folder, listing in self._folders.items():
            try:
                if not listing.go_on(now_ns, self._followed, self._done):
                    continue
            except OSError as error:
                self._is_listed = self._is_listed and error.errno not in _OUR_OWN_FAULTS
                continue
            has_changed = True
            for place in [place for place in self._followed if place[0] == folder]:
                if listing.missing(place):
                    self._note_missing(place)
            for place, since_ns in list(self._done.items()):
                if since_ns < listing.whole_since_ns and listing.missing(place):
                    del self._done[place]
        return has_changed

    def _note_missing(self, place: Place) -> None:
        """A ring has left its folder: one that lives is followed on, through what is open."""
        followed = self._followed[place]
        if not followed.ring.is_removed:
            return  # it has another name, or came after the listing had begun
        if followed.freed_ns is None:
            followed.is_removed = True
        elif not followed.is_removed:
            self._drop(place)

    def _choose(self, tick: _Tick) -> None:
        """Decide which rings are read from now on."""
        claims = {}
        for place, followed in self._followed.items():
            if followed.claim.freed_ns != followed.freed_ns:
                followed.claim = followed.claim._replace(freed_ns=followed.freed_ns)
            claims[place] = followed.claim
        named, unnamed = claims_in(self._folders.values())
        for claim in named:
            if claim.place not in self._done:
                claims.setdefault(claim.place, claim)
        choice = fair_choice(claims.values(), self._max_rings, unnamed)
        for claim in choice.given_up:
            self._remove(claim.place, tick)
        self._chosen = choice.taken
        places = {claim.place for claim in choice.taken}
        for place in [place for place in self._followed if place not in places]:
            self._drop(place)
        self._refused = {p: refused for p, refused in self._refused.items() if p in places}
        self._left_out, self._is_fair = told_by_owner(choice.left_out), choice.is_fair
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
        self._refused.pop(place, None)
        tick.records_left -= len(reading.events)
        if reading.alive:
            followed.freed_ns = None
        elif followed.freed_ns is None:
            followed.freed_ns = now_ns
            self._must_choose = self._must_choose or bool(self._left_out)
            if followed.is_removed and _says_nothing(reading):
                self._drop(place)  # its process took it back
                return
        if followed.freed_ns is not None and now_ns - followed.freed_ns >= KEEP_ENDED_NS:
            self._remove(place, tick)
            return
        tick.readings.append(reading)

    def _follow(self, claim: RingClaim, tick: _Tick) -> _Followed | None:
        """Open a ring that is new here; ``None`` if it must not, or need not, be read."""
        place = claim.place
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
            self._followed[place] = _Followed(ring, claim)
        return self._followed.get(place)

    def _remove(self, place: Place, tick: _Tick) -> None:
        """Be done with an ended run for good; its file goes too where it is ours."""
        followed = self._followed[place]
        with contextlib.suppress(OSError):
            if not followed.ring.is_removed:
                descriptor = tick.opener.phases_of(place[0])
                self._unlink(place, followed.ring.owner_uid, descriptor)
        self._drop(place)
        self._done[place] = tick.now_ns

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


def _says_nothing(reading: RingReading) -> bool:
    return not reading.steps and not reading.phase_ns.keys() - {TrainingPhase.START_UP}
