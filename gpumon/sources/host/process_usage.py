"""How much of this machine the processes on its GPUs use, and the tree of their children."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from gpumon.core.wording import label_text
from gpumon.sources.process_owners import shows_all_pids, user_name

MAX_PROCESSES: Final = 200
"""Processes of a tree that are shown: loaders have dozens of workers."""


class HostProcess(NamedTuple):
    """A process of this machine.

    Attributes:
        depth: 0: it is on the GPU; more: generations below one that is.
        user: Its owner's name; empty: unknown, or ``/proc`` hides it.
        command: Its program's name, without arguments; empty: unknown.
        cpu_ratio: Cores that it kept busy since the last reading, 1.0 for a whole core; ``None``
            at the first one.
        memory_bytes: Its resident memory; ``None``: unknown.
    """

    pid: int
    depth: int
    user: str
    command: str
    cpu_ratio: float | None
    memory_bytes: int | None


class ProcessUsage:
    """Reads processes again and again; keeps what the shares of a core need."""

    def __init__(self) -> None:
        self._shows_all = shows_all_pids(Path("/proc"))
        self._known: dict[int, psutil.Process] = {}

    def read(self, pids: Iterable[int], *, tree: bool) -> list[HostProcess]:
        """These processes as they are now, each before its children if ``tree``.

        One that is gone, or that another namespace hides, is left out.
        """
        if not self._shows_all:
            return []
        children = _children() if tree else {}
        wanted: dict[int, int] = {}
        for pid in pids:
            _add_tree(pid, 0, children, wanted)
        fresh: dict[int, psutil.Process] = {}
        found = []
        for pid, depth in wanted.items():
            with suppress(psutil.Error, OSError):
                known = self._known.get(pid)
                is_new = known is None or not known.is_running()
                process = psutil.Process(pid) if known is None or is_new else known
                found.append(_usage(process, depth, is_new=is_new))
                fresh[pid] = process
        self._known = fresh
        return found


def _children() -> dict[int, list[int]]:
    """Pids of the children of each process."""
    children: dict[int, list[int]] = {}
    for process in psutil.process_iter(["ppid"]):
        children.setdefault(process.info["ppid"] or 0, []).append(process.pid)
    return children


def _add_tree(pid: int, depth: int, children: dict[int, list[int]], wanted: dict[int, int]) -> None:
    if pid in wanted or len(wanted) >= MAX_PROCESSES:
        return
    wanted[pid] = depth
    for child in children.get(pid, ()):
        _add_tree(child, depth + 1, children, wanted)


def _usage(process: psutil.Process, depth: int, *, is_new: bool) -> HostProcess:
    with process.oneshot():
        percent = process.cpu_percent(None)
        return HostProcess(
            pid=process.pid,
            depth=depth,
            user=user_name(process.uids().effective),
            command=label_text(process.name()),
            cpu_ratio=None if is_new else percent / 100,
            memory_bytes=process.memory_info().rss,
        )
