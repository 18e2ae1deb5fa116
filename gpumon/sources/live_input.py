"""Bytes that arrive while they are read: from a pipe, or from a growing file."""

from __future__ import annotations

import os
import select
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from gpumon.sources.system_clock import SystemClock

_POLL_S: Final = 0.2
"""Longest wait before checking whether the reading was ended."""
_TAIL_BYTES: Final = 4_096
"""Bytes before the read position that must not change in a followed file."""


class LiveReading:
    """Connects a live input with the code that ends it or watches it.

    Attributes:
        ended: Whether reading ends although the source goes on. A signal handler may set it.
        newest_s: Seconds since the epoch when its newest bytes were written; ``None``: none yet.
        on_begin: Called once the input is open, or is waited for.
        on_wait: Called before each read, and every 0.2 s while nothing arrives.
    """

    def __init__(self) -> None:
        self.ended = False
        self.newest_s: float | None = None
        self.on_begin: Callable[[], None] = lambda: None
        self.on_wait: Callable[[], None] = lambda: None


class LivePipe:
    """A pipe: each read returns what is available, and waits for the first byte."""

    def __init__(self, descriptor: int, live: LiveReading) -> None:
        self._descriptor = descriptor
        self._live = live
        self._arrivals = select.poll()  # select() refuses a descriptor above 1,023
        self._arrivals.register(descriptor, select.POLLIN)
        live.on_begin()

    def read(self, count: int, /) -> bytes:
        live = self._live
        while not live.ended:
            live.on_wait()
            if not live.ended and self._arrivals.poll(1_000 * _POLL_S):
                live.newest_s = SystemClock().wall_time_s()
                return os.read(self._descriptor, count)
        return b""


class FollowedFile:
    """A growing file: appended bytes arrive until the reading is ended.

    A missing file is waited for. One that was replaced, truncated or overwritten ends where it was
    left; ``next_file`` continues at the start of the new one.

    Attributes:
        new_files: How often that happened.
    """

    def __init__(self, path: str, live: LiveReading) -> None:
        self._path = Path(path)
        self._live = live
        self._descriptor: int | None = None
        self._tail = b""
        self.new_files = 0
        live.on_begin()
        while self._descriptor is None and not live.ended:
            self._descriptor = self._opened()
            if self._descriptor is None:
                self._wait()

    @property
    def is_there(self) -> bool:
        return self._descriptor is not None

    def read(self, count: int, /) -> bytes:
        while not self._live.ended and self._descriptor is not None:
            is_replaced = self._is_replaced()  # checked first: earlier bytes must still be read
            data = os.read(self._descriptor, count)
            if self._is_overwritten(len(data)):
                return b""
            if data:
                self._tail = (self._tail + data)[-_TAIL_BYTES:]
                self._live.newest_s = os.fstat(self._descriptor).st_mtime
            if data or is_replaced:
                return data
            self._wait()
        return b""

    def next_file(self) -> bool:
        """Continue with the new file; ``False`` if the reading is ended."""
        if self._live.ended:
            return False
        opened = self._opened()
        if opened is not None:
            self.close()
            self._descriptor, self._tail = opened, b""
            self.new_files += 1
        return True

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _opened(self) -> int | None:
        try:
            return os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None

    def _is_replaced(self) -> bool:
        """Return whether the path names another file now, or the file became shorter."""
        assert self._descriptor is not None
        ours = os.fstat(self._descriptor)
        if ours.st_size < os.lseek(self._descriptor, 0, os.SEEK_CUR):
            return True
        try:
            named = self._path.stat()
        except OSError:
            return False  # renamed, and not created again yet
        return not os.path.samestat(ours, named)

    def _is_overwritten(self, newly_read: int) -> bool:
        """Return whether the bytes before those just read have changed.

        Nothing else shows that a file was truncated and has outgrown its old length since.
        """
        assert self._descriptor is not None
        end = os.lseek(self._descriptor, 0, os.SEEK_CUR) - newly_read
        return os.pread(self._descriptor, len(self._tail), end - len(self._tail)) != self._tail

    def _wait(self) -> None:
        self._live.on_wait()
        if not self._live.ended:
            time.sleep(_POLL_S)


def is_regular(path: str) -> bool:
    """Return whether a path names a regular file, or nothing yet."""
    try:
        return stat.S_ISREG(Path(path).stat().st_mode)
    except FileNotFoundError:
        return True
