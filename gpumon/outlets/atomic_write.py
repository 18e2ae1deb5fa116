"""Writes a file completely or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from gpumon.errors import UnwritableFileError


def write_whole(path: str, body: bytes) -> None:
    """Write a file that a user named.

    A link is followed, an existing file keeps its mode, and a pipe or device is written to
    directly.

    Raises:
        UnwritableFileError: It cannot be written; an existing file is unchanged.
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


def check_folder(path: str) -> None:
    """Refuse a file whose folder cannot be written to, before there is something to write.

    Raises:
        UnwritableFileError: The folder does not exist, or permits no new file.
    """
    try:
        folder = Path(path).resolve().parent
        if not folder.is_dir():
            raise FileNotFoundError(0, f"there is no folder {folder}")
        if not os.access(folder, os.W_OK | os.X_OK) and not Path(path).exists():
            raise PermissionError(0, f"the folder {folder} permits no new file")
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UnwritableFileError(f"{path}: cannot be written: {reason}") from error


def replace_file(target: Path, body: bytes, *, mode: int | None, is_synced: bool = False) -> None:
    """Write a temporary file and rename it, so that no reader sees part of it.

    Args:
        target: A link is replaced, not followed.
        body: The content.
        mode: The file's mode; ``None``: by the umask.
        is_synced: Whether to sync it to disk before it is renamed.

    Raises:
        OSError: It cannot be written; an existing file is unchanged, and no temporary file stays.
    """
    temporary = target.with_name(f".gpumon-{os.getpid()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(temporary, flags, 0o666)
        try:
            if mode is not None:
                os.fchmod(descriptor, mode)
            unwritten = memoryview(body)
            while unwritten:
                unwritten = unwritten[os.write(descriptor, unwritten) :]
            if is_synced:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(target)
    except BaseException:
        # A partial file would take up the last space of a full disk.
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
