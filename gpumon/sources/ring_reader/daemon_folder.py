"""The runtime folder of a daemon: made, checked and locked against a second daemon."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

from gpumon.core.ring_format.runtime_paths import (
    FOLDER_FLAGS,
    PHASES,
    PRIVATE_MODE,
    RUNTIME_VARIABLE,
    SHARED_MODE,
    SYSTEM_FOLDER,
    daemon_folders,
    distrust,
    explicit_folder,
    reader_patterns,
)
from gpumon.errors import FolderInUseError, GpumonError

NAME_A_FOLDER: Final = f"name a folder of yours in ${RUNTIME_VARIABLE}"
_SYSTEM_MODE: Final = 0o755
_LOCK_FOLDER: Final = "daemon"
_OTHERS: Final = 0o077
_LOCK_TRIES: Final = 15
"""systemd-tmpfiles locks each folder for a moment while it cleans."""
_LOCK_REST_S: Final = 0.02

_Facts = tuple[int, int, int, int]
"""Device, inode, mode and owner of a folder."""


def claim_runtime_dir(
    environ: Mapping[str, str] = os.environ, *, modes: Mapping[Path, int] | None = None
) -> Path:
    """Make and check the folder in which a daemon keeps its state and the rings.

    The superuser's is ``/run/gpumon``, where every user may put a ring; any
    other is its owner's alone. ``$GPUMON_RUNTIME_DIR`` overrides both.

    Args:
        environ: The environment.
        modes: Of folders to be made with another mode than usual.

    Returns:
        The folder; ``phases`` lies in it.

    Raises:
        GpumonError: No folder can be made or trusted; says why.
    """
    folder, why = _first_usable(environ, partial(_claim, modes=modes or {}))
    if folder is None:
        raise _no_folder(why)
    return folder


def runtime_dir_to_be(environ: Mapping[str, str] = os.environ) -> tuple[Path | None, str]:
    """The folder that a daemon would use now, without making it.

    Returns:
        ``None`` if there is none, and why, as a sentence.
    """
    return _first_usable(environ, _trouble)


def _first_usable(
    environ: Mapping[str, str], trouble_with: Callable[..., str | None]
) -> tuple[Path | None, str]:
    uid, is_explicit = os.geteuid(), explicit_folder(environ) is not None
    troubles = []
    for folder in daemon_folders(environ, uid):
        trouble = trouble_with(folder, uid, explicit=is_explicit)
        if trouble is None:
            return folder, ""
        troubles.append(trouble)
    return None, "; ".join(troubles)


class LockedFolder:
    """A runtime folder that is locked for this daemon.

    If only its owner may open the folder, the lock is on the folder itself: then removing files
    lets no second daemon in, and systemd-tmpfiles leaves it alone. Any user who may open a folder
    may also lock it, so if others may, the lock is on a private folder inside.

    Attributes:
        path: The folder.
        is_lost: Whether neither it nor any other is usable now.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        """Make the first usable folder, as ``claim_runtime_dir`` does, and lock it.

        Raises:
            FolderInUseError: Another daemon uses it; says which, and what to do.
            GpumonError: There is no folder; says why.
        """
        self._environ = environ
        self._lock: int | None = None
        self._locked = Path()
        self._expected: dict[Path, _Facts] = {}
        self._modes: dict[Path, int] = {}
        self.is_lost = True
        self.path = self._claim()

    def keep(self) -> str | None:
        """Verify that the folder is still there; if not, make and lock one again.

        Returns:
            What happened to it, or why there is no folder now, as a
            sentence; ``None``: it is in order.

        Raises:
            FolderInUseError: Another daemon uses it by now; says which.
        """
        if not self.is_lost and all(
            _there(path) == facts for path, facts in self._expected.items()
        ):
            return None
        where, lost = self.path, None if self.is_lost else _first_gone(self._expected)
        try:
            self.path = self._claim()
        except FolderInUseError:
            raise
        except GpumonError as error:
            self.close()
            return str(error)
        if lost is not None:
            return f"{lost} was removed or replaced: the state is now kept in {self.path}"
        if self.path != where:
            return f"{where} cannot be used any more: the state is now kept in {self.path}"
        return None

    def close(self) -> None:
        """Release it. Safe to call twice."""
        self.is_lost = True
        if self._lock is not None:
            self._remove_locked_folder(self._lock)
            os.close(self._lock)
            self._lock = None

    def _remove_locked_folder(self, lock: int) -> None:
        """Remove the private folder if the outer folder's owner could not open it.

        Otherwise it stays: another user who fills the file system could prevent making it again.
        """
        place = self._locked
        with contextlib.suppress(OSError):
            found = os.lstat(place)
            is_within = place == self.path / _LOCK_FOLDER
            is_foreign = found.st_uid != os.lstat(self.path).st_uid
            if is_within and is_foreign and os.path.samestat(found, os.fstat(lock)):
                place.rmdir()

    def _claim(self) -> Path:
        folder = claim_runtime_dir(self._environ, modes=self._modes)
        try:
            self._lock_folder(folder)
        except OSError as error:
            raise _no_folder(f"{error.filename or folder}: {error.strerror or error}") from error
        self.is_lost = False
        return folder

    def _lock_folder(self, folder: Path) -> None:
        """Lock a folder, unless it is locked already, and note its inode, mode and owner."""
        itself, phases = os.lstat(folder), os.lstat(folder / PHASES)
        place = _folder_to_lock(folder, itself)
        descriptor = os.open(place, FOLDER_FLAGS)
        locked = os.fstat(descriptor)
        if self._lock is not None and os.path.samestat(locked, os.fstat(self._lock)):
            os.close(descriptor)
        else:
            _lock_or_close(descriptor, folder)
            self.close()
            self._lock, self._locked = descriptor, place
        claimed = {folder: itself, folder / PHASES: phases}
        self._modes = {path: stat.S_IMODE(status.st_mode) for path, status in claimed.items()}
        # Last, as it may have been replaced before it was locked.
        claimed[place] = locked
        self._expected = {path: _facts(status) for path, status in claimed.items()}


def ring_folders(claimed: Path) -> tuple[str, ...]:
    """Shell patterns of the folders in which a daemon in ``claimed`` looks for rings."""
    patterns = reader_patterns(os.environ, os.geteuid())
    own = glob.escape(str(claimed))
    return (own, *(pattern for pattern in patterns if pattern != own))


def matching_paths(patterns: Iterable[str]) -> Iterator[Path]:
    """Every path that matches a pattern, once, in the order of the patterns."""
    names = (sorted(glob.glob(pattern)) for pattern in patterns)  # noqa: PTH207 (absolute)
    yield from map(Path, dict.fromkeys(chain.from_iterable(names)))


def holder_of(folder: Path) -> int | None:
    """Pid of the daemon in a folder; ``None``: none is known."""
    try:
        itself = os.lstat(folder)
        place = os.lstat(folder / _LOCK_FOLDER) if itself.st_mode & _OTHERS else itself
    except OSError:
        return None
    holder = _holder(place)
    return int(holder) if holder.isdecimal() else None


def _no_folder(why: str) -> GpumonError:
    return GpumonError(f"no runtime folder: {why}: {NAME_A_FOLDER}")


def _claim(folder: Path, uid: int, *, explicit: bool, modes: Mapping[Path, int]) -> str | None:
    is_system = folder == SYSTEM_FOLDER
    phases = folder / PHASES
    usual = (_SYSTEM_MODE, SHARED_MODE) if is_system else (PRIVATE_MODE, PRIVATE_MODE)
    try:
        _make(folder, modes.get(folder, usual[0]), parents=explicit)
        trouble = _trouble(folder, uid, explicit=explicit)
        if trouble is None:
            _make(phases, modes.get(phases, usual[1]))
            trouble = folder_distrust(phases, uid, explicit=explicit)
    except OSError as error:
        return f"{folder}: {error.strerror or error}"
    return trouble


def _make(folder: Path, mode: int, *, parents: bool = False) -> None:
    """Make a folder of exactly this mode, whatever the umask; leave an existing one alone."""
    try:
        folder.mkdir(mode=mode, parents=parents)
    except FileExistsError:
        return
    folder.chmod(mode)


def _folder_to_lock(folder: Path, status: os.stat_result) -> Path:
    """The folder itself if only its owner may open it, else a private one inside, which is made.

    Raises:
        OSError: There is none.
    """
    if not status.st_mode & _OTHERS:
        return folder
    place = folder / _LOCK_FOLDER
    _make(place, PRIVATE_MODE)
    found = os.lstat(place)
    if found.st_mode & _OTHERS or found.st_uid not in (0, os.geteuid(), status.st_uid):
        raise PermissionError(errno.EPERM, "other users may open it: remove it", str(place))
    return place


def _lock_or_close(descriptor: int, folder: Path) -> None:
    for _ in range(_LOCK_TRIES):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(_LOCK_REST_S)
    pid = _holder(os.fstat(descriptor))
    os.close(descriptor)
    raise FolderInUseError(
        f"a gpumon daemon (pid {pid}) already keeps its state in {folder}: use that one, "
        f"stop it, or name another folder in ${RUNTIME_VARIABLE}"
    )


def _holder(place: os.stat_result) -> str:
    """Pid of the process that locked a folder, from the kernel's list of locks."""
    device = place.st_dev
    locked = f"{os.major(device):02x}:{os.minor(device):02x}:{place.st_ino}"
    with contextlib.suppress(OSError):
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            words = line.split()  # 3: FLOCK ADVISORY WRITE 1234 08:01:5678 0 EOF
            if words[1] == "FLOCK" and words[5] == locked:
                return words[4]
    return "unknown"


def _first_gone(seen: Mapping[Path, _Facts]) -> Path | None:
    """The first folder that is gone; another mode or owner does not count."""
    return next((path for path, facts in seen.items() if _there(path)[:2] != facts[:2]), None)


def _there(path: Path) -> _Facts | tuple[()]:
    try:
        return _facts(os.lstat(path))
    except OSError:
        return ()


def _facts(status: os.stat_result) -> _Facts:
    return (status.st_dev, status.st_ino, status.st_mode, status.st_uid)


def _trouble(folder: Path, uid: int, *, explicit: bool) -> str | None:
    try:
        trouble = folder_distrust(folder, uid, explicit=explicit)
        nearest = folder
    except FileNotFoundError:
        trouble = None
        nearest = next((parent for parent in folder.parents if parent.exists()), Path("/"))
    except OSError as error:
        return f"{folder}: {error.strerror or error}"
    if trouble is None and not os.access(nearest, os.W_OK | os.X_OK):
        unwritable = f"{nearest} cannot be written"
        return unwritable if nearest == folder else f"{folder}: {unwritable}"
    return trouble


def folder_distrust(folder: Path, uid: int, *, explicit: bool) -> str | None:
    """Why the folder must not be trusted, as a sentence; ``OSError`` if it does not exist."""
    return distrust(folder, folder.lstat(), uid=uid, explicit=explicit)
