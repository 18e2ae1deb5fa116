"""List, open and remove the rings in folders that any user may fill."""

from __future__ import annotations

import contextlib
import glob
import os
import stat
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Final

from gpumon.core.owner_quotas import RingCandidate
from gpumon.core.ring_format.runtime_paths import (
    FILE_FLAGS,
    FOLDER_FLAGS,
    PHASES,
    RING_SUFFIX,
    WATCH_SUFFIX,
    is_squatted,
    may_be_ring_of,
    watch_name,
)
from gpumon.core.wording import label_text
from gpumon.errors import RingError
from gpumon.sources.ring_reader.daemon_folder import matching_paths
from gpumon.sources.ring_reader.open_ring import OpenRing

NAMES_PER_TICK: Final = 2_048
"""Names listed in one tick: 1 ms. A longer folder takes several ticks."""
RINGS_PER_TICK: Final = 512
"""Rings and heartbeats among them, which cost an ``lstat`` each: 3 ms."""
MAX_HEARTBEATS: Final = 256
"""Heartbeats that are looked at in one tick, which cost an ``lstat`` each: 0.3 ms."""

MAX_FOLDERS: Final = 256
"""Runtime folders that are read: in ``/tmp`` any user can make thousands."""

_MAX_OWNERS: Final = 1_024

Place = tuple[str, str, int]
"""Folder, name and inode of a ring or heartbeat."""
Unlink = Callable[[Place, int, int], None]
"""Removes the file there if this user may; receives its owner, and a descriptor of ``phases``."""


@dataclass(slots=True)
class OwnersRings:
    """The rings of one owner in one folder.

    Attributes:
        count: How many.
        oldest: At least as many of the oldest as could be read.
    """

    count: int = 0
    oldest: list[RingCandidate] = field(default_factory=list)


@dataclass(slots=True)
class _Found:
    """What one listing has found so far."""

    gone: set[Place]
    owners: dict[int, OwnersRings] = field(default_factory=dict)
    heartbeats: list[Place] = field(default_factory=list)


class FolderListing:
    """Lists the rings in a runtime folder, with a cap for each owner, and users' heartbeats.

    Any user may fill the folder, so one tick lists a limited number of names, and of each owner's
    rings only the oldest are remembered. The folder is listed again when its time stamp has
    changed, and once more after that, because stamps are coarse.

    Owner and change time come from ``lstat``: a user can set a file's name and its other times,
    but not these.

    Attributes:
        owners: Rings by uid, from the last complete listing; before the first, those found so far.
        heartbeats: As ``owners``: regular files of the users that their names are for.
        is_complete: Whether the folder has been listed completely at least once.
        gone: Files in ``finished`` that the last complete listing did not find.
    """

    def __init__(self, folder: str, slots: int) -> None:
        """List nothing yet; at most ``slots`` rings can be read, of all owners together."""
        self.folder = folder
        self.owners: Mapping[int, OwnersRings] = {}
        self.heartbeats: Sequence[Place] = ()
        self.is_complete = False
        self.gone: set[Place] = set()
        self._slots = slots
        self._stamp: tuple[int, ...] | None = None
        self._must_repeat = True
        self._under_way: Generator[None] | None = None

    def update(self, finished: Collection[Place]) -> bool:
        """List some more names, if any may have come or gone.

        Args:
            finished: Files that are not to be read any more.

        Returns:
            Whether ``owners`` has changed.

        Raises:
            OSError: The folder could not be listed this time.
        """
        if self._under_way is None:
            if not self._is_due():
                return False
            self._under_way = self._list(finished)
        try:
            next(self._under_way)
        except OSError:
            self.close()
            self._must_repeat = True
            raise
        except StopIteration:
            self._under_way = None
            return True
        return not self.is_complete

    def close(self) -> None:
        """Close the folder. Safe to call twice."""
        if self._under_way is not None:
            self._under_way.close()
            self._under_way = None

    def _is_due(self) -> bool:
        stamp = _stamp_of(self.folder)
        is_new = stamp != self._stamp
        is_due = is_new or self._must_repeat
        self._stamp, self._must_repeat = stamp, is_new and stamp is not None
        return is_due

    def _list(self, finished: Collection[Place]) -> Generator[None]:
        """List the folder, with a pause after as many names as one tick may list."""
        found = _Found({place for place in finished if place[0] == self.folder})
        if not self.is_complete:
            self.owners, self.heartbeats = found.owners, found.heartbeats
        if self._stamp is not None:
            descriptor = open_phases(self.folder)
            try:
                with os.scandir(descriptor) as entries:
                    yield from self._list_entries(entries, found, finished)
            finally:
                os.close(descriptor)
        self.owners, self.heartbeats, self.gone = found.owners, found.heartbeats, found.gone
        self.is_complete = True

    def _list_entries(
        self, entries: Iterator[os.DirEntry[str]], found: _Found, finished: Collection[Place]
    ) -> Generator[None]:
        names = statuses = 0
        for entry in entries:
            names += 1
            if entry.name.endswith((RING_SUFFIX, WATCH_SUFFIX)):
                statuses += 1
                place = (self.folder, entry.name, entry.inode())
                if place in finished:
                    found.gone.discard(place)
                else:
                    with contextlib.suppress(OSError):  # it is gone
                        self._add(found, place, entry.stat(follow_symlinks=False))
            if names >= NAMES_PER_TICK or statuses >= RINGS_PER_TICK:
                yield
                names = statuses = 0

    def _add(self, found: _Found, place: Place, status: os.stat_result) -> None:
        if place[1].endswith(WATCH_SUFFIX):
            if is_heartbeat(place[1], status) and len(found.heartbeats) < MAX_HEARTBEATS:
                found.heartbeats.append(place)
            return
        owners = found.owners
        own = owners.get(status.st_uid)
        if own is None:
            if len(owners) >= _MAX_OWNERS:
                return
            own = owners[status.st_uid] = OwnersRings()
        own.count += 1
        own.oldest.append(RingCandidate(place, status.st_uid, status.st_ctime_ns))
        # With n owners, no share is larger than what the n - 1 others leave.
        most = max(1, self._slots + 1 - len(owners))
        if len(own.oldest) >= 2 * most:
            own.oldest.sort(key=attrgetter("changed_ns", "place"))
            del own.oldest[most:]


def is_heartbeat(name: str, status: os.stat_result) -> bool:
    """Whether a file is the heartbeat of its owner; so a user can have only one in a folder."""
    return stat.S_ISREG(status.st_mode) and name == watch_name(status.st_uid)


def candidates_in(
    listings: Iterable[FolderListing],
) -> tuple[list[RingCandidate], dict[int, int]]:
    """The rings that are remembered, and how many more each owner has, by uid."""
    candidates: list[RingCandidate] = []
    unlisted: dict[int, int] = {}
    for listing in listings:
        for owner_uid, own in listing.owners.items():
            candidates += own.oldest
            unlisted[owner_uid] = unlisted.get(owner_uid, 0) + own.count - len(own.oldest)
    return candidates, unlisted


def _stamp_of(folder: str) -> tuple[int, ...] | None:
    """When a name last came or went, and in which folder; ``None``: there is no folder."""
    try:
        status = os.lstat(f"{folder}/{PHASES}")
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_dev


def folders_to_read(patterns: Iterable[str]) -> Iterator[str]:
    """Named folders, whether they exist or not, and existing folders that match a pattern."""
    for pattern in patterns:
        if not glob.has_magic(pattern):
            yield pattern
            continue
        for path in matching_paths([pattern]):
            with contextlib.suppress(OSError):
                is_named = pattern == glob.escape(str(path))
                if is_named or not is_squatted(path, path.lstat().st_uid):
                    yield str(path)


def open_phases(folder: str) -> int:
    """Open the folder's ``phases`` without following links; the caller closes the descriptor.

    Raises:
        OSError: It does not exist, or is not a folder.
    """
    outer = os.open(folder, FOLDER_FLAGS)
    try:
        return os.open(PHASES, FOLDER_FLAGS, dir_fd=outer)
    finally:
        os.close(outer)


class RingOpener:
    """Opens rings during one tick; never follows a link or opens a file twice.

    Args:
        boot_id: Boot id of the running kernel; rings of another boot are refused.
        inodes: Folder and inode of each ring that is already read; opened rings are added.
    """

    def __init__(self, boot_id: str, inodes: set[tuple[str, int]]) -> None:
        self._boot_id, self._inodes = boot_id, inodes
        self._phases: dict[str, int] = {}

    def close(self) -> None:
        """Close the folders. Call it once."""
        for descriptor in self._phases.values():
            os.close(descriptor)

    def phases_of(self, folder: str) -> int:
        """Return a descriptor of the folder's ``phases``; ``OSError`` if that is gone."""
        if folder not in self._phases:
            self._phases[folder] = open_phases(folder)
        return self._phases[folder]

    def open(self, place: Place, now_ns: int) -> OpenRing | None:
        """Open a ring through its folder's descriptor.

        Returns:
            ``None`` for a ring of this process: closing it would release its lock.

        Raises:
            RingError: It must not be trusted.
            FileNotFoundError: It is gone, or another file has its name.
            OSError: It cannot be opened.
        """
        where, name, inode = place
        if (where, inode) in self._inodes:
            raise RingError("a hard link to a ring that is already read")
        folder = self.phases_of(where)
        device = os.fstat(folder).st_dev
        # The pid in the name is not enough: a process in a container may have the same one.
        if may_be_ring_of(name, os.getpid()) and (inode, device) in self._own_files:
            return None
        descriptor = os.open(name, FILE_FLAGS, dir_fd=folder)
        try:
            status = os.fstat(descriptor)
            if status.st_dev != device:
                raise RingError("on a different file system from its folder")
            if status.st_ino != inode:
                raise FileNotFoundError(name)
            # Two users may give their rings one name, and a name may come again.
            key = f"{where}/{name}#{inode}"
            ring = OpenRing(descriptor, key, boot_id=self._boot_id, now_ns=now_ns)
        except BaseException:
            os.close(descriptor)
            raise
        self._inodes.add((where, inode))
        return ring

    @cached_property
    def _own_files(self) -> set[tuple[int, int]]:
        """Files that this process has open: read once, as there may be thousands of rings."""
        found = set()
        for descriptor in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                status = os.fstat(int(descriptor.name))
                found.add((status.st_ino, status.st_dev))
        return found


def refusal_of(place: Place, error: Exception) -> str:
    """Why the ring is not read, with its name."""
    reason = error.strerror if isinstance(error, OSError) else error
    return f"{label_text(place[1])}: {reason}"


def unlink_if_ours(place: Place, owner_uid: int, folder: int) -> None:
    """Remove a ring or heartbeat if this user is its owner, the superuser, or the folder's owner.

    Without the last, a service that is not the superuser would keep every run's 2.1 MB forever.
    """
    _, name, inode = place
    with contextlib.suppress(OSError):
        if os.geteuid() not in (0, owner_uid, os.fstat(folder).st_uid):
            return
        if os.stat(name, dir_fd=folder, follow_symlinks=False).st_ino == inode:
            os.unlink(name, dir_fd=folder)
