"""Writes a file whole or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from gpumon.errors import UnwritableFileError


def write_whole(path: str, body: bytes) -> None:
    """Write beside the file, then take its place: nobody ever sees a part of it.

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
        _replace(target, body)
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: a link to itself
        reason = getattr(error, "strerror", None) or str(error)
        raise UnwritableFileError(f"{path}: cannot be written: {reason}") from error


def _replace(target: Path, body: bytes) -> None:
    if target.is_dir():
        raise IsADirectoryError(0, "is a directory")
    beside = target.with_name(f".gpumon-{os.getpid()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(beside, flags, 0o666), "wb") as stream:
            if target.exists():
                os.fchmod(stream.fileno(), target.stat().st_mode & 0o7777)
            stream.write(body)
            stream.flush()
            os.fsync(stream.fileno())
        beside.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
