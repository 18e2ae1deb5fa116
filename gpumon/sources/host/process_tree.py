"""A training's process and all that descend from it, found by descent and not by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.sources.host.kept_files import KeptFiles
from gpumon.sources.host.process_tasks import ProcessTasks

MOST_WORKERS: Final = 256
"""Processes that descend from one training; of more, those found first."""
MOST_IN_ALL: Final = 4_096
"""Threads of one training's processes; of workers that have no part in it, their first ones."""
_LIST_NS: Final = 10 * NS_PER_S
"""So long a list of threads and workers is believed: less where threads or workers come and go.

Who starts workers mostly starts a thread that feeds them, which costs less to see.
"""


class ProcessTree:
    """One training's processes, from look to look.

    Attributes:
        root: The process that trains.
        workers: Those that it started, and those that these did, by pid.
    """

    def __init__(self, pid: int, files: KeptFiles, proc: str = "/proc") -> None:
        """Read nothing yet."""
        self._files, self._proc = files, proc
        self.root = ProcessTasks(pid, files, proc)
        self.workers: dict[int, ProcessTasks] = {}
        self._changed_ns = self._list_ns = 0

    def __iter__(self) -> Iterator[ProcessTasks]:
        yield self.root
        yield from self.workers.values()

    def advance(self, now_ns: int, looked_boot_s: float | None) -> bool:
        """Read the counters of every task; whether it was listed anew.

        Args:
            now_ns: CLOCK_MONOTONIC.
            looked_boot_s: When it was looked at before, CLOCK_BOOTTIME: of a thread or worker
                that began since then, all that it counts is new; ``None``: never.

        Raises:
            OSError: The process that trains is gone, or hidden.
            ValueError: The kernel says something else than it should.
        """
        if self.root.has_other_threads():
            self._changed_ns = self._list_ns = now_ns
        is_due = now_ns >= self._list_ns
        if is_due:
            self._list_ns = now_ns + min(_LIST_NS, (now_ns - self._changed_ns) // 2)
            self._list(looked_boot_s)
        self.root.advance(now_ns, with_switches=True)
        gone = [pid for pid, worker in self.workers.items() if not worker.advanced(now_ns)]
        for pid in gone:
            self.workers.pop(pid).close()
            self._list_ns = 0  # others may have come in its place
        return is_due

    def close(self) -> None:
        """Let go of all that is open."""
        for process in self:
            process.close()

    def _list(self, looked_boot_s: float | None) -> None:
        self.root.list_threads(looked_boot_s)
        room = MOST_IN_ALL - sum(map(len, self))
        for worker in self.workers.values():
            with suppress(OSError):  # it ended, as its counters will say
                if worker.has_other_threads():
                    room += len(worker)
                    worker.list_threads(looked_boot_s, room)
                    room -= len(worker)
        asked = [self.root, *self.workers.values()]
        while asked:
            parent = asked.pop()
            for pid in _children_of(parent):
                if pid in self.workers or len(self.workers) >= MOST_WORKERS:
                    continue
                worker = ProcessTasks(pid, self._files, self._proc)
                with suppress(OSError):  # it ended meanwhile
                    worker.list_threads(looked_boot_s, room)
                    room -= len(worker)
                    self.workers[pid] = worker
                    asked.append(worker)


def _children_of(process: ProcessTasks) -> list[int]:
    try:
        return process.new_children()
    except (OSError, ValueError):
        return []
