"""How many cores the descendants of a process want, and get."""

from __future__ import annotations

import time
from typing import NamedTuple

from gpumon.sources.host.kept_files import KeptFiles
from gpumon.sources.host.process_tasks import ProcessTasks, Span
from gpumon.sources.host.run_inspection import ProcessTree


class CoresOfProcess(NamedTuple):
    """Cores of one process with all its threads, as a mean.

    Attributes:
        wanted_cores: In which it ran, or was ready and waited for a core: 1 is one core.
        got_cores: In which it ran.
    """

    pid: int
    wanted_cores: float
    got_cores: float


class CoresOfTree(NamedTuple):
    """Cores between two measurements; times are of CLOCK_MONOTONIC.

    Attributes:
        root: The process itself.
        workers: Its descendants that live at the end.
    """

    start_ns: int
    end_ns: int
    root: CoresOfProcess
    workers: tuple[CoresOfProcess, ...]


class WorkerCores:
    """Measures the time of one process and its descendants on cores and in the run queue."""

    def __init__(self, pid: int, proc: str = "/proc") -> None:
        self._files = KeptFiles()
        self._tree = ProcessTree(pid, self._files, proc)
        self._measured_ns: int | None = None
        self._measured_boot_s: float | None = None

    def measure(self, now_ns: int) -> CoresOfTree | None:
        """Since the last call; ``None``: it is the first, the process is gone, or is hidden.

        Calls are some hundred milliseconds apart, or more. Of a worker that is older than the
        first call that finds it, nothing counts until the next.
        """
        before_ns, self._measured_ns = self._measured_ns, now_ns
        try:
            self._tree.advance(now_ns, self._measured_boot_s)
        except (OSError, ValueError):
            self._measured_ns = None
            return None
        self._measured_boot_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        if before_ns is None or before_ns >= now_ns:
            return None
        span = Span(before_ns, now_ns)
        root, *workers = (_cores_of(process, span) for process in self._tree)
        return CoresOfTree(before_ns, now_ns, root, tuple(workers))

    def close(self) -> None:
        self._tree.close()


def _cores_of(process: ProcessTasks, span: Span) -> CoresOfProcess:
    task = process.whole(span, with_state=False, may_wait=False)
    return CoresOfProcess(process.pid, task.wanted_cores, task.on_cpu_cores)
