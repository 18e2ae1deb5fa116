"""Waiting for another thread or process, no longer than necessary."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import mean
from types import FrameType
from typing import Final

PATIENCE_S = 20.0
"""Far more than anything should take: on a busy machine a test is late, not wrong."""
HANG_CPU_S: Final = 10.0
"""Processor time that no case needs; the load of the machine does not count."""
HANG_S: Final = 120.0
"""Wall time, for what waits without working."""


def until(
    condition: Callable[[], bool], within_s: float = PATIENCE_S, *, every_s: float = 0.01
) -> bool:
    """Whether it comes true within the time."""
    give_up_s = time.monotonic() + within_s
    while time.monotonic() < give_up_s:
        if condition():
            return True
        time.sleep(every_s)
    return condition()


def wait_until(met: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """Return as soon as ``met()``; fail if that takes too long."""
    assert until(met, patience_s, every_s=0.05), "it did not happen in time"


def held_up_ns() -> int:
    """How long this thread was ready but had no core, according to the kernel.

    A busy machine adds this to every measured time.
    """
    _, waited_ns, _ = Path("/proc/thread-self/schedstat").read_text().split()
    return int(waited_ns)


def lateness_ns(spans_ns: Sequence[tuple[int, int]], sleep_s: float) -> float:
    """By how much sleeps took longer than requested, on average."""
    return max(0.0, mean(end - start for start, end in spans_ns) - sleep_s * 1e9)


class HangError(BaseException):
    """A case that does not end; not an ``Exception``, so that no code catches it."""


@contextmanager
def no_hang(cpu_s: float = HANG_CPU_S, wall_s: float = HANG_S) -> Iterator[None]:
    """Interrupt an endless case in this process.

    Raises:
        HangError: It took more than ``cpu_s`` of processor time, or ``wall_s`` on the clock.
    """

    def ring(number: int, frame: FrameType | None) -> None:
        raise HangError(f"more than {cpu_s:g} s of processor time, or {wall_s:g} s on the clock")

    before = [(number, signal.signal(number, ring)) for number in (signal.SIGPROF, signal.SIGALRM)]
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    signal.setitimer(signal.ITIMER_REAL, wall_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before:
            signal.signal(number, handler)
