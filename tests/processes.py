"""Processes that end with their block, and pids that are those of the driver."""

from __future__ import annotations

import contextlib
import os
import subprocess
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import AnyStr

import pytest

HOST_PIDS = "pid:[4026531836]"
with_pids_of_the_host = pytest.mark.skipif(
    str(Path("/proc/self/ns/pid").readlink()) != HOST_PIDS, reason="pids here are not the host's"
)


@contextmanager
def ending(process: subprocess.Popen[AnyStr]) -> Iterator[subprocess.Popen[AnyStr]]:
    """Kill a process at the end of the block."""
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):  # unwritten data has no reader
                    pipe.close()


def code_of_fork(work: Callable[[], object]) -> int:
    """The exit code of a forked child that calls ``work``: 0 if it returns true.

    The child never returns; else it would continue as a second run of all tests.
    """
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = int(not work())
        except BaseException:  # noqa: BLE001  (whatever it is, the child ends here)
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
