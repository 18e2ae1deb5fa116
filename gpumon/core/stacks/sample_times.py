"""When ``gpumon why`` takes a stack sample: at random times, more of them while the GPU is idle."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.core.sample import BusySample
from gpumon.core.stacks.sample_join import IDLE_UP_TO

IDLE_EVERY_NS: Final = NS_PER_S // 2
BUSY_EVERY_NS: Final = NS_PER_S
_RECENT_NS: Final = 10 * NS_PER_S
_LEAST_WINDOWS: Final = 10


class SampleTimes:
    """Decides when the next stack sample is due.

    On average one comes each half second while the GPU seems idle, and each second otherwise. The
    driver reports a pause late, and one that is over by then is met by the latter. As a sample
    stands for the time between two, pauses count by their length, long or short. Times vary, so
    that a loop of any period is met everywhere.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._checked_ns: int | None = None
        self._left = 0.0  # until the next one, in mean intervals
        self._windows: deque[BusySample] = deque()

    def ingest(self, windows: tuple[BusySample, ...]) -> None:
        """Add the newest windows of the GPU."""
        self._windows.extend(windows)
        while self._windows and (self._windows[-1].end_ns - self._windows[0].end_ns > _RECENT_NS):
            self._windows.popleft()

    def due_for_ns(self, now_ns: int, *, is_idle: bool) -> int | None:
        """The time that a sample taken now stands for; ``None``: it is not due.

        ``is_idle``: by the newest reading of the GPU.
        """
        every_ns = IDLE_EVERY_NS if is_idle or self._has_no_idle_window else BUSY_EVERY_NS
        passed_ns = 0 if self._checked_ns is None else now_ns - self._checked_ns
        self._checked_ns = now_ns
        self._left -= passed_ns / every_ns
        if self._left > 0:
            return None
        self._left = max(self._left, -0.5) + self._random.uniform(0.5, 1.5)
        return every_ns

    @property
    def _has_no_idle_window(self) -> bool:
        """Whether pauses are shorter than the driver's windows, so that none can be waited for."""
        return len(self._windows) >= _LEAST_WINDOWS and not any(
            window.busy_ratio <= IDLE_UP_TO for window in self._windows
        )
