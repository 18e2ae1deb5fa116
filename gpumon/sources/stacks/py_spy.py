"""Read Python stacks with py-spy, which neither stops the process nor needs its cooperation.

py-spy 0.4 writes JSON of one process only, and its ``--subprocesses`` fails as a whole at a child
that runs no Python. So each process is read by a call of its own, the asked one first.
"""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from typing import Final

from gpumon.core.clock import NS_PER_S, Clock, seconds
from gpumon.core.stacks.stack import ProcessStack, StackSample, ThreadStack
from gpumon.core.wording import label_text
from gpumon.sources.stacks.bounded_child import BoundedChild, ChildResult
from gpumon.sources.stacks.permission import owner_of, refusal
from gpumon.sources.stacks.py_spy_output import UnreadableOutputError, is_torn, parse_threads
from gpumon.sources.stacks.thread_states import Descendant, ThreadStates

TIMEOUT_S: Final = 1.0
"""For all calls of a sample: a py-spy that spins is known."""
MOST_WORKERS: Final = 4
"""Descendants whose stacks are read in one sample; the others follow in turn."""
_LEAST_S: Final = 0.05
_VERSION: Final = re.compile(r"py-spy (\d+(?:\.\d+)*)\s*")
_CHANGED: Final = (b"Failed to get stack trace", b"Failed to copy", b"Bad address")
"""What py-spy writes where a stack changed while it was read without stopping the process."""
_CHANGED_MEANWHILE: Final = "the stacks of process {pid} changed while py-spy read them"
_NO_PYTHON: Final = b"Failed to find python version"
_NO_INTERPRETER: Final = b"Failed to find a python interpreter"


def find_py_spy() -> Path | None:
    """The py-spy of our own environment, never that of PATH; ``None``: it is not installed."""
    program = Path(sys.executable).parent / "py-spy"
    # An embedded Python may not know its own path.
    is_usable = program.is_absolute() and os.access(program, os.X_OK)
    return program if is_usable else None


class PySpy:
    """Takes stack samples of a process and its descendants. For one thread."""

    def __init__(
        self, program: Path, clock: Clock, *, most_workers: int = MOST_WORKERS, proc: str = "/proc"
    ) -> None:
        self._program, self._clock, self._proc = str(program), clock, proc
        self._most_workers, self._turn = most_workers, 0
        self._child, self._states = BoundedChild(), ThreadStates(clock, proc)
        self._own_cpu_ns = 0

    @property
    def cpu_seconds(self) -> float:
        """CPU time of all samples: of py-spy, and of this process for them."""
        return self._child.cpu_seconds + seconds(self._own_cpu_ns)

    def version(self) -> str | None:
        """Such as ``"0.4.3"``; ``None``: it does not run, or is another program."""
        result = self._child.run([self._program, "--version"], TIMEOUT_S)
        found = _VERSION.fullmatch(result.output.decode("utf-8", "replace"))
        return found[1] if found and result.code == 0 else None

    def read(self, pid: int) -> StackSample:
        """Take a sample; never raises, and lasts 1.2 s at most.

        Without ``error``, the processes whose stacks were read have frames; the others have the
        state of their first thread. With it, all have the states of all threads.
        """
        began_ns = time.thread_time_ns()
        try:
            return self._sample(pid)
        finally:
            self._own_cpu_ns += time.thread_time_ns() - began_ns

    def _sample(self, pid: int) -> StackSample:
        start_ns = self._clock.monotonic_ns()
        deadline_ns = start_ns + round(TIMEOUT_S * NS_PER_S)
        refused = refusal(pid, proc=self._proc)
        if refused is not None:
            return self._failed(start_ns, pid, refused.text)
        root, why, is_retryable = self._threads_of(pid, deadline_ns)
        end_ns = self._clock.monotonic_ns()
        is_other_program = why is not None and _runs_no_python(why)
        if why is not None and not is_other_program:
            return self._failed(start_ns, pid, why, is_retryable=is_retryable)
        family = self._states.descendants(pid)
        stacks = {pid: root, **self._workers(pid, family[1:], deadline_ns)}
        if is_other_program:
            if not any(threads for threads in stacks.values()):
                assert why is not None
                return self._failed(start_ns, pid, why)
            end_ns = self._clock.monotonic_ns()
        return StackSample(
            start_ns, end_ns, pid, tuple(self._process(member, stacks) for member in family)
        )

    def _failed(
        self, start_ns: int, pid: int, why: str, *, is_retryable: bool = False
    ) -> StackSample:
        states = self._states.read(pid, why)
        return states._replace(start_ns=start_ns, is_retryable=is_retryable)

    def _process(
        self, member: Descendant, stacks: dict[int, tuple[ThreadStack, ...]]
    ) -> ProcessStack:
        threads = stacks.get(member.pid) or self._states.threads(member.pid, 1)
        return self._states.process(member, threads)

    def _workers(
        self, root_pid: int, family: list[Descendant], deadline_ns: int
    ) -> dict[int, tuple[ThreadStack, ...]]:
        """The stacks of some descendants, in turn."""
        stacks: dict[int, tuple[ThreadStack, ...]] = {}
        first = self._turn % len(family) if family else 0
        family_owner = owner_of(root_pid, self._proc)
        for place, member in enumerate(family[first:] + family[:first]):
            left_s = seconds(deadline_ns - self._clock.monotonic_ns())
            if len(stacks) >= self._most_workers or left_s < _LEAST_S:
                self._turn = first + place
                break
            if self._may_read(member.pid, family_owner):
                stacks[member.pid], _, _ = self._threads_of(member.pid, deadline_ns)
        return stacks

    def _may_read(self, pid: int, owner: int | None) -> bool:
        """Whether a descendant runs Python as that user, whom the caller chose, and permits it."""
        return (
            owner_of(pid, self._proc) == owner
            and self._states.is_python(pid)
            and refusal(pid, proc=self._proc) is None
        )

    def _threads_of(
        self, pid: int, deadline_ns: int
    ) -> tuple[tuple[ThreadStack, ...], str | None, bool]:
        """The threads of one process; else why not, and whether the next try may succeed."""
        command = [
            self._program, "dump", "--nonblocking", "--json", "--full-filenames", "--pid", str(pid),
        ]  # fmt: skip
        left_s = seconds(deadline_ns - self._clock.monotonic_ns())
        result = self._child.run(command, max(left_s, _LEAST_S))
        if result.trouble is not None:
            return (), f"py-spy failed: {result.trouble}", False
        if result.code != 0:
            gone = refusal(pid, proc=self._proc)
            if gone is not None:
                return (), gone.text, False
            return (), _sentence(result, pid), _meets_a_change(result)
        try:
            threads = parse_threads(result.output, pid, self._states.inner_tids(pid))
        except UnreadableOutputError as error:
            return (), f"py-spy failed: {error}", False
        except (OSError, ValueError):
            return (), f"process {pid} has ended", False
        if is_torn(threads, pid) and self._states.is_interpreter(pid):
            return (), _CHANGED_MEANWHILE.format(pid=pid), True
        return tuple(self._with_state(pid, thread) for thread in threads), None, False

    def _with_state(self, pid: int, thread: ThreadStack) -> ThreadStack:
        seen = None if thread.tid is None else self._states.thread(pid, thread.tid)
        if seen is None:
            return thread
        return thread._replace(
            name=thread.name or seen.name,
            sleeps_in=seen.sleeps_in,
            state=seen.state,
            is_active=seen.is_active if thread.is_active is None else thread.is_active,
        )


def _meets_a_change(result: ChildResult) -> bool:
    return any(words in result.complaint for words in _CHANGED)


def _runs_no_python(why: str) -> bool:
    return why.endswith("runs no Python that py-spy knows")


def _sentence(result: ChildResult, pid: int) -> str:
    if _NO_PYTHON in result.complaint:
        return f"process {pid} runs no Python that py-spy knows"
    if _NO_INTERPRETER in result.complaint:
        return (
            f"py-spy finds no interpreter in process {pid}: it has just begun, or its stacks are "
            "deeper than 4,096 calls"
        )
    if _meets_a_change(result):
        return _CHANGED_MEANWHILE.format(pid=pid)
    first = result.complaint.decode("utf-8", "replace").strip().partition("\n")[0]
    return f"py-spy failed: {label_text(first) or f'it ended with status {result.code}'}"
