"""Faults of the web server: always counted, seldom logged."""

from __future__ import annotations

import errno
import logging
import math
import threading
import time
import traceback
from typing import Final

from gpumon.core.state import CollectorState

_LOG = logging.getLogger(__name__)

WEB_SERVER: Final = "web_server"
"""The name of its collector."""
_LOGGED_EVERY_S: Final = 60.0
"""Events that may happen a thousand times a second are logged once a minute."""
_WELL_AFTER_S: Final = 60.0
_MAX_KINDS: Final = 100
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""A resource is exhausted: the location in the code does not matter."""


class SeldomLogged:
    """Counts events that were not logged, for the next line. Safe on several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logged_s, self._suppressed = -math.inf, 0

    def suppressed(self, *, is_new: bool = False) -> int | None:
        """How many events were not logged, if a line is due; call it once for each event.

        For a new kind of event, a line is always due.
        """
        with self._lock:
            now_s = time.monotonic()
            if not is_new and now_s - self._logged_s < _LOGGED_EVERY_S:
                self._suppressed += 1
                return None
            self._logged_s, suppressed, self._suppressed = now_s, self._suppressed, 0
            return suppressed


class FaultLog:
    """Logs each new kind of fault, and repetitions at most once a minute.

    A kind is an error class, its errno and the line that raised it. Safe on several threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines = SeldomLogged()
        self._kinds: set[tuple[str, int | None, str, int]] = set()
        self._count = 0
        self._newest: tuple[float, str] | None = None

    def log(self, what: str, error: Exception) -> None:
        """Count and log a fault.

        Args:
            what: Its consequence, as the beginning of a sentence.
            error: Its cause.
        """
        name = type(error).__name__
        number = getattr(error, "errno", None)
        frame, line = [*traceback.walk_tb(error.__traceback__)][-1]
        kind = (name, number, frame.f_code.co_filename, line)
        with self._lock:
            self._count += 1
            self._newest = time.monotonic(), f"{what}: {name}, see the log of gpumon serve"
            is_new = kind not in self._kinds and len(self._kinds) < _MAX_KINDS
            self._kinds |= {kind} if is_new else set()
        suppressed = self._lines.suppressed(is_new=is_new)
        if suppressed is None:
            return
        more = f" (and {suppressed} more faults since the last line)" if suppressed else ""
        has_place = is_new and number not in _EXHAUSTED
        _LOG.error("%s%s: %s: %s", what, more, name, error, exc_info=error if has_place else None)

    def collector_state(self) -> CollectorState:
        """State of the web server: no success for a minute after a fault."""
        with self._lock:
            count, newest = self._count, self._newest
        is_well = newest is None or time.monotonic() - newest[0] >= _WELL_AFTER_S
        return CollectorState(
            name=WEB_SERVER,
            success=is_well,
            duration_seconds=0.0,
            errors_total=count,
            message=None if newest is None else newest[1],
        )
