"""One training from look to look: what its processes did, and what held them up."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from gpumon.core.clock import NS_PER_S, seconds
from gpumon.core.host.evidence import MOST_TASKS, HostEvidence, TaskLook
from gpumon.core.host.wait_rules import is_at_it
from gpumon.core.ring_format.events import RingReading
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.sources.host.cgroup_limits import CgroupLimits
from gpumon.sources.host.kept_files import KeptFiles
from gpumon.sources.host.machine_totals import MachineRates
from gpumon.sources.host.process_tasks import Span, inner_number, parse_stat, total_of
from gpumon.sources.host.process_tree import ProcessTree

_DISK_MATTERS_FROM: Final = 0.25
"""Only where a disk is busy, or memory stalls, for so much of a look can a training wait for it."""
_WORKERS_ASKED: Final = 4
_LONGEST_NS: Final = 30 * NS_PER_S
"""A mean over more time than this says nothing of the second for which a look answers."""
_SLACK_S: Final = 1.0
"""A process counts the hundredths of its beginning; a ring, nanoseconds."""


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
        self._files, self._proc, self._pid = files, proc, reading.host_pid
        self._inner_pid = reading.facts.pid
        self._threads: dict[int, int] = {}  # by the number that the process knows them by
        self._tree = ProcessTree(self._pid, files, proc)
        self._limits = CgroupLimits(self._pid, files, proc)
        self._usable_cores: float | None = None
        self._looked_ns: int | None = None
        self._looked_boot_s: float | None = None
        if 0 < reading.read_at_ns - reading.facts.started_ns <= NS_PER_S:
            # What it started since it began counts from there.
            self._looked_ns = reading.facts.started_ns
            self._looked_boot_s = seconds(self._looked_ns) + _asleep_s()
        self._is_first, self._asked_disks = True, False
        self._asked_from = 0
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

        Of a training that has just begun, the first one tells of the workers and threads that it
        started.

        Args:
            now_ns: CLOCK_MONOTONIC.
            tid: The thread that trains, as its process knows it; ``None``: the first one.
            machine: What the machine did since the look before.
            waiting_ratio: As in ``HostEvidence``.
            is_waiting: Whether it waits for input just now.
        """
        before_ns, self._looked_ns = self._looked_ns, now_ns
        if self._tree.advance(now_ns, self._looked_boot_s) or machine.memory_stalled_ratio:
            self._limits.ask(now_ns)
            self._usable_cores = self._cores()
        self._looked_boot_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        # The machine's is of this look; its cgroup's, where it was asked, of the training.
        stalls = [machine.memory_stalled_ratio, self._limits.stalled_ratio]
        stalled_ratio = min((one for one in stalls if one is not None), default=None)
        held_up_ratio = max(machine.disk_busy_ratio or 0.0, stalled_ratio or 0.0)
        # How busy a disk is takes two looks.
        may_wait = self._is_first or held_up_ratio >= _DISK_MATTERS_FROM
        self._is_first = False
        read, faults = self._fetched(is_asked=may_wait)
        if before_ns is None or not 0 < now_ns - before_ns <= _LONGEST_NS:
            return None
        span, thread = Span(before_ns, now_ns), self._thread_here(tid)
        workers = self._workers(span, may_wait=may_wait)
        others_make_them = any(is_at_it(one, DEFAULT_SETTINGS.host) for one in workers)
        root = self._tree.root
        return HostEvidence(
            start_ns=before_ns,
            end_ns=now_ns,
            waiting_ratio=waiting_ratio,
            main=root.main(thread, span, is_asked=is_waiting, may_wait=may_wait),
            threads=root.others(thread, span, is_asked=not others_make_them, may_wait=may_wait),
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
        """Let go of all that is open."""
        self._tree.close()
        self._limits.close()

    def _check(self, reading: RingReading) -> None:
        """Make sure that the pid is the process that wrote the ring, and not one of that number."""
        pid, folder = self._pid, f"{self._proc}/{self._pid}"
        if not reading.is_pid_seen:
            raise NotOursError("its process cannot be seen from here")
        if Path(folder).stat().st_uid not in (reading.owner_uid, 0):
            raise NotOursError(f"process {pid} is another user's")
        inner = inner_number(self._files.read_once(f"{folder}/status"))
        began_s = parse_stat(self._files.read_once(f"{folder}/stat")).started_s
        is_younger = began_s - _asleep_s() > seconds(reading.facts.started_ns) + _SLACK_S
        if is_younger or inner not in (None, self._inner_pid):
            raise NotOursError(f"process {pid} is another one than the training's")

    def _thread_here(self, tid: int | None) -> int:
        """The number by which this machine knows a thread that the process calls so."""
        if tid is None or tid == self._inner_pid:
            return self._pid
        if self._pid == self._inner_pid:
            return tid
        if tid not in self._threads:
            self._threads = self._tree.root.inner_numbers()
        return self._threads.get(tid, self._pid)

    def _fetched(self, *, is_asked: bool) -> tuple[int | None, int | None]:
        """Bytes read from disks, and major faults, of all processes since the look before."""
        were_asked, self._asked_disks = self._asked_disks, is_asked
        if not is_asked:
            return None, None
        told = [process.fetched_since() for process in self._tree]
        read, faults = (total_of(column) for column in zip(*told, strict=True))
        return (read, faults) if were_asked else (None, None)

    def _workers(self, span: Span, *, may_wait: bool) -> tuple[TaskLook, ...]:
        """All of them; a few are asked where they stand, others each time, for they do alike."""
        workers = [*self._tree.workers.values()]
        self._asked_from = (self._asked_from + _WORKERS_ASKED) % max(1, len(workers))
        in_turn = workers[self._asked_from :] + workers[: self._asked_from]
        looks = [
            worker.whole(span, is_asked=place < _WORKERS_ASKED, may_wait=may_wait)
            for place, worker in enumerate(in_turn)
        ]
        looks.sort(key=lambda look: -look.wanted_cores)
        return tuple(looks[:MOST_TASKS])

    def _cores(self) -> float | None:
        """How many the training may use, by its affinity and its cgroups' quotas."""
        try:
            allowed: float | None = len(os.sched_getaffinity(self._pid))
        except OSError:
            allowed = None
        known = [one for one in (allowed, self._limits.quota_cores) if one is not None]
        return min(known, default=None)


def _asleep_s() -> float:
    """For how long the machine has been suspended since it began: CLOCK_BOOTTIME goes on then."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()


def _per_second(amount: int | None, span: Span) -> float | None:
    return None if amount is None else amount * NS_PER_S / span.length_ns
