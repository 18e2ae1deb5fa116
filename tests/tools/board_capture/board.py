"""The board that is measured, and looks at it that follow each other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpumon.core.clock import Clock, nanoseconds
from gpumon.sources.nvml.binding import NvmlLibrary


@dataclass(frozen=True)
class Board:
    """One GPU with its handle; ``read_clock_ns`` takes a clock's id."""

    library: NvmlLibrary
    handle: int
    clock: Clock
    read_clock_ns: Callable[[int], int] = time.clock_gettime_ns


def looks(clock: Clock, seconds: float, every_s: float) -> Iterator[None]:
    """One after the other for so long, each so much later than the one before began."""
    until_ns = clock.monotonic_ns() + nanoseconds(seconds)
    while (now_ns := clock.monotonic_ns()) < until_ns:
        yield
        clock.sleep_until_ns(now_ns + nanoseconds(every_s))
