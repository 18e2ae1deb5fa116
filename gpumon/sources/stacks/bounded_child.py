"""Run a program for a second at most, with little output, and leave nothing of it behind."""

from __future__ import annotations

import errno
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from gpumon.core.wording import label_text, plainly

MAX_OUTPUT_BYTES: Final = 8 << 20
"""Of standard output: 4 MiB are the stacks of 2,000 threads."""
_MAX_COMPLAINT_BYTES: Final = 1 << 16
_CHUNK: Final = 1 << 16
_REAP_S: Final = 0.15
"""How long to wait for a killed process: only one that sleeps in a driver needs longer."""
_POLL_S: Final = 0.0005
_ENVIRONMENT: Final = {"LC_ALL": "C"}


class ChildResult(NamedTuple):
    """What a program did.

    Attributes:
        code: Its exit status; negative: the signal that ended it; ``None``: it did not start, or
            was killed by us.
        output: What it wrote.
        complaint: The beginning of what it wrote to standard error.
        trouble: Why there is no complete output, as a clause: ``"it did not end within 1 s"``.
    """

    code: int | None = None
    output: bytes = b""
    complaint: bytes = b""
    trouble: str | None = None


class BoundedChild:
    """Runs a program again and again, one process at a time. For one thread.

    Each has no standard input, the folder ``/``, an environment without our variables, and a
    session of its own, which is killed as a whole.

    Attributes:
        cpu_seconds: CPU time of all that ended.
    """

    def __init__(self, max_output_bytes: int = MAX_OUTPUT_BYTES) -> None:
        self.cpu_seconds = 0.0
        self._max_output_bytes = max_output_bytes
        self._stuck: subprocess.Popen[bytes] | None = None

    def run(self, command: Sequence[str], timeout_s: float) -> ChildResult:
        """Run it; never raises."""
        if self._stuck is not None and not self._is_reaped(self._stuck, 0):
            return ChildResult(trouble="an earlier one could not be killed yet")
        self._stuck = None
        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd="/",
                env=_ENVIRONMENT,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            why = label_text(getattr(error, "strerror", None) or error)
            return ChildResult(trouble=f"it could not be started: {why}")
        pipes = _Pipes(child, self._max_output_bytes)
        deadline_s = time.monotonic() + timeout_s
        try:
            if pipes.read_until(deadline_s) and _has_ended(child.pid, deadline_s):
                trouble = None
            else:
                trouble = f"it did not end within {plainly(timeout_s, 1)} s"
        except OSError as error:
            trouble = label_text(error.strerror)
        finally:
            self._end(child)
        code = None if trouble else child.returncode
        return ChildResult(code, b"".join(pipes.output), b"".join(pipes.complaint), trouble)

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        """Kill what is left of its session, and reap it."""
        # It is not reaped yet, so no other process has its number.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        for pipe in (child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()
        if not self._is_reaped(child, _REAP_S):
            self._stuck = child

    def _is_reaped(self, child: subprocess.Popen[bytes], patience_s: float) -> bool:
        deadline_s = time.monotonic() + patience_s
        while True:
            try:
                pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            except ChildProcessError:  # as above
                child.returncode = 0
                return True
            if pid:
                child.returncode = os.waitstatus_to_exitcode(status)
                self.cpu_seconds += usage.ru_utime + usage.ru_stime
                return True
            if time.monotonic() > deadline_s:
                return False
            time.sleep(_POLL_S)


def _has_ended(pid: int, deadline_s: float) -> bool:
    """Wait until a child has ended, and leave it unreaped."""
    with suppress(ChildProcessError):  # the kernel reaps children whose ends we ignore
        while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            if time.monotonic() > deadline_s:
                return False
            time.sleep(_POLL_S)
    return True


class _Pipes:
    """Reads what a child writes, within bounds."""

    def __init__(self, child: subprocess.Popen[bytes], max_output_bytes: int) -> None:
        assert child.stdout is not None
        assert child.stderr is not None
        self._output, self._error = child.stdout.fileno(), child.stderr.fileno()
        self._max_output_bytes = max_output_bytes
        self.output: list[bytes] = []
        self.complaint: list[bytes] = []
        self._room = {self._output: max_output_bytes, self._error: _MAX_COMPLAINT_BYTES}

    def read_until(self, deadline_s: float) -> bool:
        """Read all; return whether both are closed by then.

        Raises:
            OSError: There is too much output.
        """
        with selectors.DefaultSelector() as selector:
            for pipe in self._room:
                selector.register(pipe, selectors.EVENT_READ)
            while selector.get_map():
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    return False
                for key, _ in selector.select(left_s):
                    if not self._read_from(key.fd):
                        selector.unregister(key.fd)
        return True

    def _read_from(self, pipe: int) -> bool:
        chunk = os.read(pipe, _CHUNK)
        self._room[pipe] -= len(chunk)
        if self._room[pipe] >= 0:
            (self.output if pipe == self._output else self.complaint).append(chunk)
        elif pipe == self._output:
            mib = plainly(self._max_output_bytes / (1 << 20), 2)
            raise OSError(errno.EFBIG, f"it wrote more than {mib} MiB")
        return bool(chunk)
