"""The rings in a folder that anybody may fill: listed in parts, opened through no link, removed."""

from __future__ import annotations

import contextlib
import glob
import os
import time
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Final

from gpumon.core.ring_format.fair_share import RingClaim
from gpumon.core.ring_format.runtime_paths import (
    FILE_FLAGS,
    FOLDER_FLAGS,
    PHASES,
    RING_SUFFIX,
    is_squatted,
    may_be_ring_of,
)
from gpumon.core.wording import label_text
from gpumon.errors import RingError
from gpumon.sources.ring_reader.ring_file import RingFile

NAMES_A_TICK: Final = 2_048
"""Names looked at in one tick: 1 ms. A longer folder takes several ticks."""
RINGS_A_TICK: Final = 512
"""Of these, rings, of which each is asked whose it is: 3 ms."""

MOST_FOLDERS: Final = 256
"""Runtime folders that are looked into: in ``/tmp`` anybody can make thousands."""

_MOST_OWNERS: Final = 1_024
_STAMP_GRAIN_NS: Final = 20_000_000

Place = tuple[str, str, int]
"""Folder, name and inode of a ring."""

_Stamp = tuple[int, int, int]


@dataclass(slots=True)
class OwnersRings:
    """The rings of one owner in one folder.

    Attributes:
        count: How many.
        oldest: As many of them as could be read; see ``FolderListing``.
    """

    count: int = 0
    oldest: list[RingClaim] = field(default_factory=list)


@dataclass(slots=True)
class _Pass:
    """One way through the folder, from its first name to its last."""

    began_ns: int
    descriptor: int
    entries: Iterator[os.DirEntry[str]]
    owners: dict[int, OwnersRings] = field(default_factory=dict)
    seen: set[Place] = field(default_factory=set)

    def close(self) -> None:
        self.entries.close()  # type: ignore[attr-defined]  # as os.scandir's have
        os.close(self.descriptor)


class FolderListing:
    """Knows the rings that lie in a runtime folder, whoever puts how many files there.

    Only names that end in ``.ring`` count. A folder is listed again only when
    its time stamp says that a name came or went, and then so many names a tick;
    until a new listing is whole, the last whole one holds. Whose a ring is,
    ``lstat`` says, and how old it is, its change time: a user can set a file's
    other times, and its name, but not these. Of each owner the oldest are kept
    by name, as many as could be read, and the others are only counted: so a
    hundred thousand files take neither a tick's time nor the daemon's memory.
    """

    def __init__(self, folder: str, places: int) -> None:
        self.folder = folder
        self._places = places
        self._stamp: _Stamp | None = None
        self._since_ns = 0
        self._is_believed = False
        self._pass: _Pass | None = None
        self._owners: dict[int, OwnersRings] | None = None
        self._seen: set[Place] = set()
        self.whole_since_ns = 0

    @property
    def owners(self) -> Mapping[int, OwnersRings]:
        """By uid, as the last whole listing says; before the first, as far as it has come."""
        if self._owners is not None:
            return self._owners
        return {} if self._pass is None else self._pass.owners

    def go_on(self, now_ns: int, watched: Container[Place], done: Container[Place]) -> bool:
        """List, where there is something to list.

        Args:
            now_ns: CLOCK_MONOTONIC.
            watched: Rings whose absence somebody wants to hear of.
            done: Rings that nobody wants to hear of any more.

        Returns:
            Whether ``owners`` has become another.

        Raises:
            OSError: It could not be listed this time.
        """
        stamp = _stamp_of(self.folder)
        if self._pass is None and not self._is_due(stamp, now_ns):
            return False
        if stamp is None:
            return self._is_gone(now_ns)
        try:
            if self._pass is None:
                self._pass = self._begin(now_ns)
            is_over = self._list_some(self._pass, watched, done)
        except OSError:
            self.close()
            self._is_believed = False
            raise
        if is_over:
            self._finish(self._pass)
        return is_over or self._owners is None

    def missing(self, place: Place) -> bool:
        """Whether a watched ring of this folder was not there in the last whole listing."""
        return self._owners is not None and place not in self._seen

    def close(self) -> None:
        """Let go of the folder. Safe to call twice."""
        if self._pass is not None:
            self._pass.close()
            self._pass = None

    def _is_due(self, stamp: _Stamp | None, now_ns: int) -> bool:
        """Whether names may have come or gone since the last listing began.

        A stamp is coarse: a listing is believed only where its stamp had stood
        for a while, by the wall clock that made it or since it was first seen.
        """
        if stamp != self._stamp:
            self._stamp, self._since_ns, self._is_believed = stamp, now_ns, False
        elif self._is_believed:
            return False
        age_ns = 0 if stamp is None else time.time_ns() - stamp[0]
        self._is_believed = max(age_ns, now_ns - self._since_ns) >= _STAMP_GRAIN_NS
        return True

    def _begin(self, now_ns: int) -> _Pass:
        descriptor = open_phases(self.folder)
        try:
            return _Pass(now_ns, descriptor, os.scandir(descriptor))
        except BaseException:
            os.close(descriptor)
            raise

    def _list_some(self, now: _Pass, watched: Container[Place], done: Container[Place]) -> bool:
        """Look at some more names; whether that were all."""
        rings = 0
        for number, entry in enumerate(now.entries, start=1):
            if entry.name.endswith(RING_SUFFIX):
                rings += 1
                with contextlib.suppress(OSError):  # it is gone
                    self._take(now, entry, watched, done)
            if number >= NAMES_A_TICK or rings >= RINGS_A_TICK:
                return False
        return True

    def _take(
        self, now: _Pass, entry: os.DirEntry[str], watched: Container[Place], done: Container[Place]
    ) -> None:
        place = (self.folder, entry.name, entry.inode())
        if place in done:
            now.seen.add(place)
            return
        status = entry.stat(follow_symlinks=False)
        if place in watched:
            now.seen.add(place)
        own = now.owners.get(status.st_uid)
        if own is None:
            if len(now.owners) >= _MOST_OWNERS:
                return
            own = now.owners[status.st_uid] = OwnersRings()
        own.count += 1
        own.oldest.append(RingClaim(place, status.st_uid, status.st_ctime_ns))
        # With n owners, none can have more places than the n - 1 others leave.
        most = max(1, self._places + 1 - len(now.owners))
        if len(own.oldest) >= 2 * most:
            own.oldest.sort(key=attrgetter("changed_ns", "place"))
            del own.oldest[most:]

    def _finish(self, now: _Pass) -> None:
        self._owners, self._seen = now.owners, now.seen
        self.whole_since_ns = now.began_ns
        self.close()

    def _is_gone(self, now_ns: int) -> bool:
        self.close()
        was_empty = self._owners == {}
        self._owners, self._seen = {}, set()
        self.whole_since_ns = now_ns
        return not was_empty


def claims_in(listings: Iterable[FolderListing]) -> tuple[list[RingClaim], dict[int, int]]:
    """The rings that are kept by name, and how many more each owner has, by uid."""
    claims: list[RingClaim] = []
    unnamed: dict[int, int] = {}
    for listing in listings:
        for owner_uid, own in listing.owners.items():
            claims += own.oldest
            unnamed[owner_uid] = unnamed.get(owner_uid, 0) + own.count - len(own.oldest)
    return claims, unnamed


def _stamp_of(folder: str) -> _Stamp | None:
    """When a name last came or went, and in which folder; ``None`` where there is none."""
    try:
        status = os.lstat(f"{folder}/{PHASES}")
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_dev


def folders_to_read(patterns: Iterable[str]) -> Iterator[str]:
    """Folders that are named, there or not, and those that are there and fit a pattern."""
    for pattern in patterns:
        if not glob.has_magic(pattern):
            yield pattern
            continue
        for path in matching_paths([pattern]):
            with contextlib.suppress(OSError):
                is_named = pattern == glob.escape(str(path))
                if is_named or not is_squatted(path, path.lstat().st_uid):
                    yield str(path)


def matching_paths(patterns: Iterable[str]) -> Iterator[Path]:
    """Every path that fits a pattern, each once, in the order of the patterns."""
    names = (sorted(glob.glob(pattern)) for pattern in patterns)  # noqa: PTH207 (absolute)
    yield from map(Path, dict.fromkeys(chain.from_iterable(names)))


def open_phases(folder: str) -> int:
    """A descriptor of the folder's ``phases``, through no link; the caller closes it.

    Raises:
        OSError: It is not there, or no folder.
    """
    outer = os.open(folder, FOLDER_FLAGS)
    try:
        return os.open(PHASES, FOLDER_FLAGS, dir_fd=outer)
    finally:
        os.close(outer)


class RingOpener:
    """Opens rings, no file twice, through no link. For one moment: it asks for what is there once.

    Args:
        boot_id: Of the kernel that runs; rings of another are refused.
        inodes: Of the rings that are read already, each with its folder; those opened are added.
    """

    def __init__(self, boot_id: str, inodes: set[tuple[str, int]]) -> None:
        self._boot_id, self._inodes = boot_id, inodes
        self._phases: dict[str, int] = {}

    def close(self) -> None:
        """Let go of the folders. To be done once."""
        for descriptor in self._phases.values():
            os.close(descriptor)

    def phases_of(self, folder: str) -> int:
        """A descriptor of the folder's ``phases``. Raises ``OSError`` where it is gone."""
        if folder not in self._phases:
            self._phases[folder] = open_phases(folder)
        return self._phases[folder]

    def open(self, place: Place, now_ns: int) -> RingFile | None:
        """Open a ring through its folder's descriptor.

        Returns:
            ``None`` for a ring of this very process: closing it would free its lock.

        Raises:
            RingError: It must not be trusted.
            FileNotFoundError: It is gone, or another file has its name.
            OSError: It cannot be opened.
        """
        where, name, inode = place
        if (where, inode) in self._inodes:
            raise RingError("a second name of a ring that is read already")
        folder = self.phases_of(where)
        device = os.fstat(folder).st_dev
        # The pid in the name alone does not say so: a process in a container may have the same one.
        if may_be_ring_of(name, os.getpid()) and (inode, device) in self._own_files:
            return None
        descriptor = os.open(name, FILE_FLAGS, dir_fd=folder)
        try:
            status = os.fstat(descriptor)
            if status.st_dev != device:
                raise RingError("on another file system than its folder")
            if status.st_ino != inode:
                raise FileNotFoundError(name)
            # Two users may give their rings one name, and a name may come again.
            key = f"{where}/{name}#{inode}"
            ring = RingFile(descriptor, key, boot_id=self._boot_id, now_ns=now_ns)
        except BaseException:
            os.close(descriptor)
            raise
        self._inodes.add((where, inode))
        return ring

    @cached_property
    def _own_files(self) -> set[tuple[int, int]]:
        """What this process has open: asked once, for thousands of rings may ask."""
        found = set()
        for descriptor in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                status = os.fstat(int(descriptor.name))
                found.add((status.st_ino, status.st_dev))
        return found


def refusal_of(place: Place, error: Exception) -> str:
    """Why that ring is not read, with its name."""
    reason = error.strerror if isinstance(error, OSError) else error
    return f"{label_text(place[1])}: {reason}"


def unlink_if_ours(place: Place, owner_uid: int, folder: int) -> None:
    """Remove the file of a ring, if this user may be the one to do so.

    That is its owner, the superuser, and the owner of the folder: a service that
    is not the superuser would else keep every training's 2.1 MB for ever.
    """
    _, name, inode = place
    with contextlib.suppress(OSError):
        if os.geteuid() not in (0, owner_uid, os.fstat(folder).st_uid):
            return
        if os.stat(name, dir_fd=folder, follow_symlinks=False).st_ino == inode:
            os.unlink(name, dir_fd=folder)
