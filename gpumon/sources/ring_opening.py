"""How a ring is opened, and removed, where anybody may have put what is there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gpumon.core.runtime_paths import PHASES
from gpumon.errors import RingError
from gpumon.sources.ring_file import RingFile

_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_RING_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Place = tuple[str, str, int]
"""Folder, name and inode of a ring."""


@contextlib.contextmanager
def phases_of(folder: Path) -> Iterator[int]:
    """A descriptor of the folder's ``phases``, through no link."""
    outer = os.open(folder, _FOLDER_FLAGS)
    try:
        inner = os.open(PHASES, _FOLDER_FLAGS, dir_fd=outer)
    finally:
        os.close(outer)
    try:
        yield inner
    finally:
        os.close(inner)


def open_ring(place: Place, folder: int, *, boot_id: str, now_ns: int) -> RingFile | None:
    """Open a ring through its folder's descriptor.

    Returns:
        ``None`` for a ring of this very process: closing it would free its lock.

    Raises:
        RingError: It must not be trusted.
        OSError: It cannot be opened.
    """
    where, name, inode = place
    if _is_made_here(name, inode, folder):
        return None
    descriptor = os.open(name, _RING_FLAGS, dir_fd=folder)
    try:
        if os.fstat(descriptor).st_dev != os.fstat(folder).st_dev:
            raise RingError("on another file system than its folder")
        # Two users may give their rings one name, and a name may come again.
        key = f"{where}/{name}#{inode}"
        return RingFile(descriptor, key, boot_id=boot_id, now_ns=now_ns)
    except BaseException:
        os.close(descriptor)
        raise


def _is_made_here(name: str, inode: int, folder: int) -> bool:
    """Whether this process itself has the ring open.

    The pid in the name alone does not say so: a process in a container may
    have the same one.
    """
    if name.partition("-")[0] != str(os.getpid()):
        return False
    device = os.fstat(folder).st_dev
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            status = os.fstat(int(descriptor.name))
            if (status.st_ino, status.st_dev) == (inode, device):
                return True
    return False


def unlink_if_ours(place: Place, owner_uid: int, folder: int) -> None:
    """Remove the file of a ring, if this user may be the one to do so."""
    _, name, inode = place
    if os.geteuid() not in (0, owner_uid):
        return
    with contextlib.suppress(OSError):
        if os.stat(name, dir_fd=folder, follow_symlinks=False).st_ino == inode:
            os.unlink(name, dir_fd=folder)
