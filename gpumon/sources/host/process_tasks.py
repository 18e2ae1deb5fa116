"""One process as the kernel shows it: its threads, their time on cores, their state.

Counters are kept between two inspections; a task that is seen for the first time has a rate only
if it began since the last inspection. What the kernel hides, such as other users'
processes, is ``None``.
"""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import islice
from typing import Final, NamedTuple

from gpumon.core.clock import NS_PER_S
from gpumon.core.waits.evidence import MAX_TASKS, TaskSample
from gpumon.sources.host.cgroup_limits import growth_of
from gpumon.sources.host.kept_files import KeptFiles

MAX_THREADS: Final = 512
"""Threads read of one process: those that the kernel lists first."""
MAX_WITH_STATE: Final = 16
"""Tasks whose state is read."""
_ACTIVE_CORES: Final = 0.02
"""Switches are read only of threads that want more of a core than this."""
_RESTS_AFTER: Final = 3
_FULL_SCAN_EVERY: Final = 8
"""A thread that was idle in three inspections is read only in every eighth: most never wake."""
_SHORT: Final = 128
"""Bytes of a file of one line."""
_SWITCHES: Final = b"\nvoluntary_ctxt_switches:"
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


class ProcessCounts(NamedTuple):
    """Values of ``/proc/PID/stat``.

    Attributes:
        state: The kernel's letter for the state of the first thread.
        major_faults: Of all threads.
        started_s: Start in seconds since boot, to a hundredth.
    """

    state: str
    major_faults: int
    started_s: float


def parse_stat(raw: bytes) -> ProcessCounts:
    """Parse a ``stat`` file.

    Raises:
        ValueError: It is none.
    """
    # The name before it may hold anything, blanks and brackets included.
    fields = raw[raw.rindex(b")") + 1 :].split()
    if len(fields) < 20:
        raise ValueError("too short a stat")
    return ProcessCounts(
        state=fields[0].decode("ascii"),
        major_faults=int(fields[9]),
        started_s=int(fields[19]) / _TICKS_PER_SECOND,
    )


def inner_number(status: bytes) -> int | None:
    """The id of a process or thread in its own namespace, from ``status``; ``None``: unknown."""
    numbers = status.partition(b"\nNSpid:\t")[2].partition(b"\n")[0].split()
    return int(numbers[-1]) if numbers else None


class Span(NamedTuple):
    """The time between two inspections, on CLOCK_MONOTONIC."""

    start_ns: int
    end_ns: int

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns


class _Task:
    """One thread's counters, and their growth since the last inspection.

    Attributes:
        ran_ns: Time on a core since the last inspection.
        waited_ns: Time in the run queue since then.
        has_run: Whether it ran since its children were listed: only then can it have more.
        is_new: Whether it began since the last inspection, so all that it counts is new.
        quiet_count: How many inspections in a row, up to the last, found it idle.
    """

    __slots__ = (
        "counted_ns", "folder", "has_run", "is_new", "quiet_count", "ran_ns", "raw", "schedstat",
        "switches", "switches_at_ns", "waited_ns",
    )  # fmt: skip

    def __init__(self, folder: str, *, is_new: bool) -> None:
        self.folder, self.schedstat, self.is_new = folder, f"{folder}/schedstat", is_new
        self.raw: bytes | None = None
        self.counted_ns = (0, 0)
        self.ran_ns = self.waited_ns = self.switches_at_ns = 0
        self.has_run, self.quiet_count = True, 0
        self.switches: int | None = None

    @property
    def grew_by_ns(self) -> int:
        """Time in which it wanted a core."""
        return self.ran_ns + self.waited_ns

    def update(self, raw: bytes) -> None:
        """Update from ``schedstat``: time on a core, and time in the run queue, nanoseconds."""
        if raw == self.raw:  # as for most threads
            self.ran_ns = self.waited_ns = 0
            self.quiet_count += 1
            return
        self.raw, self.has_run, self.quiet_count = raw, True, 0
        ran, waited, _ = raw.split()
        counted_ns = int(ran), int(waited)
        # If the file is not kept open, another thread may have the id by now.
        self.ran_ns = max(0, counted_ns[0] - self.counted_ns[0])
        self.waited_ns = max(0, counted_ns[1] - self.counted_ns[1])
        self.counted_ns = counted_ns


class ProcessTasks:
    """The threads of one process.

    Attributes:
        pid: Id in this machine's namespace.
    """

    def __init__(self, pid: int, files: KeptFiles, proc: str = "/proc") -> None:
        self.pid = pid
        self._files, self._folder = files, f"{proc}/{pid}"
        self._tasks: dict[int, _Task] = {}
        self._awake: dict[int, _Task] = {}  # read in each inspection
        self._count = self._links = 0
        self._ran_ns = self._waited_ns = 0
        self._fetched: tuple[int | None, int | None] = None, None

    def __len__(self) -> int:
        return len(self._tasks)

    def list_threads(
        self, inspected_boot_s: float | None = None, max_threads: int = MAX_THREADS
    ) -> None:
        """List the threads, the first one at least; close the files of those that are gone.

        ``inspected_boot_s`` is the time of the last inspection, CLOCK_BOOTTIME.

        Raises:
            OSError: The process is gone, or hidden.
        """
        self._links = self._links_now()
        with os.scandir(f"{self._folder}/task") as entries:
            bound = max(1, min(max_threads, MAX_THREADS))
            listed = {int(entry.name) for entry in islice(entries, bound)}
        for tid in self._tasks.keys() - listed:
            self._let_go(tid)
        for tid in sorted(listed - self._tasks.keys()):
            folder = f"{self._folder}/task/{tid}"
            task = _Task(folder, is_new=self._began_since(inspected_boot_s, folder))
            self._tasks[tid] = self._awake[tid] = task

    def has_other_threads(self) -> bool:
        """Whether the number of threads has changed since they were listed.

        Raises:
            OSError: The process is gone, or hidden.
        """
        return self._links_now() != self._links

    def new_children(self) -> list[int]:
        """Living children of the threads that ran since the last call.

        Raises:
            OSError: The kernel does not list them, or the process is gone.
        """
        found: list[int] = []
        for task in self._tasks.values():
            if task.has_run:
                # Not kept open: files that are read each second need the room.
                found += map(int, self._files.read_once(f"{task.folder}/children").split())
                task.has_run = False
        return found

    def inner_numbers(self) -> dict[int, int]:
        """Thread ids by their ids in the process's own namespace, as in a container."""
        numbers: dict[int, int] = {}
        for tid, task in self._tasks.items():
            with suppress(OSError):
                status = self._files.read_once(f"{task.folder}/status")
                numbers[inner_number(status) or tid] = tid
        return numbers

    def advance(self, now_ns: int, *, with_switches: bool = False) -> None:
        """Read every thread's counters.

        ``with_switches``, also begin to count the voluntary switches of new threads.

        Raises:
            OSError: The process is gone, or the kernel keeps no such counters.
            ValueError: A file of the kernel has another form than expected.
        """
        self._count += 1
        self._ran_ns = self._waited_ns = 0
        if (self.pid + self._count) % _FULL_SCAN_EVERY == 0:
            self._awake = self._tasks.copy()
        for tid, task in list(self._awake.items()):
            rested, is_first = task.quiet_count >= _RESTS_AFTER, task.raw is None
            try:
                task.update(self._files.read(task.schedstat, _SHORT))
            except (OSError, ValueError):
                self._let_go(tid)
                self._links = 0  # another thread may have replaced it
                if tid == self.pid:
                    raise
                continue
            if rested or (is_first and not task.is_new):
                # The growth covers several inspections, or the thread's life, so it is not a rate.
                task.ran_ns = task.waited_ns = 0
            self._ran_ns += task.ran_ns
            self._waited_ns += task.waited_ns
            if is_first and with_switches:
                self._switch_rate(task, now_ns)
            if task.quiet_count >= _RESTS_AFTER:
                del self._awake[tid]

    def advanced(self, now_ns: int) -> bool:
        try:
            self.advance(now_ns)
        except (OSError, ValueError):
            return False
        return True

    def main(self, tid: int, span: Span, *, with_state: bool, may_wait: bool) -> TaskSample | None:
        """One thread, with its state if requested; ``may_wait``: it may wait for a disk."""
        task = self._tasks.get(tid)
        if task is None:
            return None
        return self._sample(task, span, with_state=with_state, may_wait=may_wait)

    def others(
        self, tid: int, span: Span, *, with_state: bool, may_wait: bool
    ) -> tuple[TaskSample, ...]:
        """The other threads that ran, busiest first; the first have their state."""
        ran = [task for at, task in self._awake.items() if at != tid and task.grew_by_ns]
        ran.sort(key=lambda task: -task.grew_by_ns)
        stated = ran[:MAX_WITH_STATE] if with_state else ()
        least_ns = _ACTIVE_CORES * span.length_ns
        busy = [task for task in ran[len(stated) : MAX_TASKS] if task.grew_by_ns > least_ns]
        return tuple(
            self._sample(task, span, with_state=task in stated, may_wait=may_wait)
            for task in (*stated, *busy)
        )

    def whole(self, span: Span, *, with_state: bool, may_wait: bool) -> TaskSample:
        """The process with all its threads as one task; its state is that of its first thread."""
        on_cpu, queued = self._ran_ns / span.length_ns, self._waited_ns / span.length_ns
        first = self._tasks[self.pid]
        state, sleeps_in = self._state_of(first, may_wait=may_wait) if with_state else (None, None)
        return TaskSample(on_cpu, queued, state=state, sleeps_in=sleeps_in)

    def fetched_since(self) -> tuple[int | None, int | None]:
        """Bytes read from disks, and major faults, since the last call; ``None``: unknown."""
        before = self._fetched
        try:
            raw = self._files.read(f"{self._folder}/io")
            read = int(raw.partition(b"\nread_bytes: ")[2].partition(b"\n")[0])
        except (OSError, ValueError):
            read = None
        try:
            faults = parse_stat(self._files.read(f"{self._folder}/stat")).major_faults
        except (OSError, ValueError):
            faults = None
        self._fetched = read, faults
        return growth_of(before[0], read), growth_of(before[1], faults)

    def close(self) -> None:
        for tid in list(self._tasks):
            self._let_go(tid)
        for name in ("stat", "io"):
            self._files.let_go(f"{self._folder}/{name}")

    def _began_since(self, inspected_boot_s: float | None, folder: str) -> bool:
        if inspected_boot_s is None:
            return False
        try:
            began_s = parse_stat(self._files.read_once(f"{folder}/stat")).started_s
        except (OSError, ValueError):
            return False
        # The kernel rounds down to a clock tick.
        return began_s + 1 / _TICKS_PER_SECOND > inspected_boot_s

    def _links_now(self) -> int:
        return os.lstat(f"{self._folder}/task").st_nlink

    def _sample(self, task: _Task, span: Span, *, with_state: bool, may_wait: bool) -> TaskSample:
        on_cpu, queued = task.ran_ns / span.length_ns, task.waited_ns / span.length_ns
        is_active = on_cpu + queued > _ACTIVE_CORES
        switches = self._switch_rate(task, span.end_ns) if is_active else None
        state, sleeps_in = self._state_of(task, may_wait=may_wait) if with_state else (None, None)
        return TaskSample(on_cpu, queued, switches, state, sleeps_in)

    def _state_of(self, task: _Task, *, may_wait: bool) -> tuple[str | None, str | None]:
        """The letter of its state, and the kernel function in which it sleeps.

        A thread with such a function sleeps; whether it waits for a disk is read only if it
        ``may_wait``.
        """
        sleeps_in = self._sleeps_in(task)
        if sleeps_in is not None and not may_wait:
            return "S", sleeps_in
        try:
            return parse_stat(self._files.read(f"{task.folder}/stat")).state, sleeps_in
        except (OSError, ValueError):
            return None, sleeps_in

    def _switch_rate(self, task: _Task, now_ns: int) -> float | None:
        before, before_ns = task.switches, task.switches_at_ns
        try:
            status = self._files.read(f"{task.folder}/status")
            task.switches = int(status.partition(_SWITCHES)[2].split(None, 1)[0])
        except (OSError, ValueError, IndexError):
            task.switches = None
        task.switches_at_ns = now_ns
        grown = growth_of(before, task.switches)
        length_ns = now_ns - before_ns
        return None if grown is None or length_ns <= 0 else grown * NS_PER_S / length_ns

    def _sleeps_in(self, task: _Task) -> str | None:
        """The kernel function; a hardened kernel gives 0 for all, which means unknown."""
        try:
            raw = self._files.read(f"{task.folder}/wchan", _SHORT)
        except OSError:
            return None
        name = raw.decode("ascii", "replace").strip()
        return name if name not in ("", "0") else None

    def _let_go(self, tid: int) -> None:
        task = self._tasks.pop(tid)
        self._awake.pop(tid, None)
        for name in ("schedstat", "stat", "status", "wchan"):
            self._files.let_go(f"{task.folder}/{name}")
