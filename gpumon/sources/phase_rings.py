"""All phase rings of this machine: found, read, and removed when their time has come."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

from gpumon.core.label_text import label_text
from gpumon.core.ring_events import RingCounts, RingReading, RingsReading
from gpumon.core.runtime_paths import PHASES
from gpumon.core.units import NS_PER_S
from gpumon.errors import RingError
from gpumon.sources.path_patterns import matching_paths
from gpumon.sources.ring_file import MAX_RECORDS_PER_READ, RingFile, RingNotReadyError
from gpumon.sources.ring_opening import Place, open_ring, phases_of, unlink_if_ours

MAX_RINGS: Final = 256
KEEP_ENDED_NS: Final = 15 * 60 * NS_PER_S

_SUFFIX: Final = ".ring"
_MAX_ENTRIES: Final = 4_096
_MAX_FOLDERS: Final = 256
_PATIENCE_NS: Final = 5 * NS_PER_S
_RETRY_NS: Final = 60 * NS_PER_S
_NEVER_NS: Final = 1 << 63
_LOOK_ANYWAY_NS: Final = 5 * NS_PER_S
_STAMP_GRAIN_NS: Final = 20_000_000
_TICK_RECORDS: Final = 131_072
"""Records decoded in one tick: 0.1 s of work, however many rings somebody has filled."""
_FAIR_RECORDS: Final = 256


Unlink = Callable[[Place, int, int], None]


def leave_alone(_place: Place, _owner_uid: int, _folder: int) -> None:
    """Remove nothing."""


@dataclass(slots=True)
class _Followed:
    ring: RingFile
    freed_ns: int | None = None  # when its lock was first seen free


@dataclass(slots=True)
class _Refused:
    first_seen_ns: int
    retry_ns: int
    is_counted: bool = False


@dataclass(slots=True)
class _Tick:
    now_ns: int
    records_left: int = _TICK_RECORDS
    readings: dict[Place, RingReading] = field(default_factory=dict)


class PhaseRingReader:
    """Reads every ring in the given runtime folders, once a tick.

    Rings are untrusted: no link is followed, sizes are exact, whatever
    contradicts itself is counted and left alone. A ring of this very process
    is never opened: closing it would free the lock that says the process lives.
    """

    def __init__(
        self,
        directories: Iterable[str | Path],
        *,
        boot_id: str,
        keep_ended_ns: int = KEEP_ENDED_NS,
        max_rings: int = MAX_RINGS,
        unlink: Unlink = unlink_if_ours,
    ) -> None:
        """Read nothing yet.

        Args:
            directories: Runtime folders (rings lie in their ``phases``); shell
                patterns are expanded anew in each tick.
            boot_id: Of the kernel that runs; rings of another are refused.
            keep_ended_ns: How long a ring stays after its lock was freed.
            max_rings: Most rings followed at once.
            unlink: Removes the file of a run that ended so long ago; who only
                looks on beside a daemon leaves that to it.
        """
        self._patterns = tuple(str(directory) for directory in directories)
        self._boot_id = boot_id
        self._keep_ended_ns = keep_ended_ns
        self._max_rings = max_rings
        self._unlink = unlink
        self._followed: dict[Place, _Followed] = {}
        self._refused: dict[Place, _Refused] = {}
        self._rejected = 0
        self._message: str | None = None
        self._stamps: list[int | None] = []
        self._looks_alike = 0
        self._looked_ns = 0
        self._turn = threading.Lock()  # a report is asked for between two ticks, by another thread

    def read(self, now_ns: int) -> RingsReading:
        """What all rings say at ``now_ns`` of CLOCK_MONOTONIC. Never raises for what it finds."""
        with self._turn:
            return self._read(now_ns)

    def newest_counts(self, now_ns: int) -> dict[int, RingCounts]:
        """What living runs have counted since the last ``read``, by pid. From any thread.

        Nothing is found, refused or removed; a pid that two rings claim is left out.
        """
        counts: dict[int, list[RingCounts]] = {}
        with self._turn:
            for followed in self._followed.values():
                with contextlib.suppress(RingError, OSError):
                    found = followed.ring.counts(now_ns)
                    if found is not None:
                        counts.setdefault(found[0], []).append(found[1])
        return {pid: claims[0] for pid, claims in counts.items() if len(claims) == 1}

    def _read(self, now_ns: int) -> RingsReading:
        if self._is_as_empty_as_before(now_ns):
            return RingsReading(rejected=self._rejected, message=self._message)
        tick = _Tick(now_ns)
        listed: set[Place] = set()
        for folder in islice(matching_paths(self._patterns), _MAX_FOLDERS):
            with contextlib.suppress(OSError), phases_of(folder) as descriptor:
                self._read_folder(str(folder), descriptor, listed, tick)
        self._forget_unlisted(listed)
        # One that was read may have been given up since, to make room for another.
        rings = [reading for place, reading in tick.readings.items() if place in self._followed]
        return RingsReading(rings=tuple(rings), rejected=self._rejected, message=self._message)

    def _is_as_empty_as_before(self, now_ns: int) -> bool:
        """Whether there was no ring and no folder has changed since: most ticks of most machines.

        A folder's time stamp is coarse, so it is believed only from the
        second look on; and as patterns may fit new folders, everything is
        looked at once in a while all the same.
        """
        if self._followed or self._refused:
            return False
        stamps = [_changed_ns(pattern) for pattern in self._patterns]
        since_ns = now_ns - self._looked_ns
        believed = stamps == self._stamps and self._looks_alike > 1
        if believed and since_ns < _LOOK_ANYWAY_NS:
            return True
        if stamps != self._stamps:
            self._stamps, self._looks_alike = stamps, 0
        if self._looks_alike == 0 or since_ns >= _STAMP_GRAIN_NS:
            self._looks_alike += 1
            self._looked_ns = now_ns
        return False

    def close(self) -> None:
        """Let go of every ring. Safe to call twice."""
        with self._turn:
            for followed in self._followed.values():
                followed.ring.close()
            self._followed.clear()

    def _read_folder(self, folder: str, descriptor: int, listed: set[Place], tick: _Tick) -> None:
        with os.scandir(descriptor) as entries:
            looked_at = list(islice(entries, _MAX_ENTRIES))
        found = [
            (folder, entry.name, entry.inode())
            for entry in looked_at
            if entry.name.endswith(_SUFFIX)
        ]
        listed.update(found)
        if len(looked_at) == _MAX_ENTRIES:
            itself = (folder, PHASES, 0)
            listed.add(itself)
            self._refuse(itself, RingError(f"only {_MAX_ENTRIES} files are looked at"), tick.now_ns)
        for place in sorted(found, key=lambda place: place not in self._followed):
            followed = self._followed.get(place) or self._follow(place, descriptor, tick.now_ns)
            if followed is not None:
                self._read_ring(place, followed, descriptor, tick)

    def _read_ring(self, place: Place, followed: _Followed, descriptor: int, tick: _Tick) -> None:
        limit = max(_FAIR_RECORDS, min(MAX_RECORDS_PER_READ, tick.records_left))
        try:
            reading = followed.ring.read(tick.now_ns, max_records=limit)
        except (RingError, OSError) as error:
            self._drop(place)
            self._refuse(place, error, tick.now_ns)
            return
        self._refused.pop(place, None)
        tick.records_left -= len(reading.events)
        if reading.alive:
            followed.freed_ns = None
        elif followed.freed_ns is None:
            followed.freed_ns = tick.now_ns
        if followed.freed_ns is not None and tick.now_ns - followed.freed_ns >= self._keep_ended_ns:
            self._remove(place, descriptor)
            return
        tick.readings[place] = reading

    def _follow(self, place: Place, descriptor: int, now_ns: int) -> _Followed | None:
        """Open a ring that is new here; ``None`` if it must not, or need not, be read."""
        refused = self._refused.get(place)
        if refused is not None and now_ns < refused.retry_ns:
            return None
        try:
            self._insist_on_room(place)
            ring = open_ring(place, descriptor, boot_id=self._boot_id, now_ns=now_ns)
        except FileNotFoundError:
            return None
        except (RingError, OSError) as error:
            self._refuse(place, error, now_ns)
            return None
        if ring is None:
            return None
        followed = self._followed[place] = _Followed(ring)
        return followed

    def _insist_on_room(self, place: Place) -> None:
        """Give up the run that ended longest ago, where the table is full."""
        if any(folder == place[0] and inode == place[2] for folder, _, inode in self._followed):
            raise RingError("a second name of a ring that is read already")
        if len(self._followed) < self._max_rings:
            return
        ended = [
            (followed.freed_ns, place)
            for place, followed in self._followed.items()
            if followed.freed_ns is not None
        ]
        if not ended:
            raise RingError(f"not read, for there are more than {self._max_rings} phase rings")
        with phases_of(Path(min(ended)[1][0])) as descriptor:
            self._remove(min(ended)[1], descriptor)

    def _remove(self, place: Place, descriptor: int) -> None:
        """Be done with an ended run for good; its file goes too where it is ours."""
        owner_uid = self._followed[place].ring.owner_uid
        self._drop(place)
        self._unlink(place, owner_uid, descriptor)
        self._refused[place] = _Refused(0, _NEVER_NS, is_counted=True)

    def _refuse(self, place: Place, error: Exception, now_ns: int) -> None:
        refused = self._refused.setdefault(place, _Refused(now_ns, now_ns))
        waits = isinstance(error, RingNotReadyError)
        if waits and now_ns - refused.first_seen_ns < _PATIENCE_NS:
            return
        refused.retry_ns = now_ns + _RETRY_NS
        if not refused.is_counted:
            refused.is_counted = True
            self._rejected += 1
            reason = error.strerror if isinstance(error, OSError) else error
            self._message = f"{label_text(place[1])}: {reason}"

    def _drop(self, place: Place) -> None:
        followed = self._followed.pop(place, None)
        if followed is not None:
            followed.ring.close()

    def _forget_unlisted(self, listed: set[Place]) -> None:
        for place in [place for place in self._followed if place not in listed]:
            self._drop(place)
        for place in [place for place in self._refused if place not in listed]:
            del self._refused[place]


def _changed_ns(folder: str) -> int | None:
    """When a name was last added to a folder's ``phases``; ``None`` where there is none."""
    try:
        return os.lstat(f"{folder}/{PHASES}").st_mtime_ns
    except OSError:
        return None
