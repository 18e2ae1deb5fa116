"""A terminal of its own for a program, and what it wrote there."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.patience import PATIENCE_S
from tests.processes import ending

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class Written:
    """What a program left on its terminal.

    Attributes:
        exit_code: Its exit code.
        raw: All it wrote, escape codes included.
    """

    exit_code: int
    raw: str

    @property
    def lines(self) -> list[str]:
        """The lines as a reader sees them, without what moves and colours them."""
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
) -> Written:
    """Run a program on a colour terminal of 50 lines until it ends by itself.

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
    try:
        with ending(process):
            raw = _all_output(controller, time.monotonic() + timeout_s)
            return Written(process.wait(timeout=PATIENCE_S), raw.decode("utf-8", "replace"))
    finally:
        os.close(controller)


def _all_output(controller: int, deadline_s: float) -> bytes:
    chunks: list[bytes] = []
    while True:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0 or not select.select([controller], [], [], left_s)[0]:
            raise TimeoutError(f"still running after: {b''.join(chunks)[-2000:]!r}")
        try:
            chunk = os.read(controller, 65536)
        except OSError:  # Linux says EIO once the last writer has gone
            chunk = b""
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)
