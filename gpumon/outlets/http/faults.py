"""What goes wrong in the web server: logged seldom, counted always."""

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
"""What may happen a thousand times a second is logged once a minute."""
_WELL_AFTER_S: Final = 60.0
_MOST_KINDS: Final = 100
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""The machine or a limit has no more to give: the place in the code does not matter."""


class SeldomLogged:
    """Counts events that were not logged, for the next line. Safe on several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logged_s: float | None = None
        self._suppressed = 0

    def suppressed(self) -> int | None:
        """How many events were not logged, if one is due now; call it once for each event."""
        with self._lock:
            now_s = time.monotonic()
            if self._logged_s is not None and now_s - self._logged_s < _LOGGED_EVERY_S:
                self._suppressed += 1
                return None
            self._logged_s, suppressed, self._suppressed = now_s, self._suppressed, 0
            return suppressed


class FaultLog:
    """Logs each kind of fault once when it is new, and repetitions at most once a minute.

    A kind is an error class, its errno and the line that raised it. Safe on several threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logged_s, self._suppressed = -math.inf, 0
        self._kinds: set[tuple[str, int | None, str, int]] = set()
        self._count = 0
        self._newest: tuple[float, str] | None = None

    def log(self, what: str, error: Exception) -> None:
        """Count and log a fault.

        Args:
            what: What it costs, as the beginning of a sentence.
            error: Why.
        """
        name = type(error).__name__
        number = getattr(error, "errno", None)
        frame, line = [*traceback.walk_tb(error.__traceback__)][-1]
        kind = (name, number, frame.f_code.co_filename, line)
        with self._lock:
            now_s = time.monotonic()
            self._count += 1
            self._newest = now_s, f"{what}: {name}, see the log of gpumon serve"
            is_new = kind not in self._kinds and len(self._kinds) < _MOST_KINDS
            if not is_new and now_s - self._logged_s < _LOGGED_EVERY_S:
                self._suppressed += 1
                return
            self._kinds |= {kind} if is_new else set()
            self._logged_s, suppressed, self._suppressed = now_s, self._suppressed, 0
        more = f" (and {suppressed} more faults since the last line)" if suppressed else ""
        has_place = is_new and number not in _EXHAUSTED
        _LOG.error("%s%s: %s: %s", what, more, name, error, exc_info=error if has_place else None)

    def collector_state(self) -> CollectorState:
        """How the web server did of late: no success for a minute after a fault."""
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
