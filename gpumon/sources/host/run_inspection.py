"""Inspect one run: its processes, found by descent, what they did, and what delayed them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from gpumon.core.clock import NS_PER_S, seconds
from gpumon.core.ring_format.events import RingReading
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.waits.evidence import MAX_TASKS, HostEvidence, TaskSample
from gpumon.core.waits.wait_rules import is_at_it
from gpumon.sources.host.cgroup_limits import CgroupLimits, total_of
from gpumon.sources.host.kept_files import KeptFiles
from gpumon.sources.host.machine_totals import MachineRates
from gpumon.sources.host.process_tasks import ProcessTasks, Span, inner_number, parse_stat

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


_DISK_MATTERS_FROM: Final = 0.25
"""A run can wait for a disk or memory only if that is busy or stalled for so much of the time."""
_WORKERS_WITH_STATE: Final = 4
_LONGEST_NS: Final = 30 * NS_PER_S
"""A mean over more time than this does not describe a tick."""
_SLACK_S: Final = 1.0
"""A process start is known in hundredths of a second, that of a ring in nanoseconds."""


class NotOursError(OSError):
    """The pid is not the process that wrote the ring."""


class RunInspection:
    """Inspects one run while it waits.

    Raises:
        NotOursError: Its pid is another process here.
        OSError: The process is gone, or hidden.
        ValueError: A file of the kernel has another form than expected.
    """

    def __init__(self, reading: RingReading, files: KeptFiles, proc: str = "/proc") -> None:
        self._files, self._proc, self._pid = files, proc, reading.host_pid
        self._inner_pid = reading.facts.pid
        self._threads: dict[int, int] = {}  # by their number inside the process
        self._tree = ProcessTree(self._pid, files, proc)
        self._limits = CgroupLimits(self._pid, files, proc)
        self._usable_cores: float | None = None
        self._inspected_ns: int | None = None
        self._inspected_boot_s: float | None = None
        if 0 < reading.read_at_ns - reading.facts.started_ns <= NS_PER_S:
            # Count the processes that it started since it began.
            self._inspected_ns = reading.facts.started_ns
            self._inspected_boot_s = seconds(self._inspected_ns) + _asleep_s()
        self._is_first, self._reads_disks = True, False
        self._first_worker = 0
        self._check(reading)

    def inspect(
        self,
        now_ns: int,
        tid: int | None,
        machine: MachineRates,
        *,
        waiting_ratio: float,
        is_waiting: bool,
    ) -> HostEvidence | None:
        """Inspect once; ``None`` for the first time in a while.

        For a run that has just begun, the first inspection covers the workers and threads that
        it started.

        ``tid`` is the training thread's id inside its process; ``None``: the first thread.
        """
        before_ns, self._inspected_ns = self._inspected_ns, now_ns
        if self._tree.advance(now_ns, self._inspected_boot_s) or machine.memory_stalled_ratio:
            self._limits.read(now_ns)
            self._usable_cores = self._cores()
        self._inspected_boot_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        stalls = [machine.memory_stalled_ratio, self._limits.stalled_ratio]
        stalled_ratio = min((ratio for ratio in stalls if ratio is not None), default=None)
        held_up_ratio = max(machine.disk_busy_ratio or 0.0, stalled_ratio or 0.0)
        # How busy a disk is takes two inspections.
        may_wait = self._is_first or held_up_ratio >= _DISK_MATTERS_FROM
        self._is_first = False
        read, faults = self._fetched(is_wanted=may_wait)
        if before_ns is None or not 0 < now_ns - before_ns <= _LONGEST_NS:
            return None
        span, thread = Span(before_ns, now_ns), self._thread_here(tid)
        workers = self._workers(span, may_wait=may_wait)
        workers_load = any(is_at_it(worker, DEFAULT_SETTINGS.host) for worker in workers)
        root = self._tree.root
        return HostEvidence(
            start_ns=before_ns,
            end_ns=now_ns,
            waiting_ratio=waiting_ratio,
            main=root.main(thread, span, with_state=is_waiting, may_wait=may_wait),
            threads=root.others(thread, span, with_state=not workers_load, may_wait=may_wait),
            workers=workers,
            read_bytes_per_second=_per_second(read, span),
            major_faults_per_second=_per_second(faults, span),
            memory_stalled_ratio=stalled_ratio,
            refaults_per_second=self._limits.refaults_per_second,
            usable_cores=self._usable_cores,
            throttled_ratio=self._limits.throttled_ratio,
            disk_busy_ratio=machine.disk_busy_ratio,
            disk_read_bytes_per_second=machine.disk_read_bytes_per_second,
            received_bytes_per_second=machine.received_bytes_per_second,
        )

    def close(self) -> None:
        self._tree.close()
        self._limits.close()

    def _check(self, reading: RingReading) -> None:
        pid, folder = self._pid, f"{self._proc}/{self._pid}"
        if not reading.is_pid_seen:
            raise NotOursError("its process is not visible from here")
        if Path(folder).stat().st_uid not in (reading.owner_uid, 0):
            raise NotOursError(f"process {pid} is another user's")
        inner = inner_number(self._files.read_once(f"{folder}/status"))
        began_s = parse_stat(self._files.read_once(f"{folder}/stat")).started_s
        is_younger = began_s - _asleep_s() > seconds(reading.facts.started_ns) + _SLACK_S
        if is_younger or inner not in (None, self._inner_pid):
            raise NotOursError(f"process {pid} is not the one that wrote the ring")

    def _thread_here(self, tid: int | None) -> int:
        if tid is None or tid == self._inner_pid:
            return self._pid
        if self._pid == self._inner_pid:
            return tid
        if tid not in self._threads:
            self._threads = self._tree.root.inner_numbers()
        return self._threads.get(tid, self._pid)

    def _fetched(self, *, is_wanted: bool) -> tuple[int | None, int | None]:
        """Bytes read from disks, and major faults, of all processes since the last inspection."""
        was_read, self._reads_disks = self._reads_disks, is_wanted
        if not is_wanted:
            return None, None
        fetched = [process.fetched_since() for process in self._tree]
        read, faults = (total_of(column) for column in zip(*fetched, strict=True))
        return (read, faults) if was_read else (None, None)

    def _workers(self, span: Span, *, may_wait: bool) -> tuple[TaskSample, ...]:
        """All workers. Their states are read for a few in turn, because workers are alike."""
        workers = [*self._tree.workers.values()]
        self._first_worker = (self._first_worker + _WORKERS_WITH_STATE) % max(1, len(workers))
        in_turn = workers[self._first_worker :] + workers[: self._first_worker]
        tasks = [
            worker.whole(span, with_state=place < _WORKERS_WITH_STATE, may_wait=may_wait)
            for place, worker in enumerate(in_turn)
        ]
        tasks.sort(key=lambda task: -task.wanted_cores)
        return tuple(tasks[:MAX_TASKS])

    def _cores(self) -> float | None:
        try:
            allowed: float | None = len(os.sched_getaffinity(self._pid))
        except OSError:
            allowed = None
        known = [cores for cores in (allowed, self._limits.quota_cores) if cores is not None]
        return min(known, default=None)


def _asleep_s() -> float:
    """Seconds that the machine has been suspended: CLOCK_BOOTTIME counts them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()


def _per_second(amount: int | None, span: Span) -> float | None:
    return None if amount is None else amount * NS_PER_S / span.length_ns
