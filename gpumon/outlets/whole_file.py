"""Writes a file whole or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from gpumon.errors import UnwritableFileError


def write_whole(path: str, body: bytes) -> None:
    """Write a file that a user named.

    What is no regular file, such as a pipe or ``/dev/null``, is written to as it is.

    Args:
        path: Where to. A link is followed; a file that is there keeps its mode.
        body: All of it.

    Raises:
        UnwritableFileError: It cannot be written; what was there is untouched.
    """
    try:
        target = Path(path).resolve()
        if target.exists() and not target.is_file() and not target.is_dir():
            target.write_bytes(body)
            return
        if target.is_dir():
            raise IsADirectoryError(0, "is a directory")
        mode = target.stat().st_mode & 0o7777 if target.exists() else None
        replace_file(target, body, mode=mode, is_synced=True)
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: a link to itself
        reason = getattr(error, "strerror", None) or str(error)
        raise UnwritableFileError(f"{path}: cannot be written: {reason}") from error


def replace_file(target: Path, body: bytes, *, mode: int | None, is_synced: bool = False) -> None:
    """Write beside the file, then take its place: nobody ever sees a part of it.

    Args:
        target: Where to. A link is replaced, not followed.
        body: All of it.
        mode: The file's, whatever the umask; ``None``: as the umask has it.
        is_synced: Whether it is to be on the disk before it takes the place.

    Raises:
        OSError: It cannot be written; what was there is untouched, and nothing lies beside it.
    """
    beside = target.with_name(f".gpumon-{os.getpid()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(beside, flags, 0o666), "wb") as stream:
            if mode is not None:
                os.fchmod(stream.fileno(), mode)
            stream.write(body)
            stream.flush()
            if is_synced:
                os.fsync(stream.fileno())
        beside.replace(target)
    except BaseException:
        # What was written of it would take up the last of the space.
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
