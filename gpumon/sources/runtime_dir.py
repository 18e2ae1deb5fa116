"""The folder a daemon lives in: made, checked, and found again by readers."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gpumon.core.runtime_paths import (
    PHASES,
    PRIVATE_MODE,
    RUNTIME_VARIABLE,
    SHARED_MODE,
    STATE_FILE,
    SYSTEM_FOLDER,
    FolderFacts,
    daemon_folders,
    distrust,
    explicit_folder,
    reader_patterns,
)
from gpumon.core.units import NS_PER_S
from gpumon.errors import GpumonError
from gpumon.sources.path_patterns import matching_paths

NAME_A_FOLDER: Final = f"name a folder of yours in ${RUNTIME_VARIABLE}"
_STATE_MAX_BYTES: Final = 8 << 20
_STALE_AFTER_PERIODS: Final = 3
_STALE_AFTER_NS: Final = 3 * NS_PER_S
_LOCK_FILE: Final = "daemon.lock"
_SYSTEM_MODE: Final = 0o755


def claim_runtime_dir(environ: Mapping[str, str] | None = None, uid: int | None = None) -> Path:
    """Make, where need be, and check the folder a daemon keeps its state and the rings in.

    The superuser's is ``/run/gpumon``, where everybody may put a ring; any
    other is its owner's alone. ``$GPUMON_RUNTIME_DIR`` overrules both.

    Args:
        environ: Environment variables; this process' own by default.
        uid: Who asks; the effective user by default.

    Returns:
        The folder; ``phases`` lies in it.

    Raises:
        GpumonError: No folder can be made or trusted; says why.
    """
    environ = os.environ if environ is None else environ
    uid = os.geteuid() if uid is None else uid
    troubles = []
    for folder in daemon_folders(environ, uid):
        is_explicit = explicit_folder(environ) is not None
        trouble = _claim(folder, uid, explicit=is_explicit)
        if trouble is None:
            return folder
        troubles.append(trouble)
    raise GpumonError(f"no runtime folder: {'; '.join(troubles)}: {NAME_A_FOLDER}")


def hold_runtime_dir(folder: Path) -> int:
    """Make sure that no other daemon lives in the folder, for as long as this process does.

    Returns:
        A file descriptor; the folder is free again once it is closed.

    Raises:
        GpumonError: Another daemon lives there; says which, and what to do.
    """
    path = folder / _LOCK_FILE
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        raise GpumonError(f"cannot write {path}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        pid = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(descriptor)
        raise GpumonError(
            f"a gpumon daemon (pid {pid}) already keeps its state in {folder}: use that one, "
            "stop it, or name another folder in $GPUMON_RUNTIME_DIR"
        ) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode("ascii"), 0)
    return descriptor


def ring_folders(claimed: Path) -> tuple[str, ...]:
    """Where a daemon that lives in ``claimed`` looks for rings, as shell patterns."""
    patterns = reader_patterns(os.environ, os.geteuid())
    own = str(claimed)
    return (own, *(pattern for pattern in patterns if pattern != own))


def find_state_file(
    environ: Mapping[str, str] | None = None,
    uid: int | None = None,
    *,
    now_ns: int | None = None,
) -> Path | None:
    """The state file of a daemon that runs now; ``None`` where none does.

    Args:
        environ: Environment variables; this process' own by default.
        uid: Who asks; the effective user by default.
        now_ns: CLOCK_MONOTONIC; now by default.
    """
    environ = os.environ if environ is None else environ
    uid = os.geteuid() if uid is None else uid
    now_ns = time.monotonic_ns() if now_ns is None else now_ns
    for folder in matching_paths(reader_patterns(environ, uid)):
        if _is_fresh(folder / STATE_FILE, now_ns):
            return folder / STATE_FILE
    return None


def runtime_dir_trouble(
    environ: Mapping[str, str] | None = None, uid: int | None = None
) -> str | None:
    """Why no daemon could live here, as a sentence; ``None`` where one could. Makes nothing."""
    environ = os.environ if environ is None else environ
    uid = os.geteuid() if uid is None else uid
    troubles = []
    for folder in daemon_folders(environ, uid):
        trouble = _trouble(folder, uid, explicit=explicit_folder(environ) is not None)
        if trouble is None:
            return None
        troubles.append(trouble)
    return "; ".join(troubles)


def _claim(folder: Path, uid: int, *, explicit: bool) -> str | None:
    is_system = folder == SYSTEM_FOLDER
    phases = folder / PHASES
    try:
        _make(folder, _SYSTEM_MODE if is_system else PRIVATE_MODE, parents=explicit)
        trouble = _trouble(folder, uid, explicit=explicit)
        if trouble is None:
            _make(phases, SHARED_MODE if is_system else PRIVATE_MODE)
            trouble = _distrust(phases, uid, explicit=explicit)
    except OSError as error:
        return f"{folder}: {error.strerror or error}"
    return trouble


def _make(folder: Path, mode: int, *, parents: bool = False) -> None:
    """Make a folder of exactly this mode, whatever the umask; leave one that is there alone."""
    try:
        folder.mkdir(mode=mode, parents=parents)
    except FileExistsError:
        return
    folder.chmod(mode)


def _trouble(folder: Path, uid: int, *, explicit: bool) -> str | None:
    try:
        trouble = _distrust(folder, uid, explicit=explicit)
        nearest = folder
    except FileNotFoundError:
        trouble, nearest = None, _nearest_existing(folder)
    except OSError as error:
        return f"{folder}: {error.strerror or error}"
    if trouble is None and not os.access(nearest, os.W_OK | os.X_OK):
        unwritable = f"{nearest} cannot be written"
        return unwritable if nearest == folder else f"{folder}: {unwritable}"
    return trouble


def _nearest_existing(folder: Path) -> Path:
    return next((parent for parent in folder.parents if parent.exists()), Path("/"))


def _distrust(folder: Path, uid: int, *, explicit: bool) -> str | None:
    status = folder.lstat()
    return distrust(folder, FolderFacts(status.st_mode, status.st_uid), uid=uid, explicit=explicit)


def _is_fresh(path: Path, now_ns: int) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    with os.fdopen(descriptor, "rb") as file:
        try:
            document = json.loads(file.read(_STATE_MAX_BYTES))
        except (OSError, ValueError, RecursionError):
            return False
    if not isinstance(document, dict):
        return False
    taken_ns, period_ns = document.get("monotonic_ns"), document.get("period_ns")
    if not isinstance(taken_ns, int) or not isinstance(period_ns, int):
        return False
    age_ns = now_ns - taken_ns
    return -NS_PER_S <= age_ns <= max(_STALE_AFTER_PERIODS * period_ns, _STALE_AFTER_NS)
