"""A command that ``gpumon why`` or ``gpumon run`` starts as a child."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from typing import Final

from gpumon.errors import GpumonError

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_PTRACER: Final = 0x59616D61
_IGNORED_BY_PYTHON: Final = (signal.SIGPIPE, signal.SIGXFSZ)
_GO: Final = b"g"
_NOT_FOUND: Final = 127
_NOT_EXECUTABLE: Final = 126


class CommandError(GpumonError):
    """A command that cannot be run.

    Attributes:
        exit_code: That of a shell: 127 if there is no such command, else 126.
    """

    def __init__(self, command: str, number: int, example: str) -> None:
        """``number``: the ``errno`` of executing it; ``example``: a command that can be run."""
        is_missing = number in (errno.ENOENT, errno.ENOTDIR)
        self.exit_code = _NOT_FOUND if is_missing else _NOT_EXECUTABLE
        reason = os.strerror(number)
        if is_missing and shutil.which(command, os.F_OK) is not None:
            reason = "the interpreter in its first line does not exist"
        super().__init__(f"{command!r} cannot be run: {reason}: write `{example}`")


class StartedCommand:
    """A child that waits for ``begin``, and then becomes the command.

    It permits this process and its children to read it, which Ubuntu's default otherwise refuses
    (``ptrace_scope`` 1). Make it before any thread.

    Attributes:
        pid: Of the child, and so of the command.
    """

    def __init__(
        self,
        words: Sequence[str],
        *,
        environ: Mapping[str, str] = os.environ,
        ends_with_gpumon: bool = False,
        example: str = "gpumon why -- python train.py",
    ) -> None:
        """Fork.

        Args:
            words: The command and its arguments.
            environ: Its environment.
            ends_with_gpumon: Whether it is killed if this process is.
            example: For the error of a command that cannot be run.
        """
        self._words, self._example = list(words), example
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
                if ends_with_gpumon:
                    prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
                    if os.getppid() != tracer:
                        return  # it has ended already
                for number in _IGNORED_BY_PYTHON:
                    signal.signal(number, signal.SIG_DFL)
                os.execvpe(self._words[0], self._words, dict(environ))
        except OSError as error:
            os.write(of_child, str(error.errno).encode())
        finally:
            os._exit(127)

    def begin(self) -> None:
        """Become the command.

        Raises:
            CommandError: There is no such command, or it cannot be executed.
        """
        os.write(self._gate, _GO)
        with os.fdopen(self._trouble, "rb") as pipe:
            failed = pipe.read()  # the end of the file: it was executed
        self._trouble = -1
        if failed:
            raise CommandError(self._words[0], int(failed), self._example)

    @property
    def has_ended(self) -> bool:
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = status if pid else None
        return self._status is not None

    @property
    def ended_by(self) -> int | None:
        """The number of the signal that ended it; ``None`` if it ended by itself, or runs."""
        status = self._status
        return os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else None

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
