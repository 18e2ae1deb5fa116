"""One line of a program's source, as the process sees the file."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from gpumon.core.stacks.stack import StackFrame
from gpumon.core.wording import label_text

_MAX_BYTES: Final = 1 << 20
_MAX_LINES: Final = 256
_SHOWN: Final = 60


class SourceLines:
    """Reads lines once and keeps them, because a process may end before they are shown.

    The path comes from another process, so only a Python file is read that this process's owner
    could read, too.
    """

    def __init__(self, pid: int, proc: str = "/proc") -> None:
        self._folder = f"{proc}/{pid}"
        self._lines: dict[tuple[str, int | None], str] = {}

    def line_of(self, frame: StackFrame) -> str:
        """The text of its line, without indentation; empty: unknown. Never raises."""
        key = frame.path, frame.line
        if key not in self._lines:
            if len(self._lines) >= _MAX_LINES:
                return ""
            self._lines[key] = self._read(frame)
        return self._lines[key]

    def _read(self, frame: StackFrame) -> str:
        if frame.line is None or frame.line < 1 or not frame.path.endswith(".py"):
            return ""
        within = "root" if frame.path.startswith("/") else "cwd"
        path = Path(f"{self._folder}/{within}/{frame.path.lstrip('/')}")
        try:
            owner = Path(self._folder).stat().st_uid
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(path, flags)
        except (OSError, ValueError):
            return ""
        try:
            found = os.fstat(descriptor)
            is_shared = found.st_uid == owner or found.st_mode & stat.S_IROTH
            if not stat.S_ISREG(found.st_mode) or not is_shared:
                return ""
            lines = os.read(descriptor, _MAX_BYTES).split(b"\n", frame.line)
        except OSError:
            return ""
        finally:
            os.close(descriptor)
        if len(lines) < frame.line:
            return ""
        return label_text(lines[frame.line - 1].decode("utf-8", "replace").strip(), _SHOWN)
