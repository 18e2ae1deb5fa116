"""Runtime folders in which gpumon and training runs meet, and which of them to trust."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.core.wording import listed

RUNTIME_VARIABLE: Final = "GPUMON_RUNTIME_DIR"
SYSTEM_FOLDER: Final = Path("/run/gpumon")
PHASES: Final = "phases"
RING_SUFFIX: Final = ".ring"
WATCH_SUFFIX: Final = ".watch"
STATE_FILE: Final = "state.json"
STATE_SCHEMA: Final = "gpumon.state/1"
MAX_STATE_BYTES: Final = 8 << 20
"""A larger file is not read to its end, and so is no valid state."""
FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""For files that other users may have put there: follow no link, wait for no FIFO."""
FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
SHARED_MODE: Final = 0o1777
PRIVATE_MODE: Final = 0o700


def stale_after_ns(period_ns: int) -> int:
    """The age from which a state's daemon is taken to be gone.

    >>> stale_after_ns(100_000_000), stale_after_ns(5_000_000_000)
    (3000000000, 15000000000)
    """
    return 3 * max(period_ns, NS_PER_S)


def is_fresh(taken_ns: int, period_ns: int, now_ns: int) -> bool:
    """Whether a state is so recent that its daemon runs; times are CLOCK_MONOTONIC of one boot."""
    return -NS_PER_S <= now_ns - taken_ns <= stale_after_ns(period_ns)


def ring_name(pid: int, started_ns: int) -> str:
    """The name of a run's ring in ``phases``.

    Args:
        pid: As the run's process sees its own; outside a container it may be another's.
        started_ns: CLOCK_MONOTONIC.
    """
    return f"{pid}-{started_ns}{RING_SUFFIX}"


def may_be_ring_of(name: str, pid: int) -> bool:
    """Whether a file has the name of a ring of this process.

    >>> may_be_ring_of(ring_name(47, 11), 47), may_be_ring_of(ring_name(471, 1), 47)
    (True, False)
    """
    return name.startswith(f"{pid}-")


def watch_name(uid: int) -> str:
    """The name of a user's heartbeat in ``phases``: touched while that user's dstat runs.

    >>> watch_name(1000)
    '1000.watch'
    """
    return f"{uid}{WATCH_SUFFIX}"


def explicit_folder(environ: Mapping[str, str]) -> Path | None:
    """The folder in ``$GPUMON_RUNTIME_DIR``; ``None`` if unset or empty."""
    named = environ.get(RUNTIME_VARIABLE)
    return Path(named) if named else None


def _unless_named(environ: Mapping[str, str], *folders: Path) -> tuple[Path, ...]:
    named = explicit_folder(environ)
    return folders if named is None else (named,)


def own_folders(environ: Mapping[str, str], uid: int) -> tuple[Path, ...]:
    """Folders of one user, best first."""
    session = environ.get("XDG_RUNTIME_DIR")
    of_session = (Path(session) / "gpumon",) if session and session.startswith("/") else ()
    return (*of_session, Path(f"/tmp/gpumon-{uid}"))


def writer_folders(
    environ: Mapping[str, str], uid: int, *, system_folder_has_phases: bool
) -> tuple[Path, ...]:
    """Folders in which a run may put its ring, best first.

    >>> [str(p) for p in writer_folders({}, 7, system_folder_has_phases=True)]
    ['/run/gpumon', '/tmp/gpumon-7']
    """
    system = (SYSTEM_FOLDER,) if system_folder_has_phases else ()
    return _unless_named(environ, *system, *own_folders(environ, uid))


def daemon_folders(environ: Mapping[str, str], uid: int) -> tuple[Path, ...]:
    """Folders for a daemon, best first: it takes the first one that it may write."""
    own = () if uid == 0 else own_folders(environ, uid)
    return _unless_named(environ, SYSTEM_FOLDER, *own)


def reader_folders(environ: Mapping[str, str], uid: int) -> tuple[Path, ...]:
    """Folders that a daemon or run of this user, or the service, may use, best first.

    That includes the session's folder even if ``$XDG_RUNTIME_DIR`` does not name it, as in a
    cron job.

    >>> [str(p) for p in reader_folders({}, 7)]
    ['/run/gpumon', '/run/user/7/gpumon', '/tmp/gpumon-7']
    """
    *of_session, last = own_folders(environ, uid)
    found = (SYSTEM_FOLDER, *of_session, Path(f"/run/user/{uid}/gpumon"), last)
    return _unless_named(environ, *dict.fromkeys(found))


def reader_patterns(environ: Mapping[str, str], uid: int) -> tuple[str, ...]:
    """Shell patterns of folders with rings and state files, best first.

    The superuser also reads every user's folders, for runs that began before ``/run/gpumon``
    existed.

    >>> reader_patterns({"GPUMON_RUNTIME_DIR": "/data/[1]"}, 7)
    ('/data/[[]1]',)
    >>> reader_patterns({}, 0)[2:]
    ('/tmp/gpumon-0', '/run/user/*/gpumon', '/tmp/gpumon-*')
    """
    own = tuple(glob.escape(str(folder)) for folder in reader_folders(environ, uid))
    return (*own, *_all_users_patterns(environ, uid))


def reader_folder_text(environ: Mapping[str, str], uid: int) -> str:
    """The folders of ``reader_patterns`` as text.

    >>> reader_folder_text({}, 7)
    '/run/gpumon, /run/user/7/gpumon and /tmp/gpumon-7'
    >>> reader_folder_text({"GPUMON_RUNTIME_DIR": "/data"}, 7)
    '/data, which $GPUMON_RUNTIME_DIR names'
    """
    explicit = explicit_folder(environ)
    if explicit is not None:
        return f"{explicit}, which ${RUNTIME_VARIABLE} names"
    of_all_users = _all_users_patterns(environ, uid)
    own = [str(folder) for folder in reader_folders(environ, uid)]
    named = [folder for folder in own if not (of_all_users and folder.startswith("/run/user/"))]
    return listed([*named, *of_all_users], most=5)


def other_folder_text(environ: Mapping[str, str], uid: int, taken: Path) -> str:
    """Folders that are searched for rings besides the daemon's own, as text; empty: none.

    >>> other_folder_text({}, 7, Path("/tmp/gpumon-7"))
    '/run/gpumon and /run/user/7/gpumon'
    >>> other_folder_text({}, 0, Path("/run/gpumon"))
    "everybody's /run/user/UID/gpumon and /tmp/gpumon-UID"
    """
    if explicit_folder(environ) is not None:
        return ""
    others = [str(folder) for folder in reader_folders(environ, uid) if folder != taken]
    if not _all_users_patterns(environ, uid):
        return listed(others)
    usual = (f"/run/user/{uid}/gpumon", f"/tmp/gpumon-{uid}")
    of_all_users = "everybody's /run/user/UID/gpumon and /tmp/gpumon-UID"
    return listed([*(folder for folder in others if folder not in usual), of_all_users])


def _all_users_patterns(environ: Mapping[str, str], uid: int) -> tuple[str, ...]:
    is_only_one = explicit_folder(environ) is not None
    return () if uid != 0 or is_only_one else ("/run/user/*/gpumon", "/tmp/gpumon-*")


def is_squatted(path: Path, owner_uid: int) -> bool:
    """Whether a folder has another user's name: anyone can make thousands of them in ``/tmp``.

    >>> is_squatted(Path("/tmp/gpumon-7"), 8), is_squatted(Path("/tmp/gpumon-7"), 7)
    (True, False)
    >>> is_squatted(Path("/tmp/gpumon-0x7"), 7), is_squatted(Path("/run/user/7/gpumon"), 7)
    (True, False)
    """
    _, is_named, uid = path.name.partition("gpumon-")
    return bool(is_named) and str(owner_uid) not in (uid, "0")


def distrust(path: Path, status: os.stat_result, *, uid: int, explicit: bool) -> str | None:
    """Why a folder must not be used, as a sentence; ``None`` if it may.

    In ``/tmp`` anyone can make a folder of any name. One that is a link, belongs to another user,
    or can be written by others would let them read, replace or remove its files. A folder that
    the user named may be another user's.
    """
    if stat.S_ISLNK(status.st_mode):
        return f"{path} is a link: name the folder itself"
    if not stat.S_ISDIR(status.st_mode):
        return f"{path} is not a folder"
    # Only the superuser can make /run/gpumon, and gives it to the service's own user.
    by_superuser = status.st_uid == 0 or path.is_relative_to(SYSTEM_FOLDER)
    if not explicit and not by_superuser and status.st_uid != uid:
        return f"{path} belongs to user {status.st_uid}"
    if status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
        return f"{path} can be written by others: chmod 0700 it"
    return None


def is_shared(status: os.stat_result) -> bool:
    """Whether runs of several users put their rings there."""
    return bool(status.st_mode & 0o002)
