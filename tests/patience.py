"""Waiting for what another thread or process does, no longer than it takes."""

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
"""Processor time that no case needs: a machine that is busy with others is no hang."""
HANG_S: Final = 120.0
"""... and time on the clock, for what waits without working."""


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
    """Return as soon as ``met()`` is true; fail if it is not in time."""
    assert until(met, patience_s, every_s=0.05), "it did not happen in time"


def held_up_ns() -> int:
    """How long this thread was ready to run and had no processor so far, by the kernel's account.

    That is what a busy machine adds to whatever is timed here, and no hook's doing.
    """
    _, waited_ns, _ = Path("/proc/thread-self/schedstat").read_text().split()
    return int(waited_ns)


def lateness_ns(spans_ns: Sequence[tuple[int, int]], asked_s: float) -> float:
    """By how much sleeps took longer than was asked, in the mean: so late a busy machine is."""
    return max(0.0, mean(end - start for start, end in spans_ns) - asked_s * 1e9)


class HangError(BaseException):
    """A case that does not end: no one who catches ``Exception`` keeps it from being seen."""


@contextmanager
def no_hang(cpu_s: float = HANG_CPU_S, wall_s: float = HANG_S) -> Iterator[None]:
    """End what takes for ever in this process, wherever it is.

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
