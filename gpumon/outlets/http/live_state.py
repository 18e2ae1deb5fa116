"""The newest state, and a way to wait for the next one."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

from gpumon.core.clock import Clock, seconds
from gpumon.core.codecs.field_codec import WallClock, encode_document
from gpumon.core.codecs.gpu_codec import encode_held, encode_troubles
from gpumon.core.codecs.report_codec import encode_reasons, encode_standstill
from gpumon.core.codecs.stack_codec import ANYBODY, Viewer
from gpumon.core.codecs.state_codec import board_document, state_document
from gpumon.core.codecs.view_codec import encode_view
from gpumon.core.device.troubles import all_troubles, error_of
from gpumon.core.ring_format.runtime_paths import stale_after_ns
from gpumon.core.sample import Device
from gpumon.core.state import (
    REPLAY,
    MonitorState,
    gpu_troubles,
    origin_of,
    source_message,
    unknown_gpu,
)
from gpumon.core.view.view import MonitorView, RecentCells
from gpumon.core.wording import label_text
from gpumon.outlets.http.page_history import PageHistory

ViewReader = Callable[[MonitorState, Mapping[str, RecentCells]], MonitorView]
"""Returns the view of a state, whose GPUs have these last minutes by UUID."""


class LiveState:
    """Gives the newest tick to any number of readers; a slow one skips ticks.

    There is no queue. ``publish`` only stores; a tick is encoded when the first reader needs it,
    once for all who may see the same.
    """

    def __init__(self, clock: Clock, view: ViewReader) -> None:
        self._clock = clock
        self._read_view = view
        self.history = PageHistory()
        self.address: str | None = None
        self._changed = threading.Condition()
        self._encoding = threading.Lock()
        self._state: MonitorState | None = None
        self._tick = 0
        self._encoded_of = 0
        self._view: MonitorView | None = None
        self._events: dict[Viewer, bytes] = {}
        self._closed = False

    def publish(self, state: MonitorState) -> None:
        self.history.append(state)
        with self._changed:
            self._state = state
            self._tick += 1
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def wall_time_s(self) -> float | None:
        """Seconds since the epoch of the newest tick; ``None`` before the first."""
        state = self._state
        return None if state is None else state.wall_time_s

    @property
    def source_trouble(self) -> str | None:
        """Why no GPU can be read now, as a sentence; ``None``: at least one can.

        A GPU that answered within the last two and a half periods can be read.
        """
        state = self._state
        message = None if state is None else source_message(state)
        if state is None or not state.samples_total:
            return message or "no GPU has been read yet"
        age_ns = self._clock.monotonic_ns() - state.taken_at_ns
        if age_ns > stale_after_ns(state.period_ns):
            return f"the newest tick is {seconds(age_ns):.0f} s old"
        for collector in state.collectors:
            if collector.name == REPLAY and not collector.success:
                return collector.message
        if any(gpu.present for gpu in state.gpus):
            return None
        return message or "no GPU answers"

    def document(self, viewer: Viewer = ANYBODY) -> dict[str, Any] | None:
        """The newest state as ``/api/v1/state`` shows it; ``None`` before the first tick."""
        state = self._state
        return None if state is None else self._document(state, viewer)

    def _document(self, state: MonitorState, viewer: Viewer) -> dict[str, Any]:
        document = state_document(state, pid=os.getpid(), address=self.address)
        clock = WallClock(*origin_of(state))
        for shown, gpu in zip(document["gpus"], state.gpus, strict=True):
            shown |= board_document(gpu, viewer)
            shown["held"] = encode_held(gpu.held, clock)
            troubles = gpu_troubles(gpu, state)
            shown["troubles"] = encode_troubles(troubles, clock)
            if gpu.error is not None:
                shown["error"] = label_text(error_of(troubles), 512)
        for shown, run in zip(document["runs"], state.runs, strict=True):
            shown["owner_uid"] = run.owner_uid
            shown["refused_gpus"] = [label_text(uuid) for uuid in run.refused_uuids]
            shown["reasons"] = encode_reasons(run)
            shown |= encode_standstill(run, clock)
        lost = unknown_gpu(state)
        document["unknown_gpus"] = [] if lost is None else [_unknown_document(*lost)]
        return document

    def wait_beyond(self, tick: int, timeout_s: float) -> int | None:
        """Wait for a tick after this one; return the newest number, or ``None`` when closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._tick > tick, timeout_s)
            return None if self._closed else self._tick

    def event(self, viewer: Viewer = ANYBODY) -> bytes:
        """The newest tick as a server-sent event: its view, and changed points."""
        with self._encoding:
            tick, view, viewer = self._newest_view(viewer)
            if viewer not in self._events:
                document = {
                    "view": None if view is None else encode_view(view),
                    "history": self.history.newest(),
                }
                body = encode_document(document)
                self._events[viewer] = b"event: tick\nid: %d\ndata: %s\n" % (tick, body)
            return self._events[viewer]

    def view(self, viewer: Viewer = ANYBODY) -> MonitorView | None:
        """The view of the newest tick; ``None`` before the first."""
        with self._encoding:
            return self._newest_view(viewer)[1]

    def _newest_view(self, viewer: Viewer) -> tuple[int, MonitorView | None, Viewer]:
        """The newest tick, its view for this viewer, and who may see no more than that."""
        with self._changed:
            tick, state = self._tick, self._state
        if self._encoded_of != tick:
            self._view = None if state is None else self._read_view(state, self.history.cells())
            self._encoded_of, self._events = tick, {}
        view = self._view
        if view is None or state is None:
            return tick, None, ANYBODY
        hidden = {gpu.device.uuid for gpu in state.gpus if not viewer.may_see_paths(gpu.stacks)}
        if len(hidden) == len(state.gpus):
            viewer = ANYBODY
        gpus = [gpu._replace(seen_files=()) if gpu.uuid in hidden else gpu for gpu in view.gpus]
        return tick, view._replace(gpus=tuple(gpus)), viewer

    def age_event(self) -> bytes:
        """The age of the newest tick in seconds, for a page that just connected."""
        state = self._state
        if state is None:
            return b": waiting for the first tick\n\n"
        age_s = seconds(self._clock.monotonic_ns() - state.taken_at_ns)
        return b"event: age\ndata: %s\n\n" % json.dumps(age_s).encode()


def _unknown_document(device: Device, error: str) -> dict[str, Any]:
    return {
        "label": device.label,
        "error": label_text(error, 512),
        "troubles": encode_troubles(all_troubles((), None, error, device.index), WallClock(None)),
    }
