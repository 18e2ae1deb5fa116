"""XID and memory errors of all GPUs, heard as they happen, across driver reloads.

An event carries no time: it counts from the frame it is handed out with.
Where the driver or the board knows no events (WSL, vGPU, old drivers) there
is no thread at all. The time spent waiting is in no figure: a waiting call
holds no lock of the driver.

The wait blocks, so nobody else may depend on it. The driver's event set is
freed by the waiting thread alone, after its last wait has returned: a set that is freed while a
wait is inside takes the process along. So whoever wants the set to end only
says so, waits a moment, and leaves a wait that hangs to itself.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from gpumon.core.clock import NS_PER_S
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
_WANTED: Final = XID_ERROR | DOUBLE_BIT_ERROR
"""Not the corrected memory errors: there can be thousands, and each would wake us."""

WAIT_MS = 500
"""How long one wait lasts, in milliseconds: so long the end can have to wait for it."""
_PATIENCE_S: Final = 1.2
_AT_ONCE, _BETWEEN_MORE_S = 32, 0.005
WAITS: Final = (EVENT_WAIT.function, "nvmlEventSetWait")

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

        Its waiting thread calls ``hear`` with each event, and ``wake`` after that and at its end.
        """
        self._library, self._hear, self._wake = library, hear, wake
        self._set = ctypes.c_void_p()
        self._uuid_of: dict[int, str] = {}
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._freed = self.ended = self.worked = self.hears_somebody = False
        self._then: Callable[[], None] | None = None
        name = next((name for name in WAITS if library.has(name)), None)
        if name is None:
            self.code = FUNCTION_NOT_FOUND
            return
        self._wait = library.function(name)
        self._free = library.function("nvmlEventSetFree")
        self.code = library.ask("nvmlEventSetCreate", ctypes.byref(self._set))

    def register(self, uuid: str, handle: int) -> int:
        """Hear that GPU, too, of what it supports.

        Returns:
            NVML's code; 0 also where it supports none of what is wanted.
        """
        code, types = self._library.event_types(handle)
        wanted = types & _WANTED
        if code != SUCCESS or not wanted:
            return code
        # Each time a GPU is cut anew it may get another handle; an event of the last may yet come.
        for old in [one for one, whose in self._uuid_of.items() if whose == uuid][:-1]:
            del self._uuid_of[old]
        self._uuid_of[handle] = uuid
        with self._lock:
            if self._freed:
                return UNINITIALIZED
            what = ctypes.c_void_p(handle), ctypes.c_ulonglong(wanted), self._set
            code = self._library.ask(EVENT_REGISTER.function, *what)
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
        asked = self._set, ctypes.byref(event), ctypes.c_uint(WAIT_MS)
        while not self._stop.is_set():
            code = self._wait(*asked)
            if code == NOTHING_HAPPENED:
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


MOST_XIDS: Final = 64
"""Different XIDs kept of one GPU: there are fewer that a board in use can have."""

Counts = tuple[tuple[int, int], ...]
"""Pairs of XID and count, by XID."""


_FIRST_WAIT_NS: Final = NS_PER_S // 2
_LONGEST_WAIT_NS: Final = 60 * NS_PER_S
_REGISTER_AGAIN_NS: Final = 5 * NS_PER_S
_MOST_DAMAGED: Final = 256


class NvmlEvents:
    """Keeps one event set on the GPUs that can be read. All but its set's thread is one thread's.

    Attributes:
        news: Whether something happened since ``take_news``.
    """

    def __init__(self, *, wanted: bool) -> None:
        self._wanted = self._possible = wanted
        self._lock = threading.Lock()
        self._counts: dict[str, dict[int, int]] = {}
        self._damaged: deque[str] = deque(maxlen=_MOST_DAMAGED)
        self._set: EventSet | None = None
        self._known: set[tuple[str, int]] = set()
        self._retry_at_ns, self._wait_ns = 0, _FIRST_WAIT_NS
        self.news = False

    def xids_of(self, uuid: str) -> Counts:
        """How many errors of each XID that GPU had, of ``MOST_XIDS`` XIDs at most."""
        with self._lock:
            return tuple(sorted(self._counts.get(uuid, {}).items()))

    def take_news(self) -> set[str]:
        """The GPUs whose memory failed since the last call, by UUID."""
        self.news = False
        return {self._damaged.popleft() for _ in range(len(self._damaged))}

    def follow(self, library: NvmlLibrary, gpus: Iterable[tuple[str, int]], now_ns: int) -> None:
        """Hear these GPUs, by UUID and handle; cheap where nothing changed."""
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
        """The driver ended the waiting, as it does when a GPU is lost: try again, not at once."""
        self._set = None
        self._known.clear()
        self._wait_ns = _FIRST_WAIT_NS if ended.worked else min(2 * self._wait_ns, _LONGEST_WAIT_NS)
        self._retry_at_ns = now_ns + self._wait_ns

    def _register(self, library: NvmlLibrary, gpus: list[tuple[str, int]], now_ns: int) -> None:
        event_set = self._set or EventSet(library, self._hear, self._wake)
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
        if event_set.hears_somebody:
            self._set = event_set
            event_set.start()
        else:
            event_set.close(lambda: None)

    # -- on the waiting thread ---------------------------------------------------

    def _hear(self, uuid: str, kind: int, number: int) -> None:
        if kind & XID_ERROR:
            with self._lock:
                counts = self._counts.setdefault(uuid, {})
                if number in counts or len(counts) < MOST_XIDS:
                    counts[number] = counts.get(number, 0) + 1
        elif kind & DOUBLE_BIT_ERROR:
            self._damaged.append(uuid)

    def _wake(self) -> None:
        self.news = True
