"""How ``gpumon why`` reads the stacks of a process, or why it cannot."""

from __future__ import annotations

from pathlib import Path

from gpumon.core.clock import Clock
from gpumon.core.stacks.sleeping import kernel_place_of
from gpumon.core.stacks.stack import StackSample
from gpumon.errors import SourceUnavailableError
from gpumon.pipeline.stack_watch import WatchReader
from gpumon.sources.stacks.permission import refusal
from gpumon.sources.stacks.py_spy import PySpy, find_py_spy
from gpumon.sources.stacks.thread_states import ThreadStates

_WORKERS = 2
"""Workers whose stacks are read in one sample, in turn: each takes about 10 ms of CPU time."""
_INSTALL = (
    "stacks need py-spy, which is not installed here: run `pip install -e '.[stacks]'` in the "
    "checkout of gpumon"
)


class NoStacksError(SourceUnavailableError):
    """The stacks of a process cannot be read; the states of its threads may be.

    Attributes:
        pid: The process.
    """

    def __init__(self, pid: int, sentence: str) -> None:
        super().__init__(sentence)
        self.pid = pid


def reader_of(pid: int, clock: Clock) -> WatchReader:
    """The reader of its Python stacks; of thread states, if it runs no Python.

    Raises:
        NoStacksError: It may not be read, or py-spy is missing.
    """
    states = ThreadStates(clock)
    if _is_known(pid) and not states.is_python(pid):
        return WatchReader(
            lambda asked: _as_stacks(states.read(asked)), kernel_place_of, is_python=False
        )
    refused = refusal(pid)
    if refused is not None:
        remedy = "" if refused.remedy is None else f": {refused.remedy}"
        raise NoStacksError(pid, f"{refused.text}{remedy}")
    program = find_py_spy()
    if program is None:
        raise NoStacksError(pid, _INSTALL)
    return WatchReader(PySpy(program, clock, most_workers=_WORKERS).read)


def _is_known(pid: int) -> bool:
    """Whether the kernel shows which program it is; of other users' processes it does not."""
    try:
        return bool(Path(f"/proc/{pid}/exe").readlink())
    except OSError:
        return False


def _as_stacks(states: StackSample) -> StackSample:
    """The states of threads as a sample: there is nothing more to read of such a program."""
    return states._replace(error=None) if states.processes else states
