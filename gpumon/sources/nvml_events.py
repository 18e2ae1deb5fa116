"""XID and memory errors of all GPUs, heard as they happen, across driver reloads.

An event carries no time: it counts from the frame it is handed out with.
Where the driver or the board knows no events (WSL, vGPU, old drivers) there
is no thread at all. The time spent waiting is in no figure: a waiting call
holds no lock of the driver.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from gpumon.core.units import NS_PER_S
from gpumon.sources.nvml_binding import NvmlLibrary
from gpumon.sources.nvml_codes import PERMANENT, SUCCESS
from gpumon.sources.nvml_event_set import DOUBLE_BIT_ERROR, XID_ERROR, EventSet
from gpumon.sources.xid_counts import Counts, XidCounts

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
        self._counts = XidCounts()
        self._damaged: deque[str] = deque(maxlen=_MOST_DAMAGED)
        self._set: EventSet | None = None
        self._known: set[tuple[str, int]] = set()
        self._retry_at_ns, self._wait_ns = 0, _FIRST_WAIT_NS
        self.news = False

    def counts(self, uuid: str) -> Counts:
        """How many errors of each XID that GPU had: the same object until there are more."""
        return self._counts.of(uuid)

    def take_news(self) -> set[str]:
        """The GPUs whose memory failed since the last call, by UUID."""
        self.news = False
        return {self._damaged.popleft() for _ in range(len(self._damaged))}

    def follow(self, library: NvmlLibrary, gpus: Iterable[tuple[str, int]], now_ns: int) -> None:
        """Hear these GPUs; cheap where nothing changed.

        Args:
            library: NVML, opened.
            gpus: UUID and handle of each GPU that can be read.
            now_ns: CLOCK_MONOTONIC.
        """
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
            event_set.close(_nothing)

    # -- on the waiting thread ---------------------------------------------------

    def _hear(self, uuid: str, kind: int, number: int) -> None:
        if kind & XID_ERROR:
            self._counts.add(uuid, number)
        elif kind & DOUBLE_BIT_ERROR:
            self._damaged.append(uuid)

    def _wake(self) -> None:
        self.news = True


def _nothing() -> None:
    pass
