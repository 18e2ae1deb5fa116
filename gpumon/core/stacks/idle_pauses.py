"""How much idle time each stack sample stands for, by the pause in which it was taken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from gpumon.core.clock import NS_PER_S
from gpumon.core.sample import BusySample
from gpumon.core.stacks.sample_join import IDLE_UP_TO

_LONG_NS: Final = 5 * NS_PER_S
"""In a pause of that length, its edges no longer matter."""

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Weighed(Generic[_Item]):
    """One stack sample, and by how much its pause is longer than its idle windows."""

    item: _Item
    factor: float


class IdlePauses(Generic[_Item]):
    """Follows the pauses of a GPU; a pause is a stretch of idle windows.

    A stack sample is known to be idle only in a window that is idle as a whole. So of a pause, the
    part at either edge is never sampled, which is most of a short pause and little of a long one.
    Each sample therefore counts by the idle time of its pause, edges included, relative to that of
    its idle windows.
    """

    def __init__(self) -> None:
        self._ended_ns = 0
        self._items: list[_Item] = []
        self._windows_ns = self._edge_ns = 0
        self._last: BusySample | None = None
        self._is_edge_taken = False

    def __len__(self) -> int:
        """How many samples wait for the end of their pause."""
        return len(self._items)

    @property
    def idle_ns(self) -> int:
        """Idle time of all pauses, edges included; that between them was too short to see."""
        return self._ended_ns + (self._edge_ns + self._windows_ns if self._windows_ns else 0)

    def add(self, item: _Item) -> None:
        """Add an idle sample, after the window in which it ends."""
        self._items.append(item)

    def ingest(self, window: BusySample) -> list[Weighed[_Item]]:
        """Add the next window; return the samples of a pause that ended, or is long."""
        last, self._last = self._last, window
        follows = last is not None and last.end_ns == window.start_ns
        found = [] if follows else self._end(0)
        if window.busy_ratio > IDLE_UP_TO:
            self._is_edge_taken = self._windows_ns > 0
            return found + self._end(window.idle_ns)
        if not self._windows_ns and follows and last is not None and not self._is_edge_taken:
            self._edge_ns = last.idle_ns
        self._windows_ns += window.idle_ns
        if self._windows_ns >= _LONG_NS:
            found += self._weighed(0)
        return found

    def finish(self) -> list[Weighed[_Item]]:
        """Return the samples of the open pause."""
        return self._end(0)

    def _end(self, edge_ns: int) -> list[Weighed[_Item]]:
        found = self._weighed(edge_ns)
        if self._windows_ns:
            self._ended_ns += self._edge_ns + self._windows_ns + edge_ns
        self._windows_ns = self._edge_ns = 0
        return found

    def _weighed(self, edge_ns: int) -> list[Weighed[_Item]]:
        items, self._items = self._items, []
        windows_ns = self._windows_ns
        factor = 1 + (self._edge_ns + edge_ns) / windows_ns if windows_ns else 1.0
        return [Weighed(item, factor) for item in items]
