"""Whose a process is and what it is called, by its pid on this host, and never its words.

The user's number is asked for where it decides something; names only where the
user of gpumon asked for them. A command line can hold passwords and people's
names, so of what the driver or the kernel gives only the program's own name is
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
"""The kernel's own number of it: only there does /proc show the pids that the driver means."""
_WORKS_FOR_OTHERS: Final = re.compile(rb"^Name:\tnvidia-cuda-mps$", re.MULTILINE)
"""The beginning, as long as the kernel keeps a name, of ``nvidia-cuda-mps-server``: it computes
for its clients, who can be of several users, and older drivers list it in their place."""
_EFFECTIVE_UID: Final = re.compile(rb"^Uid:\t\d+\t(\d+)", re.MULTILINE)
"""The one that files are made with."""


class Owner(NamedTuple):
    """Whose a process is.

    Attributes:
        uid: The number of the user; ``None`` where it is unknown (it is gone, hidden, or pids
            here are not those that the driver means), and of a process that works for others.
        is_hidden: Whether it runs, and ``/proc`` does not show whose it is (``hidepid``).
        serves_others: Whether it works for others.
    """

    uid: int | None
    is_hidden: bool = False
    serves_others: bool = False


class ProcessOwners:
    """Asks the kernel. ``/proc/<pid>`` itself belongs to root where a process changed its user."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        """Take where the kernel shows processes."""
        self._proc = proc if shows_all_pids(proc) else None

    def owner(self, pid: int) -> Owner:
        """Whose that process is."""
        status = _read(pid, "status", self._proc)
        if not status:
            return Owner(None, is_hidden=self._proc is not None and _exists(pid))
        if _WORKS_FOR_OTHERS.search(status):
            return Owner(None, serves_others=True)
        uid = _EFFECTIVE_UID.search(status)
        return Owner(None if uid is None else int(uid[1]))


def _exists(pid: int) -> bool:
    """Whether there is such a process, also where ``/proc`` does not show it; no signal is sent."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


def shows_all_pids(proc: Path) -> bool:
    """Whether ``/proc`` has the pids that the driver means.

    In a container with pids of its own, a number there is another process.
    """
    try:
        return str((proc / "self/ns/pid").readlink()) == _INITIAL_PID_NAMESPACE
    except OSError:
        return False


def _read(pid: int, file: str, proc: Path | None) -> bytes:
    """What the kernel says of a process; nothing where it is gone, or hidden."""
    try:
        return b"" if proc is None else (proc / str(pid) / file).read_bytes()
    except OSError:
        return b""


class ProcessNames:
    """Remembers names while their processes are on one GPU, and what users are called."""

    def __init__(
        self, ask_driver: Callable[[int], str | None], *, proc: Path = Path("/proc")
    ) -> None:
        self._ask_driver = ask_driver
        self._proc = proc if shows_all_pids(proc) else None
        self._names: dict[int, str | None] = {}
        self._users: dict[int, str] = {}

    def keep_only(self, pids: set[int]) -> None:
        """Forget everybody who is not among these: a pid can come back as somebody else."""
        self._names = {pid: name for pid, name in self._names.items() if pid in pids}

    def name(self, pid: int) -> str | None:
        """The program's name: at most 128 printable characters, without its folder and words."""
        if pid not in self._names:
            raw = (self._ask_driver(pid) or "").strip()
            raw = raw or _read(pid, "comm", self._proc).decode("utf-8", errors="replace")
            self._names[pid] = _program(raw) or None
        return self._names[pid]

    def user(self, uid: int | None) -> str | None:
        """Who runs what belongs to that user; the number of a user without a name."""
        if uid is None:
            return None
        if uid not in self._users:
            try:
                self._users[uid] = label_text(pwd.getpwuid(uid).pw_name)
            except KeyError:
                self._users[uid] = str(uid)
        return self._users[uid]


def _program(raw: str) -> str:
    """The name of the program in what may be a path, or a whole command line.

    >>> _program("/usr/bin/python3 train.py --password=hush")
    'python3'
    """
    words = raw.split(maxsplit=1)
    return label_text(words[0].rpartition("/")[2]) if words else ""
