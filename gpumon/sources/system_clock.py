"""The clock of this machine."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path

from gpumon.core.clock import seconds


class SystemClock:
    """CLOCK_MONOTONIC and the wall clock, and a sleep that can be interrupted."""

    def __init__(self) -> None:
        # No Event: a signal may come while this thread holds the lock that ``set`` would take.
        self._is_woken, self._released_by_wake = False, threading.Lock()
        self._released_by_wake.acquire()

    monotonic_ns = staticmethod(time.monotonic_ns)
    """CLOCK_MONOTONIC: the C function itself, as it is called several times a tick."""

    def wall_time_s(self) -> float:
        return seconds(time.time_ns())

    def sleep_until_ns(self, deadline_ns: int) -> None:
        """Return at or after ``deadline_ns``, or as soon as ``wake`` is called."""
        while not self._is_woken:
            left_ns = deadline_ns - time.monotonic_ns()
            if left_ns <= 0:
                return
            self._released_by_wake.acquire(timeout=seconds(left_ns))

    def wake(self) -> None:
        """End this sleep and all later ones at once. Safe in a signal handler."""
        self._is_woken = True
        with suppress(RuntimeError):  # it was called before
            self._released_by_wake.release()


def read_boot_id(path: Path = Path("/proc/sys/kernel/random/boot_id")) -> str:
    """The kernel's boot id: monotonic times compare only within one. Empty if unknown."""
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
