"""One process as the kernel shows it: its threads, what they wanted of the cores, where they stand.

Counters are kept between two looks, and a task that was not there before has no rate yet. Of
other users' processes the kernel tells less; what it does not tell is ``None``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from typing import Final, NamedTuple

from gpumon.core.clock import NS_PER_S
from gpumon.core.host.evidence import MOST_TASKS, TaskLook
from gpumon.sources.host.kept_files import KeptFiles

MOST_THREADS: Final = 512
"""Of one process; of more, those that the kernel lists first."""
_MOST_ASKED: Final = 16
"""Tasks of which is asked where they sleep."""
_ACTIVE_CORES: Final = 0.02
"""Of a thread that wants less of a core nobody need know how often it gives it up."""
_SWITCHES: Final = re.compile(rb"^voluntary_ctxt_switches:\t(\d+)", re.MULTILINE)
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


class ProcessCounts(NamedTuple):
    """What ``/proc/PID/stat`` tells of a whole process.

    Attributes:
        state: Of its first thread, by the kernel's letter.
        started_s: When it began, seconds since the machine did, to a hundredth.
    """

    state: str
    major_faults: int
    started_s: float


def parse_stat(raw: bytes) -> ProcessCounts:
    """What a ``stat`` tells.

    Raises:
        ValueError: It is none.
    """
    # The name before it is anybody's, blanks and brackets included.
    words = raw[raw.rindex(b")") + 1 :].split()
    if len(words) < 20:
        raise ValueError("too short a stat")
    return ProcessCounts(
        words[0].decode("ascii"), int(words[9]), int(words[19]) / _TICKS_PER_SECOND
    )


def inner_number(status: bytes) -> int | None:
    """What a process or thread calls itself, by its ``status``; ``None``: it does not tell."""
    numbers = status.partition(b"\nNSpid:\t")[2].partition(b"\n")[0].split()
    return int(numbers[-1]) if numbers else None


class Span(NamedTuple):
    """The time between two looks, on CLOCK_MONOTONIC."""

    start_ns: int
    end_ns: int

    @property
    def length_ns(self) -> int:
        """Above 0."""
        return self.end_ns - self.start_ns


class _Task:
    """One thread's counters, and what they grew by since the last look."""

    __slots__ = ("grew_by", "on_cpu_ns", "queued_ns", "raw", "switches", "switches_at_ns")

    def __init__(self) -> None:
        self.raw = b""
        self.on_cpu_ns = self.queued_ns = self.switches_at_ns = 0
        self.grew_by = (0, 0)
        self.switches: int | None = None

    def take(self, raw: bytes) -> None:
        """Take its ``schedstat``: time on a core, and time in the run queue, nanoseconds."""
        if raw == self.raw:  # as of most threads of a training
            self.grew_by = (0, 0)
            return
        self.raw = raw
        on_cpu, queued, _ = raw.split()
        before_ns = self.on_cpu_ns, self.queued_ns
        self.on_cpu_ns, self.queued_ns = int(on_cpu), int(queued)
        self.grew_by = self.on_cpu_ns - before_ns[0], self.queued_ns - before_ns[1]


class ProcessTasks:
    """The threads of one process, from look to look.

    Attributes:
        pid: As this machine sees it.
    """

    def __init__(self, pid: int, files: KeptFiles, proc: str = "/proc") -> None:
        """Read nothing yet."""
        self.pid = pid
        self._files, self._folder = files, f"{proc}/{pid}"
        self._tasks: dict[int, _Task] = {}
        self._read_bytes: int | None = None
        self._faults: int | None = None

    def counts(self) -> ProcessCounts:
        """What the process as a whole is now.

        Raises:
            OSError: It is gone.
            ValueError: The kernel says something else than it should.
        """
        return parse_stat(self._files.read(f"{self._folder}/stat"))

    def list_threads(self) -> None:
        """See which threads there are. Those that are gone are let go.

        Raises:
            OSError: The process is gone, or hidden.
        """
        with os.scandir(f"{self._folder}/task") as entries:
            listed = {int(entry.name) for entry in islice(entries, MOST_THREADS)}
        for tid in self._tasks.keys() - listed:
            self._let_go(tid)
        for tid in sorted(listed - self._tasks.keys()):
            self._tasks[tid] = _Task()

    def children(self) -> list[int]:
        """Processes that its threads started and that live.

        Raises:
            OSError: The kernel does not tell, or the process is gone.
        """
        found: list[int] = []
        for tid in self._tasks:
            raw = self._files.read_once(f"{self._folder}/task/{tid}/children")
            found += map(int, raw.split())
        return found

    def inner_numbers(self) -> dict[int, int]:
        """Its threads by the numbers that it knows them by itself, in a container of its own."""
        numbers: dict[int, int] = {}
        for tid in self._tasks:
            with suppress(OSError):
                status = self._files.read_once(f"{self._folder}/task/{tid}/status")
                numbers[inner_number(status) or tid] = tid
        return numbers

    def advance(self, now_ns: int, *, is_new: bool = False) -> None:
        """Read every thread's counters; what they grew by is what they have where it is new.

        Raises:
            OSError: The process is gone, or the kernel keeps no such counters.
        """
        for tid in list(self._tasks):
            task, is_first = self._tasks[tid], not self._tasks[tid].raw
            try:
                task.take(self._files.read(f"{self._folder}/task/{tid}/schedstat"))
            except (OSError, ValueError):
                self._let_go(tid)
                if tid == self.pid:
                    raise
                continue
            if is_first and not is_new:
                task.grew_by = (0, 0)
                self._ask_switches(tid, task, now_ns)

    def main(self, tid: int, span: Span, *, is_waiting: bool) -> TaskLook | None:
        """The thread that trains; where it stands is asked only where it waits for input."""
        task = self._tasks.get(tid)
        if task is None:
            return None
        return self._look_at(tid, task, span, is_asked=is_waiting)

    def others(self, tid: int, span: Span) -> tuple[TaskLook, ...]:
        """The other threads that ran, the busiest first."""
        ran = [
            (sum(t.grew_by), at) for at, t in self._tasks.items() if at != tid and any(t.grew_by)
        ]
        ran.sort(reverse=True)
        return tuple(
            self._look_at(at, self._tasks[at], span, is_asked=place < _MOST_ASKED)
            for place, (_, at) in enumerate(ran[:MOST_TASKS])
        )

    def whole(self, span: Span, state: str, *, is_asked: bool) -> TaskLook:
        """The process with all its threads as one task; where it sleeps, by its first thread."""
        on_cpu_ns = sum(task.grew_by[0] for task in self._tasks.values())
        queued_ns = sum(task.grew_by[1] for task in self._tasks.values())
        return TaskLook(
            on_cpu_cores=on_cpu_ns / span.length_ns,
            queued_cores=queued_ns / span.length_ns,
            state=state,
            sleeps_in=self._sleeps_in(self.pid) if is_asked and state != "R" else None,
        )

    def read_bytes_since(self) -> int | None:
        """What it read from disks since it was asked last; ``None``: not told, or first asked."""
        before = self._read_bytes
        try:
            raw = self._files.read(f"{self._folder}/io")
            self._read_bytes = int(raw.partition(b"\nread_bytes: ")[2].partition(b"\n")[0])
        except (OSError, ValueError):
            self._read_bytes = None
        return _growth(before, self._read_bytes)

    def faults_since(self, counts: ProcessCounts) -> int | None:
        """Major faults since it was asked last; ``None``: first asked."""
        before, self._faults = self._faults, counts.major_faults
        return _growth(before, self._faults)

    def close(self) -> None:
        """Let go of all that is open."""
        for tid in list(self._tasks):
            self._let_go(tid)
        for name in ("stat", "io"):
            self._files.let_go(f"{self._folder}/{name}")

    def _look_at(self, tid: int, task: _Task, span: Span, *, is_asked: bool) -> TaskLook:
        on_cpu, queued = (grown_ns / span.length_ns for grown_ns in task.grew_by)
        is_active = on_cpu + queued > _ACTIVE_CORES
        state = self._state(tid) if is_asked else None
        return TaskLook(
            on_cpu_cores=on_cpu,
            queued_cores=queued,
            switches_per_second=self._ask_switches(tid, task, span.end_ns) if is_active else None,
            state=state,
            sleeps_in=self._sleeps_in(tid) if state is not None and state != "R" else None,
        )

    def _state(self, tid: int) -> str | None:
        try:
            return parse_stat(self._files.read(f"{self._folder}/task/{tid}/stat")).state
        except (OSError, ValueError):
            return None

    def _ask_switches(self, tid: int, task: _Task, now_ns: int) -> float | None:
        """How often a second it gave its core up since it was asked last."""
        before, before_ns = task.switches, task.switches_at_ns
        try:
            found = _SWITCHES.search(self._files.read(f"{self._folder}/task/{tid}/status"))
        except OSError:
            found = None
        task.switches, task.switches_at_ns = int(found[1]) if found else None, now_ns
        grown = _growth(before, task.switches)
        return None if grown is None else grown * NS_PER_S / (now_ns - before_ns)

    def _sleeps_in(self, tid: int) -> str | None:
        """The kernel's function; 0 is what a hardened kernel says of all, and means nothing."""
        try:
            raw = self._files.read(f"{self._folder}/task/{tid}/wchan")
        except OSError:
            return None
        name = raw.decode("ascii", "replace").strip()
        return name if name not in ("", "0") else None

    def _let_go(self, tid: int) -> None:
        del self._tasks[tid]
        for name in ("schedstat", "stat", "status", "wchan"):
            self._files.let_go(f"{self._folder}/task/{tid}/{name}")


def _growth(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else max(0, after - before)


def total_of(amounts: Iterable[int | None]) -> int | None:
    """The sum of those that are known; ``None`` where none is."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None
