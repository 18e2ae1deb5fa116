"""The newest state, and a way to wait for the next one."""

from __future__ import annotations

import json
import os
import threading
from typing import Any

from gpumon.core.clock import Clock
from gpumon.core.gpu_troubles import gpu_troubles, origin_of
from gpumon.core.process_codec import process_documents
from gpumon.core.state import MonitorState
from gpumon.core.state_codec import encode_document, state_document
from gpumon.core.trouble_codec import encode_troubles
from gpumon.core.units import NS_PER_S
from gpumon.outlets.history import History


class LiveState:
    """Hands each tick to any number of readers; a slow one skips ticks and holds nobody up.

    There is no queue: a reader always gets the newest tick. ``publish`` only
    stores; a tick becomes text when the first reader asks, once for all of them.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.history = History()
        self.address: str | None = None
        self._changed = threading.Condition()
        self._encoding = threading.Lock()
        self._state: MonitorState | None = None
        self._tick = 0
        self._event: tuple[int, bytes] = (0, b"")
        self._closed = False

    def publish(self, state: MonitorState) -> None:
        """Take over a new tick and wake all streams."""
        self.history.append(state)
        with self._changed:
            self._state = state
            self._tick += 1
            self._changed.notify_all()

    def close(self) -> None:
        """Wake all streams for the last time."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def ready(self) -> bool:
        """Whether a frame has ever come."""
        state = self._state
        return state is not None and state.samples_total > 0

    @property
    def source_trouble(self) -> str | None:
        """Why the GPUs cannot be read now, as a sentence; ``None``: they can."""
        state = self._state
        if state is None or not state.collectors or state.collectors[0].success:
            return None
        return state.collectors[0].message

    def document(self) -> dict[str, Any] | None:
        """The newest state as ``/api/v1/state`` shows it; ``None`` before the first tick."""
        state = self._state
        if state is None:
            return None
        document = state_document(state, pid=os.getpid(), address=self.address)
        origin = origin_of(state)
        for told, gpu in zip(document["gpus"], state.gpus, strict=True):
            told["processes"] = process_documents(gpu)
            told["troubles"] = encode_troubles(gpu_troubles(gpu, state), *origin)
        return document

    def wait_beyond(self, tick: int, timeout_s: float) -> int | None:
        """Wait for a tick after this one.

        Returns:
            The newest tick's number, ``tick`` itself if none came in time, or
            ``None`` once the server is closing.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._tick > tick, timeout_s)
            return None if self._closed else self._tick

    def event(self) -> bytes:
        """The newest tick as a server-sent event: the state and the points it changed."""
        with self._encoding:
            tick = self._tick
            if self._event[0] != tick:
                document = {"state": self.document(), "history": self.history.newest()}
                body = encode_document(document)
                self._event = (tick, b"event: tick\nid: %d\ndata: %s\n" % (tick, body))
            return self._event[1]

    def age_event(self) -> bytes:
        """How old the newest tick is now, in seconds: a page that just came cannot know."""
        state = self._state
        if state is None:
            return b": waiting for the first tick\n\n"
        age_s = (self._clock.monotonic_ns() - state.taken_at_ns) / NS_PER_S
        return b"event: age\ndata: %s\n\n" % json.dumps(age_s).encode()
