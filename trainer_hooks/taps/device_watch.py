"""When the device finished each step, found out on a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from time import monotonic_ns
from typing import Final

import jax

_SPACING_NS: Final = 2_000_000
"""Steps shorter than this are not all watched: waking a thread costs some 10 us of the step."""
_MOST_WAITING: Final = 64
_STOP_PATIENCE_S: Final = 0.5
_NEVER_NS: Final = 1 << 63
"""As the time of the last step that was watched, it lets none be watched again."""


class DeviceWatch:
    """Waits for the results of steps, so that the training need not.

    Only outputs that no later step takes over may be handed in: the logs, not
    the state, whose buffers are donated to the next step.
    """

    def __init__(self, tell: Callable[[int, int], None]) -> None:
        """Start nothing yet.

        Args:
            tell: Called on the watching thread with the step's number and the
                instant it was done, CLOCK_MONOTONIC nanoseconds.
        """
        self._tell = tell
        self._queue: SimpleQueue[tuple[int, object] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._last_ns = 0

    def submit(self, step: int, outputs: object) -> None:
        """Watch a step, unless the last one is too recent. Returns at once."""
        now_ns = monotonic_ns()
        if now_ns - self._last_ns < _SPACING_NS or self._queue.qsize() >= _MOST_WAITING:
            return
        self._last_ns = now_ns
        if self._thread is None and not self._start():
            return
        self._queue.put((step, outputs))

    def _start(self) -> bool:
        thread = threading.Thread(target=self._watch, name="gpumon-device", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no thread is to be had: the end of the steps stays unknown
            self._last_ns = _NEVER_NS
            return False
        self._thread = thread
        return True

    def stop(self) -> None:
        """End the thread when the device is done. Waits half a second at most."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(_STOP_PATIENCE_S)
            self._thread = None

    def _watch(self) -> None:
        for step, outputs in iter(self._queue.get, None):
            try:
                jax.block_until_ready(outputs)
            except Exception:  # noqa: BLE001 (the training meets the same error, and says so)
                continue
            self._tell(step, monotonic_ns())
            del outputs
