"""What a call costs this process, by its CPU clock."""

from __future__ import annotations

import time
from collections.abc import Callable


def cpu_us(call: Callable[[], object], *, times: int) -> float:
    """CPU microseconds of one call in a loop."""
    started_ns = time.process_time_ns()
    for _ in range(times):
        call()
    return (time.process_time_ns() - started_ns) / times / 1000


def spaced_cpu_us(
    call: Callable[[], object],
    *,
    times: int,
    spacing_s: float,
    before: Callable[[], object] = lambda: None,
) -> float:
    """CPU microseconds of one call with a pause before it, which leaves the caches cold.

    ``before`` is called after each pause, and is not counted.
    """
    spent_ns = 0
    for _ in range(times):
        time.sleep(spacing_s)
        before()
        started_ns = time.process_time_ns()
        call()
        spent_ns += time.process_time_ns() - started_ns
    return spent_ns / times / 1000
