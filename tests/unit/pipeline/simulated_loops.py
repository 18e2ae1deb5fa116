"""Training loops that are known to work, or why they pause, at any time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import cycle
from random import Random

from gpumon.core.phase import IdleCause

INPUT, SAVE = IdleCause.INPUT_WAIT, IdleCause.CHECKPOINT
WINDOW, LONG_WINDOW = 1 / 6, 1.0
"""Of drivers, in seconds."""

Loop = Callable[[Random], Iterator[tuple[float, IdleCause | None]]]
"""Seconds and their cause, ``None`` for work, without end."""


class SimulatedLoop:
    """What a loop does, second by second, beginning at any time."""

    def __init__(self, loop: Loop, random: Random, length_s: float, *, from_s: float = 0) -> None:
        self._causes: list[IdleCause | None] = []
        self._ends_s: list[float] = []
        self.began_s, self.until_s = from_s, from_s + length_s
        at_s = 0.0
        for length_s, cause in loop(random):
            at_s += length_s
            self._ends_s.append(at_s)
            self._causes.append(cause)
            if at_s > self.until_s + 10:
                break

    def cause_at(self, at_s: float) -> IdleCause | None:
        return self._causes[bisect_right(self._ends_s, at_s)]

    def seconds_of(self, cause: IdleCause | None, start_s: float, end_s: float) -> float:
        number, total_s = bisect_right(self._ends_s, start_s), 0.0
        while start_s < end_s:
            until_s = min(end_s, self._ends_s[number])
            total_s += until_s - start_s if self._causes[number] is cause else 0.0
            start_s, number = until_s, number + 1
        return total_s

    @property
    def input_share(self) -> float:
        """Of the idle time while it is watched."""
        input_s, save_s = (
            self.seconds_of(one, self.began_s, self.until_s) for one in (INPUT, SAVE)
        )
        return input_s / (input_s + save_s)


def mixed(input_s: float, save_s: float, burst_s: float) -> Loop:
    """Pauses of either kind, 60 % of the idle time for input."""

    def loop(random: Random) -> Iterator[tuple[float, IdleCause | None]]:
        waited_s = saved_s = 1e-9
        while True:
            yield burst_s * random.uniform(0.8, 1.2), None
            if waited_s <= 0.6 * (waited_s + saved_s):
                waited_s += input_s
                yield input_s, INPUT
            else:
                saved_s += save_s
                yield save_s, SAVE

    return loop


def bursty(pause_s: float) -> Loop:
    def loop(random: Random) -> Iterator[tuple[float, IdleCause | None]]:
        while True:
            yield random.expovariate(1 / pause_s), None
            cause = INPUT if random.random() < 0.6 else SAVE
            yield random.expovariate(1 / pause_s), cause

    return loop


def in_phase(period_s: float, idle_s: float) -> Loop:
    """Each pause begins as a wait for input and ends as a checkpoint."""

    def loop(_: Random) -> Iterator[tuple[float, IdleCause | None]]:
        while True:
            yield period_s - idle_s, None
            yield 0.6 * idle_s, INPUT
            yield 0.4 * idle_s, SAVE

    return loop


def alternating(period_s: float, idle_s: float) -> Loop:
    """A pause each period, in turn for input and to save."""

    def loop(_: Random) -> Iterator[tuple[float, IdleCause | None]]:
        for cause in cycle((INPUT, SAVE, INPUT, SAVE, INPUT)):
            yield period_s - idle_s, None
            yield idle_s, cause

    return loop
