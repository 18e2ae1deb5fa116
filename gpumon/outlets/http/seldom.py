"""What may happen a thousand times a second is said once a minute."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

_EVERY_S: Final = 60.0


class Seldom:
    """Counts what was not said, so that the next sentence can tell. Safe on several threads."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._said_s: float | None = None
        self._unsaid = 0

    def unsaid(self) -> int | None:
        """Ask once for each time it happens.

        Returns:
            How often it has happened unsaid, if it is time to say it; else ``None``.
        """
        with self._lock:
            now_s = self._now()
            if self._said_s is not None and now_s - self._said_s < _EVERY_S:
                self._unsaid += 1
                return None
            self._said_s, unsaid, self._unsaid = now_s, self._unsaid, 0
            return unsaid
