"""XID and memory errors, and changes of MIG, of all GPUs as they happen, across driver reloads.

An event carries no time: it counts from the frame that reports it. Where the driver or the board
has no events (WSL, vGPU, old drivers) there is no thread. Time spent waiting is no cost: a waiting
call holds no lock of the driver.

The wait blocks, so no other code may depend on it. Freeing an event set while a wait is inside
crashes the process, so only the waiting thread frees it, after its last wait has returned. To end
a set, another thread requests it, waits a short time, and leaves a hanging wait alone.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.core.device.driver_codes import MAX_XIDS
from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.codes import (
    FUNCTION_NOT_FOUND,
    NOTHING_HAPPENED,
    PERMANENT,
    SUCCESS,
    UNINITIALIZED,
)
from gpumon.sources.nvml.fields.table import EVENT_REGISTER, EVENT_WAIT
from gpumon.sources.nvml.pynvml_module import pynvml

XID_ERROR: Final = 0x8
DOUBLE_BIT_ERROR: Final = 0x2
MIG_CHANGE: Final = 0x100
_WANTED: Final = XID_ERROR | DOUBLE_BIT_ERROR | MIG_CHANGE
"""Corrected memory errors are left out: there can be thousands, and each would wake the thread."""

WAIT_MS = 1000
"""How long one wait lasts, in milliseconds: closing may take as long."""
_PATIENCE_S: Final = 1.2
_AT_ONCE, _BETWEEN_MORE_S = 32, 0.005
WAITS: Final = (EVENT_WAIT.function, "nvmlEventSetWait")

OnEvent = Callable[[str, int, int], None]
"""Receives the GPU's UUID, the event's type, and its number."""


class EventSet:
    """The driver's event set, with the GPUs that are registered.

    Attributes:
        code: The driver's code of its creation; nothing else may be called unless it is 0.
        has_gpus: Whether a GPU was ever registered.
        ended: Whether an error of the driver ended the waiting; the set is freed then.
        worked: Whether a wait ever returned without an error.
    """

    def __init__(self, library: NvmlLibrary, on_event: OnEvent, wake: Callable[[], None]) -> None:
        """Create the set. It waits for nothing before ``start``.

        Its waiting thread calls ``on_event`` with each event, and ``wake`` after that and at its
        end.
        """
        self._library, self._on_event, self._wake = library, on_event, wake
        self._set = ctypes.c_void_p()
        self._uuid_of: dict[int, str] = {}
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._freed = self.ended = self.worked = self.has_gpus = False
        self._on_closed: Callable[[], None] | None = None
        name = next((name for name in WAITS if library.has(name)), None)
        if name is None:
            self.code = FUNCTION_NOT_FOUND
            return
        self._wait = library.function(name)
        self._free = library.function("nvmlEventSetFree")
        self.code = library.call("nvmlEventSetCreate", ctypes.byref(self._set))

    def register(self, uuid: str, handle: int) -> int:
        """Register the events of that GPU that it supports.

        Returns:
            NVML's code; 0 also where it supports none of the wanted events.
        """
        code, types = self._library.event_types(handle)
        wanted = types & _WANTED
        if code != SUCCESS or not wanted:
            return code
        # A GPU may get another handle when MIG changes; an event of the last one may still come.
        handles = [known for known, owner in self._uuid_of.items() if owner == uuid]
        for old in handles[:-1]:
            del self._uuid_of[old]
        self._uuid_of[handle] = uuid
        with self._lock:
            if self._freed:
                return UNINITIALIZED
            arguments = ctypes.c_void_p(handle), ctypes.c_ulonglong(wanted), self._set
            code = self._library.call(EVENT_REGISTER.function, *arguments)
        self.has_gpus |= code == SUCCESS
        return code

    def start(self) -> None:
        """Start waiting, unless that has begun."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="gpumon-events", daemon=True)
            self._thread.start()

    def close(self, on_closed: Callable[[], None]) -> None:
        """End the wait, free the set, and then call ``on_closed``.

        Returns within 2 s. If a wait hangs, its thread calls ``on_closed`` when it returns.
        """
        self._stop.set()
        if self._thread is None:
            if self.code == SUCCESS:
                self._free(self._set)
        else:
            self._thread.join(_PATIENCE_S)
            with self._lock:
                if not self._freed:
                    self._on_closed = on_closed
                    return
        on_closed()

    # -- on the waiting thread ---------------------------------------------------

    def _work(self) -> None:
        try:
            self._listen()
        finally:
            with self._lock:
                self._free(self._set)
                self._freed = True
                self.ended = not self._stop.is_set()
                on_closed = self._on_closed
            if on_closed is not None:
                on_closed()
            self._wake()

    def _uuid_for_handle(self, handle: int) -> str | None:
        # After a reset, a registered GPU has a new handle.
        return self._uuid_of.get(handle) or self._library.text("nvmlDeviceGetUUID", handle)

    def _listen(self) -> None:
        event, in_a_row = pynvml.c_nvmlEventData_t(), 0
        wait_args = self._set, ctypes.byref(event), ctypes.c_uint(WAIT_MS)
        while not self._stop.is_set():
            code = self._wait(*wait_args)
            if code == NOTHING_HAPPENED:
                self.worked, in_a_row = True, 0
                continue
            if code != SUCCESS:
                return
            self.worked = True
            uuid = self._uuid_for_handle(ctypes.cast(event.device, ctypes.c_void_p).value or 0)
            if uuid is not None:
                self._on_event(uuid, event.eventType, event.eventData)
                self._wake()
            in_a_row += 1
            if in_a_row > _AT_ONCE:
                self._stop.wait(_BETWEEN_MORE_S)


Counts = tuple[tuple[int, int], ...]
"""Pairs of XID and count, by XID."""


_FIRST_WAIT_NS: Final = NS_PER_S // 2
_LONGEST_WAIT_NS: Final = 60 * NS_PER_S
_REGISTER_AGAIN_NS: Final = 5 * NS_PER_S
_MAX_CHANGED: Final = 256


class NvmlEvents:
    """Keeps one event set with the GPUs that can be read; all methods are for one thread.

    Attributes:
        news: Whether an event came since ``pop_changed``.
    """

    def __init__(self, *, wanted: bool) -> None:
        self._wanted = self._possible = wanted
        self._lock = threading.Lock()
        self._counts: dict[str, dict[int, int]] = {}
        self._changed: deque[str] = deque(maxlen=_MAX_CHANGED)
        self._set: EventSet | None = None
        self._known: set[tuple[str, int]] = set()
        self._retry_at_ns, self._wait_ns = 0, _FIRST_WAIT_NS
        self.news = False

    def xids_of(self, uuid: str) -> Counts:
        """Count that GPU's errors by XID, ``MAX_XIDS`` of them at most."""
        with self._lock:
            return tuple(sorted(self._counts.get(uuid, {}).items()))

    def pop_changed(self) -> set[str]:
        """Return the GPUs whose memory failed or MIG changed since the last call, by UUID."""
        self.news = False
        return {self._changed.popleft() for _ in range(len(self._changed))}

    def follow(self, library: NvmlLibrary, gpus: Iterable[tuple[str, int]], now_ns: int) -> None:
        """Register these GPUs, by UUID and handle; cheap if nothing changed."""
        if self._set is not None and self._set.ended:
            self._step_back(self._set, now_ns)
        if not self._possible or now_ns < self._retry_at_ns:
            return
        fresh = [gpu for gpu in gpus if gpu not in self._known]
        if fresh:
            self._register(library, fresh, now_ns)

    def release(self, library: NvmlLibrary) -> None:
        """Close NVML, after the last wait has left it. Returns within 2 s."""
        open_set, self._set = self._set, None
        self._known.clear()
        self._possible, self._retry_at_ns = self._wanted, 0
        if open_set is None:
            library.close()
        else:
            open_set.close(library.close)

    def _step_back(self, ended: EventSet, now_ns: int) -> None:
        """Try again later: the driver ended the waiting, as it does when a GPU is lost."""
        self._set = None
        self._known.clear()
        self._wait_ns = _FIRST_WAIT_NS if ended.worked else min(2 * self._wait_ns, _LONGEST_WAIT_NS)
        self._retry_at_ns = now_ns + self._wait_ns

    def _register(self, library: NvmlLibrary, gpus: list[tuple[str, int]], now_ns: int) -> None:
        event_set = self._set or EventSet(library, self._on_event, self._wake)
        if event_set.code != SUCCESS:
            self._possible = event_set.code not in PERMANENT
            self._retry_at_ns = now_ns + _LONGEST_WAIT_NS
            return
        uuids = {uuid for uuid, _ in gpus}
        self._known = {known for known in self._known if known[0] not in uuids}
        for gpu in gpus:
            code = event_set.register(*gpu)
            if code == SUCCESS or code in PERMANENT:
                self._known.add(gpu)
            else:
                self._retry_at_ns = now_ns + _REGISTER_AGAIN_NS
        if event_set.has_gpus:
            self._set = event_set
            event_set.start()
        else:
            event_set.close(lambda: None)

    # -- on the waiting thread ---------------------------------------------------

    def _on_event(self, uuid: str, kind: int, number: int) -> None:
        if kind & XID_ERROR:
            with self._lock:
                counts = self._counts.setdefault(uuid, {})
                if number in counts or len(counts) < MAX_XIDS:
                    counts[number] = counts.get(number, 0) + 1
        else:
            self._changed.append(uuid)

    def _wake(self) -> None:
        self.news = True
