"""A command that ``gpumon why`` starts, so that it may read its stacks."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Sequence
from typing import Final

from gpumon.errors import GpumonError

_PR_SET_PTRACER: Final = 0x59616D61
_IGNORED_BY_PYTHON: Final = (signal.SIGPIPE, signal.SIGXFSZ)
_GO: Final = b"g"


class StartedCommand:
    """A child that waits for ``begin``, and then becomes the command.

    It permits this process and its children to read it, which Ubuntu's default otherwise refuses
    (``ptrace_scope`` 1). Make it before any thread.

    Attributes:
        pid: Of the child, and so of the command.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._words = list(words)
        prctl, tracer = ctypes.CDLL(None).prctl, os.getpid()
        gate, self._gate = os.pipe()
        self._trouble, of_child = os.pipe()
        self._status: int | None = None
        self.pid = os.fork()
        if self.pid:
            os.close(gate)
            os.close(of_child)
            return
        try:
            os.close(self._gate)
            if os.read(gate, 1) == _GO:
                prctl(_PR_SET_PTRACER, ctypes.c_ulong(tracer), 0, 0, 0)
                for number in _IGNORED_BY_PYTHON:
                    signal.signal(number, signal.SIG_DFL)
                os.execvp(self._words[0], self._words)
        except OSError as error:
            os.write(of_child, str(error.errno).encode())
        finally:
            os._exit(127)

    def begin(self) -> None:
        """Become the command.

        Raises:
            GpumonError: There is no such command, or it cannot be executed.
        """
        os.write(self._gate, _GO)
        with os.fdopen(self._trouble, "rb") as pipe:
            failed = pipe.read()  # the end of the file: it was executed
        self._trouble = -1
        if failed:
            reason = os.strerror(int(failed))
            raise GpumonError(
                f"{self._words[0]!r} cannot be run: {reason}: write `gpumon why -- python train.py`"
            )

    @property
    def has_ended(self) -> bool:
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = status if pid else None
        return self._status is not None

    def forward(self, number: int) -> None:
        """Send it a signal, unless it has ended. Safe in a signal handler."""
        with contextlib.suppress(ProcessLookupError):
            if self._status is None:
                os.kill(self.pid, number)

    def wait(self) -> int:
        """Wait for its end; return its exit code, or 128 and the number of its signal."""
        if self._status is None:
            _, self._status = os.waitpid(self.pid, 0)
        code = os.waitstatus_to_exitcode(self._status)
        return 128 - code if code < 0 else code

    def close(self) -> None:
        """End a child that has not begun, and forget one that has."""
        with contextlib.suppress(OSError):
            os.close(self._gate)
        if self._trouble >= 0:
            os.close(self._trouble)
            self.wait()
