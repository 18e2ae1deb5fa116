"""The user and the name of a process, by its pid on this host, and never its arguments.

The user's number is read where it decides something, names only where gpumon's user asked for
them. A command line can contain passwords and people's names, so only the program's own name is
kept.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.core.wording import label_text

_INITIAL_PID_NAMESPACE: Final = "pid:[4026531836]"
"""Only in the initial namespace does /proc show the pids that the driver reports."""
_WORKS_FOR_OTHERS: Final = re.compile(rb"^Name:\tnvidia-cuda-mps$", re.MULTILINE)
"""The beginning of ``nvidia-cuda-mps-server``, as the kernel truncates names: it computes for
clients of several users, and older drivers list it in their place."""
_EFFECTIVE_UID: Final = re.compile(rb"^Uid:\t\d+\t(\d+)", re.MULTILINE)
"""The user that owns the files it creates."""


class Owner(NamedTuple):
    """The user of a process.

    Attributes:
        uid: The user's number; ``None`` if unknown (the process is gone or hidden, or the driver
            reports pids of another namespace), and for a process that works for other users.
        is_hidden: Whether it runs, and ``/proc`` hides its user (``hidepid``).
        serves_others: Whether it works for other users.
    """

    uid: int | None
    is_hidden: bool = False
    serves_others: bool = False


class ProcessOwners:
    """Reads users from ``status``: ``/proc/<pid>`` belongs to root after a change of user."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc if shows_all_pids(proc) else None

    def owner(self, pid: int) -> Owner:
        status = _read(pid, "status", self._proc)
        if not status:
            return Owner(None, is_hidden=self._proc is not None and _exists(pid))
        if _WORKS_FOR_OTHERS.search(status):
            return Owner(None, serves_others=True)
        uid = _EFFECTIVE_UID.search(status)
        return Owner(None if uid is None else int(uid[1]))


def _exists(pid: int) -> bool:
    """Whether there is such a process, even if ``/proc`` hides it; sends no signal."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


def shows_all_pids(proc: Path) -> bool:
    """Whether ``/proc`` has the pids that the driver reports.

    In a container with its own pid namespace, a pid is another process.
    """
    try:
        return str((proc / "self/ns/pid").readlink()) == _INITIAL_PID_NAMESPACE
    except OSError:
        return False


def _read(pid: int, file: str, proc: Path | None) -> bytes:
    try:
        return b"" if proc is None else (proc / str(pid) / file).read_bytes()
    except OSError:
        return b""


class ProcessNames:
    """Caches the names of processes while they are on one GPU, and the names of users."""

    def __init__(
        self, ask_driver: Callable[[int], str | None], *, proc: Path = Path("/proc")
    ) -> None:
        self._ask_driver = ask_driver
        self._proc = proc if shows_all_pids(proc) else None
        self._names: dict[int, str | None] = {}
        self._users: dict[int, str] = {}

    def keep_only(self, pids: set[int]) -> None:
        """Forget all other processes: a pid can be reused."""
        self._names = {pid: name for pid, name in self._names.items() if pid in pids}

    def name(self, pid: int) -> str | None:
        """Return the program's name: at most 128 printable characters, no folder or arguments."""
        if pid not in self._names:
            raw = (self._ask_driver(pid) or "").strip()
            raw = raw or _read(pid, "comm", self._proc).decode("utf-8", errors="replace")
            self._names[pid] = _program(raw) or None
        return self._names[pid]

    def user(self, uid: int | None) -> str | None:
        """Return the name of that user, or its number if it has none."""
        if uid is None:
            return None
        if uid not in self._users:
            self._users[uid] = user_name(uid)
        return self._users[uid]


def user_name(uid: int) -> str:
    """The name of that user, or its number if it has none."""
    try:
        return label_text(pwd.getpwuid(uid).pw_name)
    except (KeyError, OverflowError):
        return str(uid)


def hides_users(proc: Path = Path("/proc")) -> bool:
    """Whether ``/proc`` hides processes of other users, as it shows of process 1."""
    return not _read(1, "status", proc)


def _program(raw: str) -> str:
    """Return the program's name in what may be a path, or a complete command line.

    >>> _program("/usr/bin/python3 train.py --password=hush")
    'python3'
    """
    arguments = raw.split(maxsplit=1)
    return label_text(arguments[0].rpartition("/")[2]) if arguments else ""
