"""Runs a program on a pseudo-terminal, and returns what it wrote."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.processes import ending
from tests.waiting import PATIENCE_S

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class Written:
    """What a program wrote on its terminal.

    Attributes:
        exit_code: Its exit code.
        raw: All it wrote, escape codes included.
    """

    exit_code: int
    raw: str

    @property
    def lines(self) -> list[str]:
        """The lines as a reader sees them, without escape codes."""
        return [_ESCAPE.sub("", line).rstrip() for line in self.raw.replace("\r", "").split("\n")]

    @property
    def raw_lines(self) -> list[str]:
        """The same lines with their escape codes."""
        return self.raw.replace("\r", "").split("\n")


def on_a_terminal(
    words: Sequence[str],
    *,
    environ: Mapping[str, str],
    columns: int = 120,
    timeout_s: float = 30,
    ctrl_c_at: str | None = None,
    typed: str = "",
) -> Written:
    """Run a program on a colour terminal of 50 lines until it ends by itself.

    Args:
        words: The program and its arguments.
        environ: Its environment.
        columns: Width of the terminal.
        timeout_s: How long it may take.
        ctrl_c_at: A pattern; once the terminal shows it, every process there gets a SIGINT.
        typed: Keys that its user presses at the start.

    Raises:
        TimeoutError: It did not end in time; it was killed.
    """
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    process = subprocess.Popen(
        words,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env={**environ, "TERM": "xterm"},
        start_new_session=True,
    )
    os.close(terminal)
    os.write(controller, typed.encode())
    try:
        with ending(process):
            deadline_s = time.monotonic() + timeout_s
            raw = b""
            if ctrl_c_at is not None:
                raw = _output_up_to(ctrl_c_at, controller, deadline_s)
                os.killpg(process.pid, signal.SIGINT)
            raw += _all_output(controller, deadline_s)
            return Written(process.wait(timeout=PATIENCE_S), raw.decode("utf-8", "replace"))
    finally:
        os.close(controller)


def _all_output(controller: int, deadline_s: float) -> bytes:
    return b"".join(_chunks(controller, deadline_s))


def _output_up_to(pattern: str, controller: int, deadline_s: float) -> bytes:
    raw = b""
    for chunk in _chunks(controller, deadline_s):
        raw += chunk
        if re.search(pattern, _ESCAPE.sub("", raw.decode("utf-8", "replace"))):
            return raw
    raise AssertionError(f"it ended without {pattern!r}: {raw[-2000:]!r}")


def _chunks(controller: int, deadline_s: float) -> Iterator[bytes]:
    last, waiting = b"", select.poll()  # select() refuses a descriptor above 1,023
    waiting.register(controller, select.POLLIN)
    while True:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0 or not waiting.poll(left_s * 1_000):
            raise TimeoutError(f"still running after: {last[-2000:]!r}")
        try:
            last = os.read(controller, 65536)
        except OSError:  # Linux says EIO once the last writer has gone
            return
        if not last:
            return
        yield last
