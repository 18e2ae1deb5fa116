"""How a ring is opened, and removed, where anybody may have put what is there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gpumon.core.ring.runtime_paths import PHASES
from gpumon.core.wording import label_text
from gpumon.errors import RingError
from gpumon.sources.rings.ring_file import RingFile

_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_RING_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Place = tuple[str, str, int]
"""Folder, name and inode of a ring."""


class OwnFiles:
    """The files that this process has open: asked at most once, for thousands of rings may ask."""

    def __init__(self) -> None:
        self._known: frozenset[tuple[int, int]] | None = None

    def have(self, inode: int, device: int) -> bool:
        """Whether it is one of them."""
        if self._known is None:
            self._known = frozenset(_open_files())
        return (inode, device) in self._known


def _open_files() -> Iterator[tuple[int, int]]:
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            status = os.fstat(int(descriptor.name))
            yield status.st_ino, status.st_dev


def open_phases(folder: str) -> int:
    """A descriptor of the folder's ``phases``, through no link; the caller closes it.

    Raises:
        OSError: It is not there, or no folder.
    """
    outer = os.open(folder, _FOLDER_FLAGS)
    try:
        return os.open(PHASES, _FOLDER_FLAGS, dir_fd=outer)
    finally:
        os.close(outer)


def open_ring(
    place: Place, folder: int, own_files: OwnFiles, *, boot_id: str, now_ns: int
) -> RingFile | None:
    """Open a ring through its folder's descriptor.

    Args:
        place: Where it was seen.
        folder: Descriptor of its folder.
        own_files: What this process has open.
        boot_id: Of the kernel that runs.
        now_ns: CLOCK_MONOTONIC.

    Returns:
        ``None`` for a ring of this very process: closing it would free its lock.

    Raises:
        RingError: It must not be trusted.
        FileNotFoundError: It is gone, or another file has its name.
        OSError: It cannot be opened.
    """
    where, name, inode = place
    device = os.fstat(folder).st_dev
    # The pid in the name alone does not say so: a process in a container may have the same one.
    if name.partition("-")[0] == str(os.getpid()) and own_files.have(inode, device):
        return None
    descriptor = os.open(name, _RING_FLAGS, dir_fd=folder)
    try:
        status = os.fstat(descriptor)
        if status.st_dev != device:
            raise RingError("on another file system than its folder")
        if status.st_ino != inode:
            raise FileNotFoundError(name)
        # Two users may give their rings one name, and a name may come again.
        key = f"{where}/{name}#{inode}"
        return RingFile(descriptor, key, boot_id=boot_id, now_ns=now_ns)
    except BaseException:
        os.close(descriptor)
        raise


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
