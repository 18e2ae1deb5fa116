"""Which file the store is, and whether it can be trusted."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gpumon.core.ring_format.runtime_paths import PRIVATE_MODE
from gpumon.errors import GpumonError

FILE_NAME: Final = "store.sqlite3"
FILE_MODE: Final = 0o600
SIDE_SUFFIXES: Final = ("-wal", "-journal", "-shm")
"""Of the files that SQLite keeps beside it."""
MAX_FILE_BYTES: Final = 64_000_000
_UNBELIEVABLE_BYTES: Final = 2 * MAX_FILE_BYTES


class StoreError(GpumonError):
    """The store cannot be used now; says why."""


def store_path(environ: Mapping[str, str] = os.environ) -> Path:
    """The file of the store, in ``$STATE_DIRECTORY``, ``$XDG_STATE_HOME`` or the home folder.

    >>> str(store_path({"STATE_DIRECTORY": "/var/lib/gpumon:/var/lib/other", "HOME": "/root"}))
    '/var/lib/gpumon/store.sqlite3'
    >>> str(store_path({"XDG_STATE_HOME": "state", "HOME": "/home/ann"}))
    '/home/ann/.local/state/gpumon/store.sqlite3'
    """
    of_service = environ.get("STATE_DIRECTORY", "").partition(":")[0]
    if of_service.startswith("/"):
        return Path(of_service) / FILE_NAME
    of_session = environ.get("XDG_STATE_HOME", "")
    home = environ.get("HOME") or Path("~").expanduser()
    state = Path(of_session) if of_session.startswith("/") else Path(home) / ".local/state"
    return state / "gpumon" / FILE_NAME


def prepare(path: Path) -> None:
    """Make the folder and the file for their owner alone, and follow no link to either.

    Others cannot write into the folder, so what was checked stays as it is.

    Raises:
        StoreError: They cannot be made, or are not what they should be.
    """
    folder = path.parent
    try:
        if not folder.parent.is_dir():
            folder.parent.mkdir(mode=PRIVATE_MODE, parents=True)
        if not os.path.lexists(folder):
            folder.mkdir(mode=PRIVATE_MODE)
        _check(folder, folder.lstat(), is_folder=True)
        if folder.stat().st_mode & ~PRIVATE_MODE & 0o777:
            folder.chmod(folder.stat().st_mode & PRIVATE_MODE)
        for suffix in SIDE_SUFFIXES:
            side = Path(f"{path}{suffix}")
            if os.path.lexists(side):
                _check(side, side.lstat())
        if os.path.lexists(path):
            _check(path, path.lstat())
        else:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            os.close(os.open(path, flags, FILE_MODE))
        path.chmod(FILE_MODE)
    except OSError as error:
        raise StoreError(f"{error.filename or path}: {error.strerror or error}") from error


def _check(path: Path, status: os.stat_result, *, is_folder: bool = False) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise StoreError(f"{path} is a link: name the folder itself, or remove the link")
    if is_folder and not stat.S_ISDIR(status.st_mode):
        raise StoreError(f"{path} is not a folder: move it away")
    if not is_folder and not stat.S_ISREG(status.st_mode):
        raise StoreError(f"{path} is not a regular file: move it away")
    if status.st_uid != os.geteuid():
        raise StoreError(f"{path} belongs to user {status.st_uid}: run gpumon as that user")
    if not is_folder and status.st_size > _UNBELIEVABLE_BYTES:
        raise StoreError(
            f"{path} has {status.st_size:,} bytes, and gpumon keeps at most {MAX_FILE_BYTES:,}: "
            "move it away"
        )
