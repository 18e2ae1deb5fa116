"""Files of /proc that are opened once and read repeatedly."""

from __future__ import annotations

import os
from typing import Final

_MAX_OPEN: Final = 600
"""Descriptors: the shipped unit may have 1,024, and rings and scrapers need some."""
_MAX_BYTES: Final = 16_384
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC


class KeptFiles:
    """Reads files that the kernel generates, such as those of /proc.

    An open file stays with its task, even if the pid is used again.
    """

    def __init__(self, max_open: int = _MAX_OPEN) -> None:
        self._max_open = max_open
        self._open: dict[str, int] = {}

    def read(self, path: str, max_bytes: int = _MAX_BYTES) -> bytes:
        """Read a file of one record; by default, its first 16 KiB.

        Raises:
            OSError: It is missing or unreadable, or its task is gone; then it is closed.
        """
        descriptor = self._open.get(path)
        if descriptor is None:
            if len(self._open) >= self._max_open:
                return self.read_once(path, max_bytes)
            descriptor = self._open[path] = os.open(path, _FLAGS)
        try:
            return os.pread(descriptor, max_bytes, 0)
        except OSError:
            self.let_go(path)
            raise

    @staticmethod
    def read_once(path: str, max_bytes: int = _MAX_BYTES) -> bytes:
        """Read a file and close it: one that is needed seldom, or has many records.

        Raises:
            OSError: It is missing or unreadable.
        """
        # The kernel returns about a page of many records at a time.
        descriptor, text = os.open(path, _FLAGS), b""
        try:
            while more := os.read(descriptor, max_bytes - len(text)):
                text += more
            return text
        finally:
            os.close(descriptor)

    def cgroups_of(self, pid: int, proc: str) -> list[tuple[str, str]]:
        """Return controllers and path of each cgroup of a process; controllers of v2 are empty.

        Raises:
            OSError: It is gone, or hidden.
        """
        lines = self.read_once(f"{proc}/{pid}/cgroup").decode("utf-8", "replace").splitlines()
        fields = [(*line.split(":", 2), "", "") for line in lines]
        return [(controllers, path) for _, controllers, path, *_ in fields]

    def let_go(self, path: str) -> None:
        descriptor = self._open.pop(path, None)
        if descriptor is not None:
            os.close(descriptor)

    def close(self) -> None:
        for path in list(self._open):
            self.let_go(path)
