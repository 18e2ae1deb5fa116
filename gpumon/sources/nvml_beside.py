"""What may take long is read beside the sampling: on one thread of its own, one round at a time.

A call that hangs cannot be ended. So it has this thread to itself, no second
one is started for what waits behind it, and the utilisation is sampled on.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Final

Work = Callable[[], None]

_ENOUGH: Final = None


class Beside:
    """Runs rounds of work, and tells when one is done. All but its own thread is one thread's."""

    def __init__(self) -> None:
        self._rounds: queue.SimpleQueue[Sequence[Work] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._ending = threading.Lock()
        self._afterwards: list[Work] = []
        self._done = threading.Event()
        self._done.set()
        self._error: Exception | None = None

    @property
    def is_free(self) -> bool:
        """Whether no round is under way."""
        return self._done.is_set()

    def run(self, work: Sequence[Work], patience_s: float) -> None:
        """Begin a round, where none is under way, and wait for its end, but not long.

        Args:
            work: What is done, one after the other.
            patience_s: How long to wait; what is not done by then is done all the same.

        Raises:
            Exception: What an earlier round or this one ended with.
        """
        if self.is_free:
            self._done.clear()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="gpumon-slow", daemon=True)
                self._thread.start()
            self._rounds.put(work)
            self.wait(patience_s)
        error, self._error = self._error, None
        if error is not None:
            raise error

    def wait(self, patience_s: float) -> None:
        """Wait for the end of the round that is under way, but not long."""
        self._done.wait(patience_s)

    def afterwards(self, work: Work) -> None:
        """Do this where no round is under way: now, or at the end of the present one."""
        with self._ending:
            if not self.is_free:
                self._afterwards.append(work)
                return
        work()

    def close(self) -> None:
        """Let the thread end, which nobody waits for. Safe to call twice."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._rounds.put(_ENOUGH)

    def _work(self) -> None:
        while (work := self._rounds.get()) is not _ENOUGH:
            self._try(work)
            while (last := self._last()) is not None:
                self._try([last])

    def _try(self, work: Sequence[Work]) -> None:
        try:
            for one in work:
                one()
        except Exception as error:  # noqa: BLE001 - it is raised where somebody can tell it
            self._error = error

    def _last(self) -> Work | None:
        """What is left to be done in this round; ``None``: it has ended."""
        with self._ending:
            if self._afterwards:
                return self._afterwards.pop(0)
            self._done.set()
            return None
