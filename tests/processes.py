"""Processes that a test starts: each ends with its block, whatever is raised in it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import AnyStr


@contextmanager
def ending(process: subprocess.Popen[AnyStr]) -> Iterator[subprocess.Popen[AnyStr]]:
    """A process that was just started; one that is still there at the end is killed, by its pid."""
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):  # what was not written yet has no reader
                    pipe.close()


def code_of_fork(work: Callable[[], object]) -> int:
    """The exit code of a forked child of this process in which that was called: 0 where it is true.

    The child never comes back: one that raised would go on as a second run of all tests.
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
