"""When ``gpumon why`` takes a stack sample: often while the GPU is idle, seldom while it works."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.core.sample import BusySample
from gpumon.core.stacks.sample_join import IDLE_UP_TO, SampleKind

IDLE_EVERY_NS: Final = NS_PER_S // 2
BUSY_EVERY_NS: Final = 5 * NS_PER_S
_RECENT_NS: Final = 10 * NS_PER_S
_LEAST_WINDOWS: Final = 10
_RECENT_SAMPLES: Final = 8
_LEAST_HIT_SHARE: Final = 0.5


class SampleTimes:
    """Decides when the next stack sample is due.

    While the GPU is idle, one each half second of idle time, so that each idle second counts the
    same. Where its pauses are shorter than the driver's windows, or over before they are known,
    samples come at random times instead.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._checked_ns: int | None = None
        self._idle_ns = IDLE_EVERY_NS  # the first idle moment is due at once
        self._busy_due_ns = self._random_due_ns = 0
        self._windows: deque[BusySample] = deque()
        self._hits: deque[bool] = deque(maxlen=_RECENT_SAMPLES)

    @property
    def is_random(self) -> bool:
        """Whether the pauses are too short to wait for."""
        misses = len(self._hits) - sum(self._hits)
        if misses > _LEAST_HIT_SHARE * _RECENT_SAMPLES:
            return True
        return len(self._windows) >= _LEAST_WINDOWS and not any(
            window.busy_ratio <= IDLE_UP_TO for window in self._windows
        )

    def ingest(self, windows: tuple[BusySample, ...]) -> None:
        """Add the newest windows of the GPU."""
        self._windows.extend(windows)
        while self._windows and (self._windows[-1].end_ns - self._windows[0].end_ns > _RECENT_NS):
            self._windows.popleft()

    def note(self, kind: SampleKind) -> None:
        """Learn what the GPU did during a sample that was meant for idle time."""
        if kind is not SampleKind.UNOBSERVED:
            self._hits.append(kind is SampleKind.IDLE)

    def is_due(self, now_ns: int, *, is_idle: bool) -> bool:
        """Whether to take a sample now; ``is_idle``: by the newest reading of the GPU."""
        passed_ns = 0 if self._checked_ns is None else now_ns - self._checked_ns
        self._checked_ns = now_ns
        if self.is_random:
            if now_ns < self._random_due_ns:
                return False
            self._random_due_ns = now_ns + round(IDLE_EVERY_NS * self._random.uniform(0.5, 1.5))
            return True
        if is_idle:
            self._idle_ns += passed_ns
            if self._idle_ns < IDLE_EVERY_NS:
                return False
            self._idle_ns = 0
            return True
        if now_ns < self._busy_due_ns:
            return False
        self._busy_due_ns = now_ns + BUSY_EVERY_NS
        return True
