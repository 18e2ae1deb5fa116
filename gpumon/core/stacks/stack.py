"""Stack samples: where the threads of a process and of its descendants were at one time."""

from __future__ import annotations

from typing import NamedTuple


class StackFrame(NamedTuple):
    """One call.

    Attributes:
        function: Name of the function, with its class from Python 3.11 on:
            ``"_BaseDataLoaderIter.__next__"``.
        path: Path of its source file, as the process knows it; ``""``: unknown.
        line: The line that it executes; ``None``: unknown.
    """

    function: str
    path: str
    line: int | None = None


class ThreadStack(NamedTuple):
    """One thread.

    Attributes:
        tid: Its id in this machine's namespace; ``None``: unknown.
        frames: Its calls, the innermost first; empty: not readable, or it runs no Python.
        is_active: Whether it ran or could run; ``None``: unknown.
        name: As the program calls it; ``""``: unknown.
        sleeps_in: The kernel function in which it sleeps, such as ``"nfs_wait_bit_killable"``;
            ``None``: unknown, or it does not sleep.
        state: The kernel's letter for its state, such as ``"D"``; ``None``: unknown.
    """

    tid: int | None
    frames: tuple[StackFrame, ...] = ()
    is_active: bool | None = None
    name: str = ""
    sleeps_in: str | None = None
    state: str | None = None


class ProcessStack(NamedTuple):
    """One process.

    Attributes:
        parent_pid: Its parent; ``None``: unknown.
        program: Its program and script without arguments: ``"python train.py"``; ``""``: unknown.
        threads: Its threads; the first one of the kernel's list (``tid == pid``) first.
    """

    pid: int
    parent_pid: int | None
    program: str
    threads: tuple[ThreadStack, ...]


class StackSample(NamedTuple):
    """The stacks of one process and its descendants.

    Attributes:
        start_ns: CLOCK_MONOTONIC just before they were read.
        end_ns: CLOCK_MONOTONIC just after those of ``pid``; its descendants follow, and can be
            milliseconds later.
        pid: The process that was asked for.
        processes: It and its descendants, itself first; empty if there is none. Of many
            descendants, some have frames, in turn.
        error: Why its Python stacks could not be read, as a sentence; ``None``: they could.
            ``processes`` may then still have the states of threads.
        is_retryable: Whether the next try may succeed: a read without stopping the process can
            meet a stack that changes.
        owner_uid: User of the process; ``None``: unknown.
    """

    start_ns: int
    end_ns: int
    pid: int
    processes: tuple[ProcessStack, ...] = ()
    error: str | None = None
    is_retryable: bool = False
    owner_uid: int | None = None
