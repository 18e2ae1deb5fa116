"""Joins stack samples with what the GPU did meanwhile, which the driver reports later."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Generic, TypeVar

from gpumon.core.clock import NS_PER_S
from gpumon.core.sample import BusySample

IDLE_UP_TO: Final = 0.05
"""A stack sample in windows that are no busier than this is evidence on idle time."""
BUSY_FROM: Final = 0.9
"""In windows that are at least so busy, it is evidence on work; in between on neither."""
_KEPT_NS: Final = 60 * NS_PER_S
"""A driver's window comes within seconds; the spans of a followed file at most a minute later."""

_Item = TypeVar("_Item")


class SampleKind(Enum):
    """What the GPU did while a stack sample was read."""

    IDLE = auto()
    BUSY = auto()
    MIXED = auto()
    UNOBSERVED = auto()


@dataclass(frozen=True, slots=True)
class Joined(Generic[_Item]):
    """A stack sample, or what was read of it, and what the GPU did meanwhile."""

    kind: SampleKind
    item: _Item


@dataclass(frozen=True, slots=True)
class _Pending(Generic[_Item]):
    start_ns: int
    end_ns: int
    item: _Item


class SampleJoin(Generic[_Item]):
    """Keeps stack samples until the windows that cover them are known."""

    def __init__(self) -> None:
        self._windows: deque[BusySample] = deque()
        self._pending: deque[_Pending[_Item]] = deque()

    def __len__(self) -> int:
        """How many stack samples wait for windows."""
        return len(self._pending)

    def add(self, start_ns: int, end_ns: int, item: _Item) -> None:
        """Add a stack sample, in order of time; the times are those before and after it."""
        self._pending.append(_Pending(start_ns, end_ns, item))

    def ingest(self, windows: Iterable[BusySample], now_ns: int) -> list[Joined[_Item]]:
        """Add windows, oldest first; return the samples that they decide."""
        self._windows.extend(windows)
        known_until_ns = self._windows[-1].end_ns if self._windows else 0
        decided = []
        while self._pending and (
            self._pending[0].end_ns <= known_until_ns or self._pending[0].end_ns < now_ns - _KEPT_NS
        ):
            one = self._pending.popleft()
            decided.append(Joined(self._kind(one), one.item))
        needed_from_ns = self._pending[0].start_ns if self._pending else now_ns - _KEPT_NS
        while self._windows and self._windows[0].end_ns < needed_from_ns:
            self._windows.popleft()
        return decided

    def _kind(self, one: _Pending[_Item]) -> SampleKind:
        covering = [
            window
            for window in self._windows
            if window.start_ns < one.end_ns and window.end_ns > one.start_ns
        ]
        covered_ns = sum(
            min(window.end_ns, one.end_ns) - max(window.start_ns, one.start_ns)
            for window in covering
        )
        if not covering or covered_ns < one.end_ns - one.start_ns:
            return SampleKind.UNOBSERVED
        if all(window.busy_ratio <= IDLE_UP_TO for window in covering):
            return SampleKind.IDLE
        if all(window.busy_ratio >= BUSY_FROM for window in covering):
            return SampleKind.BUSY
        return SampleKind.MIXED
