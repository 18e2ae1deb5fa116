"""What ``/proc`` shows of a process and its descendants: programs, and the states of threads."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.core.clock import Clock
from gpumon.core.stacks.stack import ProcessStack, StackSample, ThreadStack
from gpumon.core.wording import label_text
from gpumon.sources.host.kept_files import KeptFiles
from gpumon.sources.host.process_tasks import MAX_THREADS, ProcessTasks, inner_number, parse_stat
from gpumon.sources.host.run_inspection import MOST_IN_ALL, MOST_WORKERS

NOT_READ: Final = "its Python stacks were not read"
_PYTHON: Final = re.compile(r"python[\d.]*(?:[a-z]|-dbg)?(?: \(deleted\))?")
_MAX_ARGUMENTS: Final = 4_096
_MAX_MAPS: Final = 1 << 20
_MODULE: Final = re.compile(r"[\w.]+")
_FLAGS: Final = frozenset("bBdEhiIOPqRsSuvVx?t3")
"""Options of the interpreter without a value."""
_WITH_VALUE: Final = frozenset("WXQ")


class Descendant(NamedTuple):
    """A process of the tree; ``parent_pid`` is ``None`` for its root."""

    pid: int
    parent_pid: int | None


class ThreadStates:
    """Reads processes without py-spy: such as a trainer in C++, or one that may not be read."""

    def __init__(self, clock: Clock, proc: str = "/proc") -> None:
        self._clock, self._proc, self._files = clock, proc, KeptFiles()

    def read(self, pid: int, error: str = NOT_READ) -> StackSample:
        """The process and its descendants with the states of their threads, and no frames.

        Never raises. ``error`` is why it has no frames, as a sentence.
        """
        start_ns = self._clock.monotonic_ns()
        room = MOST_IN_ALL
        processes = []
        for process in self.descendants(pid):
            threads = self.threads(process.pid, min(room, MAX_THREADS))
            if threads or process.pid == pid:
                processes.append(self.process(process, threads))
                room -= len(threads)
        found = tuple(processes) if processes[0].threads else ()
        return StackSample(start_ns, self._clock.monotonic_ns(), pid, found, error)

    def descendants(self, pid: int) -> list[Descendant]:
        """The process and its descendants, itself first, parents before children, at most 257."""
        found = [Descendant(pid, None)]
        for parent in found:
            for child in self._children_of(parent.pid):
                if len(found) <= MOST_WORKERS:
                    found.append(Descendant(child, parent.pid))
        return found

    def process(self, process: Descendant, threads: tuple[ThreadStack, ...]) -> ProcessStack:
        return ProcessStack(process.pid, process.parent_pid, self.program(process.pid), threads)

    def threads(self, pid: int, most: int = MAX_THREADS) -> tuple[ThreadStack, ...]:
        """Threads with name and state, the first one of the process first; empty: it is gone."""
        try:
            with os.scandir(f"{self._proc}/{pid}/task") as entries:
                tids = [int(entry.name) for entry in islice(entries, max(1, most))]
        except (OSError, ValueError):
            return ()
        tids.sort(key=lambda tid: (tid != pid, tid))
        return tuple(filter(None, (self.thread(pid, tid) for tid in tids)))

    def thread(self, pid: int, tid: int) -> ThreadStack | None:
        """One thread without frames; ``None``: it is gone."""
        folder = f"{self._proc}/{pid}/task/{tid}"
        try:
            raw = self._files.read_once(f"{folder}/stat")
            state = parse_stat(raw).state
            name = raw[raw.index(b"(") + 1 : raw.rindex(b")")].decode("utf-8", "replace")
        except (OSError, ValueError):
            return None
        return ThreadStack(
            tid,
            is_active=state == "R",
            name=label_text(name),
            sleeps_in=self._sleeps_in(folder),
            state=state,
        )

    def program(self, pid: int) -> str:
        """Base names of its program and of its script or module: ``"python train.py"``.

        Never another argument: those can hold passwords.
        """
        with suppress(OSError):
            raw = self._files.read_once(f"{self._proc}/{pid}/cmdline", _MAX_ARGUMENTS)
            # The last one ends with a NUL, too, unless it was cut.
            arguments = [part.decode("utf-8", "replace") for part in raw.split(b"\0")[:-1]]
            if arguments and _PYTHON.fullmatch(name := _base_name(arguments[0])):
                return label_text(" ".join([name, *script_of(arguments[1:])]))
        executable = self._executable(pid)
        if executable:
            return label_text(executable)
        with suppress(OSError):
            comm = self._files.read_once(f"{self._proc}/{pid}/comm")
            return label_text(comm.decode("utf-8", "replace").strip())
        return ""

    def is_python(self, pid: int) -> bool:
        """Whether it seems to run Python: by its executable, or a library that it has loaded."""
        if self.is_interpreter(pid):
            return True
        try:
            maps = self._files.read_once(f"{self._proc}/{pid}/maps", _MAX_MAPS)
        except OSError:
            return False
        return b"/libpython" in maps

    def is_interpreter(self, pid: int) -> bool:
        """Whether its executable is called python, so that its first thread runs a script."""
        return _PYTHON.fullmatch(self._executable(pid)) is not None

    def inner_tids(self, pid: int) -> dict[int, int] | None:
        """Thread ids here by those inside its container; ``None``: they are the same.

        Raises:
            OSError: It is gone.
        """
        inner = inner_number(self._files.read_once(f"{self._proc}/{pid}/status"))
        if inner in (None, pid):
            return None
        tasks = ProcessTasks(pid, self._files, self._proc)
        tasks.list_threads()
        return tasks.inner_numbers()

    def _executable(self, pid: int) -> str:
        try:
            return _base_name(str(Path(f"{self._proc}/{pid}/exe").readlink()))
        except OSError:
            return ""

    def _children_of(self, pid: int) -> list[int]:
        tasks = ProcessTasks(pid, self._files, self._proc)
        try:
            tasks.list_threads()
            return tasks.new_children()
        except (OSError, ValueError):
            return []

    def _sleeps_in(self, folder: str) -> str | None:
        """The kernel function; a hardened kernel gives 0 for all, which means unknown."""
        try:
            name = self._files.read_once(f"{folder}/wchan").decode("ascii", "replace").strip()
        except OSError:
            return None
        return label_text(name) if name not in ("", "0") else None


def script_of(arguments: list[str]) -> Iterator[str]:
    """What the arguments of an interpreter name as its program: words for people.

    >>> list(script_of(["-u", "-X", "dev", "/home/jo/train.py", "--password", "hush"]))
    ['train.py']
    >>> list(script_of(["-um", "pkg.train", "hush"])), list(script_of(["-c", "password = 1"]))
    (['-m', 'pkg.train'], ['-c'])
    """
    remaining = iter(arguments)
    for argument in remaining:
        if argument == "--check-hash-based-pycs":
            next(remaining, None)
        elif argument == "-" or argument.startswith("--"):
            return
        elif not argument.startswith("-"):
            yield _base_name(argument)
            return
        elif (end := _last_option(argument)) is not None:
            letter, value = end
            value = value or next(remaining, "")
            if letter == "m" and _MODULE.fullmatch(value):
                yield from ("-m", value)
            elif letter == "c":
                yield "-c"
            if letter not in _WITH_VALUE:
                return


def _last_option(argument: str) -> tuple[str, str] | None:
    """The option of a group such as ``-uc`` that has a value, or is unknown; and its value."""
    for at, letter in enumerate(argument[1:], start=2):
        if letter not in _FLAGS:
            return letter, argument[at:]
    return None


def _base_name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]
