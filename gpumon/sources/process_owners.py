"""Whose a process is, by its pid on this host. Never what it is called, or its words."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_INITIAL_PID_NAMESPACE: Final = "pid:[4026531836]"
"""The kernel's own number of it: only there does /proc show the pids that the driver means."""
_WORKS_FOR_OTHERS: Final = b"nvidia-cuda-mps"
"""The beginning, as long as the kernel keeps a name, of ``nvidia-cuda-mps-server``: it computes
for its clients, who can be of several users, and older drivers list it in their place."""
_EFFECTIVE: Final = 1
"""Its place in ``Uid:``: the one that files are made with."""


class ProcessOwners:
    """Asks the kernel. ``/proc/<pid>`` itself belongs to root where a process changed its user."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        """Take where the kernel shows processes."""
        self._proc = proc if shows_all_pids(proc) else None

    def uid(self, pid: int) -> int | None:
        """The number of the user whose process it is.

        Returns:
            ``None`` where nothing tells (it is gone, hidden, or pids here are not those that
            the driver means), and of a process that works for others.
        """
        if self._proc is None:
            return None
        try:
            status = (self._proc / str(pid) / "status").read_bytes()
        except OSError:
            return None
        for line in status.splitlines():
            name, _, said = line.partition(b":")
            if name == b"Name" and said.strip() == _WORKS_FOR_OTHERS:
                return None
            if name == b"Uid":
                uids = said.split()
                effective = uids[_EFFECTIVE] if len(uids) > _EFFECTIVE else b""
                return int(effective) if effective.isdigit() else None
        return None


def shows_all_pids(proc: Path) -> bool:
    """Whether ``/proc`` has the pids that the driver means.

    In a container with pids of its own, a number there is another process.
    """
    try:
        return str((proc / "self/ns/pid").readlink()) == _INITIAL_PID_NAMESPACE
    except OSError:
        return False
