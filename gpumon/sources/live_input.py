"""Bytes that come while they are read: from a pipe, or from a file that grows."""

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
"""How long a wait may take before somebody looks whether it is over."""
_TAIL_BYTES: Final = 4_096
"""Of a followed file: so much of what was read last must still be there."""


class LiveReading:
    """What a live input has in common with whoever ends it, or looks on meanwhile.

    Attributes:
        ended: Whether it is over although its source goes on. A signal handler may set it.
        newest_s: Seconds since the epoch when its newest bytes were written, as far as is known;
            ``None``: none came yet.
        begin: Called once the input is open, or is waited for.
        look: Called before each read, and every 0.2 s while nothing comes.
    """

    def __init__(self) -> None:
        self.ended = False
        self.newest_s: float | None = None
        self.begin: Callable[[], None] = lambda: None
        self.look: Callable[[], None] = lambda: None


class LivePipe:
    """What comes through a pipe: each read returns what there is, and waits for the first byte."""

    def __init__(self, descriptor: int, live: LiveReading) -> None:
        self._descriptor = descriptor
        self._live = live
        self._arrivals = select.poll()  # select() refuses a descriptor above 1,023
        self._arrivals.register(descriptor, select.POLLIN)
        live.begin()

    def read(self, count: int, /) -> bytes:
        """Up to so many bytes; none at the end."""
        live = self._live
        while not live.ended:
            live.look()
            if not live.ended and self._arrivals.poll(1_000 * _POLL_S):
                live.newest_s = SystemClock().wall_time_s()
                return os.read(self._descriptor, count)
        return b""


class FollowedFile:
    """A file that grows: what is appended comes, until the reading is ended.

    A file that is not there yet is waited for. One that was renamed and made anew, truncated or
    written over ends where it was left; ``next_file`` then goes on at the beginning of the new one.

    Attributes:
        new_files: How often that happened.
    """

    def __init__(self, path: str, live: LiveReading) -> None:
        self._path = Path(path)
        self._live = live
        self._descriptor: int | None = None
        self._tail = b""
        self.new_files = 0
        live.begin()
        while self._descriptor is None and not live.ended:
            self._descriptor = self._opened()
            if self._descriptor is None:
                self._wait()

    @property
    def is_there(self) -> bool:
        """Whether the file came before the reading was ended."""
        return self._descriptor is not None

    def read(self, count: int, /) -> bytes:
        """Up to so many bytes; none where the reading is ended, or the file is another one now."""
        while not self._live.ended and self._descriptor is not None:
            is_replaced = self._is_replaced()  # asked first: what was written before it is read
            data = os.read(self._descriptor, count)
            if self._is_written_over(len(data)):
                return b""
            if data:
                self._tail = (self._tail + data)[-_TAIL_BYTES:]
                self._live.newest_s = os.fstat(self._descriptor).st_mtime
            if data or is_replaced:
                return data
            self._wait()
        return b""

    def next_file(self) -> bool:
        """Go on with the new file; ``False`` where the reading is ended."""
        if self._live.ended:
            return False
        opened = self._opened()
        if opened is not None:
            self.close()
            self._descriptor, self._tail = opened, b""
            self.new_files += 1
        return True

    def close(self) -> None:
        """Close the file that is read now."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _opened(self) -> int | None:
        try:
            return os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None

    def _is_replaced(self) -> bool:
        """Whether the name stands for another file now, or the file became shorter."""
        assert self._descriptor is not None
        ours = os.fstat(self._descriptor)
        if ours.st_size < os.lseek(self._descriptor, 0, os.SEEK_CUR):
            return True
        try:
            named = self._path.stat()
        except OSError:
            return False  # renamed, and not made anew yet
        return not os.path.samestat(ours, named)

    def _is_written_over(self, newly_read: int) -> bool:
        """Whether other bytes stand now before those that were just read: it was made anew.

        A file that was truncated and outgrew its old length since shows it by nothing else.
        """
        assert self._descriptor is not None
        end = os.lseek(self._descriptor, 0, os.SEEK_CUR) - newly_read
        return os.pread(self._descriptor, len(self._tail), end - len(self._tail)) != self._tail

    def _wait(self) -> None:
        self._live.look()
        if not self._live.ended:
            time.sleep(_POLL_S)


def is_regular(path: str) -> bool:
    """Whether a path names a file that can grow, or nothing yet."""
    try:
        return stat.S_ISREG(Path(path).stat().st_mode)
    except FileNotFoundError:
        return True
