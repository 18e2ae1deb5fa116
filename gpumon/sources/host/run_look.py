"""One training from look to look: its process, and all that descend from it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.core.host.evidence import MOST_TASKS, HostEvidence, TaskLook
from gpumon.core.ring.events import RingReading
from gpumon.sources.host.cgroup_limits import CgroupCounts, CgroupLimits
from gpumon.sources.host.kept_files import KeptFiles
from gpumon.sources.host.machine_totals import MachineRates
from gpumon.sources.host.process_tasks import (
    ProcessCounts,
    ProcessTasks,
    Span,
    inner_number,
    total_of,
)

MOST_WORKERS: Final = 256
"""Processes that descend from one training; of more, those found first."""
_LIST_NS: Final = 2 * NS_PER_S
"""So long a list of threads and workers is believed; sooner made anew where one of them is gone."""
_STALE_NS: Final = 2 * NS_PER_S
"""Counters of before say nothing of a look that begins so much later."""
_MOST_ASKED: Final = 16


class NotOursError(OSError):
    """The pid is another process than the one whose ring it is."""


class RunLook:
    """Looks at one training, as long as it waits.

    Raises:
        NotOursError: Its pid is another process here.
        OSError: The process is gone, or hidden.
        ValueError: The kernel says something else than it should.
    """

    def __init__(self, reading: RingReading, files: KeptFiles, proc: str = "/proc") -> None:
        self._files, self._proc = files, proc
        pid = reading.host_pid
        self._process = ProcessTasks(pid, files, proc)
        self._workers: dict[int, ProcessTasks] = {}
        self._inner_pid = reading.facts.pid
        self._threads: dict[int, int] = {}  # by the number that the process knows them by
        self._limits = CgroupLimits(pid, files, proc)
        self._affinity: int | None = None
        self._limited: CgroupCounts | None = None
        self._listed_ns: int | None = None
        self._looked_ns: int | None = None
        self._looked_boot_s = 0.0
        self._check(reading)

    def look(
        self,
        now_ns: int,
        tid: int | None,
        machine: MachineRates,
        *,
        waiting_ratio: float,
        is_waiting: bool,
    ) -> HostEvidence | None:
        """Look once; ``None`` where nothing can be said yet: it is the first look for a while.

        Args:
            now_ns: CLOCK_MONOTONIC.
            tid: The thread that trains, as its process knows it; ``None``: the first one.
            machine: What the machine did since the look before.
            waiting_ratio: As in ``HostEvidence``.
            is_waiting: Whether it waits for input just now.
        """
        before_ns, before_boot_s = self._looked_ns, self._looked_boot_s
        self._looked_ns, self._looked_boot_s = now_ns, time.clock_gettime(time.CLOCK_BOOTTIME)
        if self._listed_ns is None or now_ns - self._listed_ns >= _LIST_NS:
            self._list(now_ns)
        self._process.advance(now_ns)
        counts = {pid: self._advance(pid, now_ns, before_boot_s) for pid in list(self._workers)}
        own = self._process.counts()
        here = [self._process, *self._workers.values()]
        read = total_of(one.read_bytes_since() for one in here)
        faults = total_of(
            [self._process.faults_since(own)]
            + [
                self._workers[pid].faults_since(found)
                for pid, found in counts.items()
                if found is not None
            ]
        )
        limited_before, self._limited = self._limited, self._limits.counts()
        if before_ns is None or not 0 < now_ns - before_ns <= _STALE_NS:
            return None
        span, thread = Span(before_ns, now_ns), self._thread_here(tid)
        throttled, stalled = _held_back(limited_before, self._limited, span)
        stalls = [one for one in (stalled, machine.memory_stalled_ratio) if one is not None]
        return HostEvidence(
            start_ns=before_ns,
            end_ns=now_ns,
            waiting_ratio=waiting_ratio,
            main=self._process.main(thread, span, is_waiting=is_waiting),
            threads=self._process.others(thread, span),
            workers=self._looks_at_workers(counts, span),
            read_bytes_per_second=_per_second(read, span),
            major_faults_per_second=_per_second(faults, span),
            disk_busy_ratio=machine.disk_busy_ratio,
            disk_read_bytes_per_second=machine.disk_read_bytes_per_second,
            received_bytes_per_second=machine.received_bytes_per_second,
            swapped_in_bytes_per_second=machine.swapped_in_bytes_per_second,
            memory_stalled_ratio=max(stalls, default=None),
            usable_cores=self._usable_cores(),
            throttled_ratio=throttled,
        )

    def close(self) -> None:
        """Let go of all that is open."""
        for one in (self._process, *self._workers.values()):
            one.close()

    def _check(self, reading: RingReading) -> None:
        """Make sure that the pid is the process that wrote the ring, and not one of that number."""
        pid = reading.host_pid
        if Path(self._proc, str(pid)).stat().st_uid not in (reading.owner_uid, 0):
            raise NotOursError(f"process {pid} is another user's")
        namespaced = inner_number(self._files.read_once(f"{self._proc}/{pid}/status"))
        if namespaced is not None and namespaced != reading.facts.pid:
            raise NotOursError(f"process {pid} is another one than the training's")

    def _thread_here(self, tid: int | None) -> int:
        """The number by which this machine knows a thread that the process calls so."""
        pid = self._process.pid
        if tid is None or tid == self._inner_pid:
            return pid
        if pid == self._inner_pid:
            return tid
        if tid not in self._threads:
            self._threads = self._process.inner_numbers()
        return self._threads.get(tid, pid)

    def _list(self, now_ns: int) -> None:
        """See which threads and workers there are."""
        self._listed_ns = now_ns
        self._process.list_threads()
        found: dict[int, None] = {}
        waiting = [self._process]
        while waiting and len(found) < MOST_WORKERS:
            process = waiting.pop(0)
            try:
                children = process.children()
            except OSError:
                continue  # it ended meanwhile
            for pid in children[: MOST_WORKERS - len(found)]:
                if pid in found:
                    continue
                found[pid] = None
                known = self._workers.get(pid)
                if known is None:
                    known = self._workers[pid] = ProcessTasks(pid, self._files, self._proc)
                try:
                    known.list_threads()
                except OSError:
                    continue
                waiting.append(known)
        for pid in self._workers.keys() - found.keys():
            self._workers.pop(pid).close()

    def _advance(self, pid: int, now_ns: int, before_boot_s: float) -> ProcessCounts | None:
        """Read a worker's counters; ``None``: it is gone, and with it what is known of it."""
        worker = self._workers[pid]
        try:
            counts = worker.counts()
            worker.advance(now_ns, is_new=counts.started_s >= before_boot_s > 0)
        except (OSError, ValueError):
            self._workers.pop(pid).close()
            self._listed_ns = None  # others may have come in its place
            return None
        return counts

    def _looks_at_workers(
        self, counts: dict[int, ProcessCounts | None], span: Span
    ) -> tuple[TaskLook, ...]:
        looks = [
            self._workers[pid].whole(span, found.state, is_asked=place < _MOST_ASKED)
            for place, (pid, found) in enumerate(counts.items())
            if found is not None
        ]
        looks.sort(key=lambda look: -look.wanted_cores)
        return tuple(looks[:MOST_TASKS])

    def _usable_cores(self) -> float | None:
        try:
            allowed: float | None = len(os.sched_getaffinity(self._process.pid))
        except OSError:
            allowed = None
        quota = None if self._limited is None else self._limited.quota_cores
        return min((one for one in (allowed, quota) if one is not None), default=None)


def _per_second(amount: int | None, span: Span) -> float | None:
    return None if amount is None else amount * NS_PER_S / span.length_ns


def _held_back(
    before: CgroupCounts | None, after: CgroupCounts, span: Span
) -> tuple[float | None, float | None]:
    """Parts of a look in which its quota held the cgroup back, and in which memory did."""
    if before is None:
        return None, None
    grown = (
        (before.throttled_ns, after.throttled_ns, 1),
        (before.memory_stalled_us, after.memory_stalled_us, 1_000),
    )
    throttled, stalled = (
        None if was is None or now is None else min(1.0, max(0, now - was) * unit / span.length_ns)
        for was, now, unit in grown
    )
    return throttled, stalled
