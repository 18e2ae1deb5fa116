"""A training process and its descendants, found by descent and not by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.sources.host.kept_files import KeptFiles
from gpumon.sources.host.process_tasks import ProcessTasks

MOST_WORKERS: Final = 256
"""Descendants of one training process; of more, those found first."""
MOST_IN_ALL: Final = 4_096
"""Threads of all these processes; of workers beyond that, only their first threads."""
_LIST_NS: Final = 10 * NS_PER_S
"""How often threads and workers are listed; more often where they come and go.

A process that starts workers mostly starts a thread that feeds them, which is cheaper to notice.
"""


class ProcessTree:
    """The processes of one run.

    Attributes:
        root: The training process.
        workers: Its descendants, by pid.
    """

    def __init__(self, pid: int, files: KeptFiles, proc: str = "/proc") -> None:
        self._files, self._proc = files, proc
        self.root = ProcessTasks(pid, files, proc)
        self.workers: dict[int, ProcessTasks] = {}
        self._changed_ns = self._list_ns = 0

    def __iter__(self) -> Iterator[ProcessTasks]:
        yield self.root
        yield from self.workers.values()

    def advance(self, now_ns: int, inspected_boot_s: float | None) -> bool:
        """Read the counters of every task; return whether tasks were listed again.

        ``inspected_boot_s`` is the time of the last inspection, CLOCK_BOOTTIME: everything that a
        thread or worker that began since then counts is new.

        Raises:
            OSError: The training process is gone, or hidden.
            ValueError: A file of the kernel has another form than expected.
        """
        if self.root.has_other_threads():
            self._changed_ns = self._list_ns = now_ns
        is_due = now_ns >= self._list_ns
        if is_due:
            self._list_ns = now_ns + min(_LIST_NS, (now_ns - self._changed_ns) // 2)
            self._list(inspected_boot_s)
        self.root.advance(now_ns, with_switches=True)
        gone = [pid for pid, worker in self.workers.items() if not worker.advanced(now_ns)]
        for pid in gone:
            self.workers.pop(pid).close()
            self._list_ns = 0  # other processes may have replaced it
        return is_due

    def close(self) -> None:
        for process in self:
            process.close()

    def _list(self, inspected_boot_s: float | None) -> None:
        self.root.list_threads(inspected_boot_s)
        room = MOST_IN_ALL - sum(map(len, self))
        for worker in self.workers.values():
            with suppress(OSError):  # it ended, as its counters will say
                if worker.has_other_threads():
                    room += len(worker)
                    worker.list_threads(inspected_boot_s, room)
                    room -= len(worker)
        pending = [self.root, *self.workers.values()]
        while pending:
            parent = pending.pop()
            for pid in _children_of(parent):
                if pid in self.workers or len(self.workers) >= MOST_WORKERS:
                    continue
                worker = ProcessTasks(pid, self._files, self._proc)
                with suppress(OSError):  # it ended meanwhile
                    worker.list_threads(inspected_boot_s, room)
                    room -= len(worker)
                    self.workers[pid] = worker
                    pending.append(worker)


def _children_of(process: ProcessTasks) -> list[int]:
    try:
        return process.new_children()
    except (OSError, ValueError):
        return []
