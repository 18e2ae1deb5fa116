"""One event set of the driver, and the thread that waits for it.

The wait blocks, so nobody else may depend on it. The set is freed by that
thread alone, after its last wait has returned: a set that is freed while a
wait is inside takes the process along. So whoever wants the set to end only
says so, waits a moment, and leaves a wait that hangs to itself.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Final

import pynvml

from gpumon.sources.nvml_binding import NvmlLibrary
from gpumon.sources.nvml_codes import FUNCTION_NOT_FOUND, SUCCESS, UNINITIALIZED

XID_ERROR: Final = 0x8
DOUBLE_BIT_ERROR: Final = 0x2
_WANTED: Final = XID_ERROR | DOUBLE_BIT_ERROR
"""Not the corrected memory errors: there can be thousands, and each would wake us."""

_TIMEOUT: Final = 10
WAIT_MS = 500
"""How long one wait lasts, in milliseconds: so long the end can have to wait for it."""
_PATIENCE_S: Final = 1.2
_AT_ONCE, _BETWEEN_MORE_S = 32, 0.005
_WAITS: Final = ("nvmlEventSetWait_v2", "nvmlEventSetWait")

Hear = Callable[[str, int, int], None]
"""Takes what happened: the GPU's UUID, the event's type, and its number."""


class EventSet:
    """A set of GPUs whose errors are heard.

    Attributes:
        code: What making the set answered; nothing else may be called unless it is 0.
        hears_somebody: Whether a GPU was ever registered.
        ended: Whether an error of the driver ended the waiting; the set is freed then.
        worked: Whether a wait ever returned as it should.
    """

    def __init__(self, library: NvmlLibrary, hear: Hear, wake: Callable[[], None]) -> None:
        """Make the set. It hears nothing before ``start``.

        Args:
            library: NVML, opened.
            hear: Takes each event, on the waiting thread.
            wake: Called on that thread after each event and at its end.
        """
        self._library, self._hear, self._wake = library, hear, wake
        self._set = ctypes.c_void_p()
        self._uuid_of: dict[int, str] = {}
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._freed = self.ended = self.worked = self.hears_somebody = False
        self._then: Callable[[], None] | None = None
        name = next((name for name in _WAITS if library.has(name)), None)
        if name is None:
            self.code = FUNCTION_NOT_FOUND
            return
        self._wait = library.function(name, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint)
        self._free = library.function("nvmlEventSetFree", ctypes.c_void_p)
        self.code = library.ask(
            "nvmlEventSetCreate", (ctypes.c_void_p,), ctypes.addressof(self._set)
        )

    def register(self, uuid: str, handle: int) -> int:
        """Hear that GPU, too, of what it supports.

        Returns:
            NVML's code; 0 also where it supports none of what is wanted.
        """
        types = ctypes.c_ulonglong()
        code = self._library.ask(
            "nvmlDeviceGetSupportedEventTypes",
            (ctypes.c_void_p, ctypes.c_void_p), handle, ctypes.addressof(types),
        )  # fmt: skip
        wanted = types.value & _WANTED
        if code != SUCCESS or not wanted:
            return code
        self._uuid_of[handle] = uuid
        with self._lock:
            if self._freed:
                return UNINITIALIZED
            code = self._library.ask(
                "nvmlDeviceRegisterEvents",
                (ctypes.c_void_p, ctypes.c_ulonglong, ctypes.c_void_p), handle, wanted, self._set,
            )  # fmt: skip
        self.hears_somebody |= code == SUCCESS
        return code

    def start(self) -> None:
        """Begin to wait, unless that has begun."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="gpumon-events", daemon=True)
            self._thread.start()

    def close(self, then: Callable[[], None]) -> None:
        """End the wait, free the set, and after that do what must not be done before.

        Returns within 2 s. Where a wait hangs, ``then`` is called by its
        thread if it ever comes back.
        """
        self._stop.set()
        if self._thread is None:
            if self.code == SUCCESS:
                self._free(self._set)
        else:
            self._thread.join(_PATIENCE_S)
            with self._lock:
                if not self._freed:
                    self._then = then
                    return
        then()

    # -- on the waiting thread ---------------------------------------------------

    def _work(self) -> None:
        try:
            self._listen()
        finally:
            with self._lock:
                self._free(self._set)
                self._freed = True
                self.ended = not self._stop.is_set()
                then = self._then
            if then is not None:
                then()
            self._wake()

    def _who(self, handle: int) -> str | None:
        # After a reset, a GPU that was registered speaks with a handle of its new life.
        return self._uuid_of.get(handle) or self._library.text("nvmlDeviceGetUUID", handle)

    def _listen(self) -> None:
        event, in_a_row = pynvml.c_nvmlEventData_t(), 0
        where = ctypes.addressof(event)
        while not self._stop.is_set():
            code = self._wait(self._set, where, WAIT_MS)
            if code == _TIMEOUT:
                self.worked, in_a_row = True, 0
                continue
            if code != SUCCESS:
                return
            self.worked = True
            uuid = self._who(ctypes.cast(event.device, ctypes.c_void_p).value or 0)
            if uuid is not None:
                self._hear(uuid, event.eventType, event.eventData)
                self._wake()
            in_a_row += 1
            if in_a_row > _AT_ONCE:
                self._stop.wait(_BETWEEN_MORE_S)
