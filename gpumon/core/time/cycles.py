"""The last cycles of a job, each a burst and the pause after it, and what they look like."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from statistics import fmean
from typing import Final, NamedTuple

from gpumon.core.clock import NS_PER_S, nanoseconds
from gpumon.core.settings.detector import DetectorSettings

_LEAST_S: Final = 0.05
"""Shorter times, and differences of times, are told by no driver's window: they count as this."""

_NAMED: Final = 3
"""So many pauses are told by when they began."""


class Cycle(NamedTuple):
    """A burst and the pause after it, in seconds.

    Attributes:
        pause_from_ns: When the pause began.
        burst_s: From the pause before it to this one.
        burst_idle_s: Idle time amid it: none of these was a pause.
        pause_s: Idle time of the pause.
        pause_busy_s: What the GPU worked in it, in samples that were no burst.
    """

    pause_from_ns: int
    burst_s: float
    burst_idle_s: float
    pause_s: float
    pause_busy_s: float

    @property
    def length_s(self) -> float:
        """From the end of the pause before it to the end of its own."""
        return self.burst_s + self.pause_s + self.pause_busy_s


class PauseShape(NamedTuple):
    """What the pauses of a job look like: what ``settings.input_model`` weighs.

    Times are natural logarithms of seconds, *spread* is the logarithm of the
    median deviation from the median in seconds, and *times* that of a ratio
    to the median. Shares are 0 to 1.

    Attributes:
        pauses: Logarithm of how many the job has had.
        sample: Time of one sample.
        burst: Median burst.
        pause: Median pause.
        burst_spread: Of the bursts.
        pause_spread: Of the pauses.
        cycle_spread: Of both together, from pause to pause.
        burst_idle: Share of the bursts that is idle.
        level: Share of the pauses that is busy.
        level_spread: Standard deviation of that share from pause to pause.
        shortest_burst: The median in times of the shortest.
        longest_burst: The longest in times of the median.
        short_pauses: The median in times of the shortest tenth.
        long_pauses: The longest tenth in times of the median.
        longest_pause: The longest in times of the median.
        together: Correlation, -1 to 1, of a burst with the pause after it: of their logarithms.
    """

    pauses: float
    sample: float
    burst: float
    pause: float
    burst_spread: float
    pause_spread: float
    cycle_spread: float
    burst_idle: float
    level: float
    level_spread: float
    shortest_burst: float
    longest_burst: float
    short_pauses: float
    long_pauses: float
    longest_pause: float
    together: float

    @property
    def burst_variation(self) -> float:
        """Median deviation of the bursts over their median: 0 where all are alike."""
        return math.exp(self.burst_spread - self.burst)


class Cycles:
    """The last cycles of one GPU's job; memory is constant.

    Attributes:
        count: How many there were in the job.
    """

    def __init__(self, settings: DetectorSettings) -> None:
        self._settings = settings
        self._last: deque[Cycle] = deque(maxlen=settings.remembered_cycles)
        self.count = 0

    def forget(self) -> None:
        """What comes now is of another job."""
        self._last.clear()
        self.count = 0

    def add(self, cycle: Cycle) -> None:
        """A cycle has ended."""
        self._last.append(cycle)
        self.count += 1

    @property
    def steady_ns(self) -> int | None:
        """How long a cycle is where long ones come like a clock; ``None``: they do not."""
        settings = self._settings
        if self.count < settings.min_cycles:
            return None
        lengths_s = [cycle.length_s for cycle in self._whole()]
        mean_s = fmean(lengths_s)
        if mean_s * NS_PER_S < settings.clockwork_from_ns:
            return None
        is_steady = _deviation(lengths_s) < settings.steady_below * mean_s
        return nanoseconds(mean_s) if is_steady else None

    @property
    def latest_ns(self) -> tuple[int, ...]:
        """When the last few pauses began that are as long as most."""
        usual_s = _at(sorted(cycle.pause_s for cycle in self._last), 0.5) if self._last else 0.0
        long = [cycle.pause_from_ns for cycle in self._last if cycle.pause_s >= usual_s]
        return tuple(long[-_NAMED:])

    def shape(self, sample_s: float) -> PauseShape | None:
        """What they look like; ``None``: they are too few to say.

        Args:
            sample_s: How long the newest sample was.
        """
        last, whole = self._last, self._whole()
        if not whole or self.count < self._settings.min_pauses:
            return None
        pauses_s = sorted(cycle.pause_s for cycle in last)
        bursts_s = sorted(cycle.burst_s for cycle in whole)
        pause_s, burst_s = _at(pauses_s, 0.5), _at(bursts_s, 0.5)
        levels = [cycle.pause_busy_s / (cycle.pause_s + cycle.pause_busy_s) for cycle in last]
        paused_s = sum(pauses_s)
        return PauseShape(
            pauses=math.log(self.count),
            sample=_log(sample_s),
            burst=_log(burst_s),
            pause=_log(pause_s),
            burst_spread=_spread(bursts_s),
            pause_spread=_spread(pauses_s),
            cycle_spread=_spread(sorted(cycle.length_s for cycle in whole)),
            burst_idle=sum(cycle.burst_idle_s for cycle in whole) / max(sum(bursts_s), _LEAST_S),
            level=1 - paused_s / (paused_s + sum(cycle.pause_busy_s for cycle in last)),
            level_spread=_deviation(levels),
            shortest_burst=_log(burst_s) - _log(bursts_s[0]),
            longest_burst=_log(bursts_s[-1]) - _log(burst_s),
            short_pauses=_log(pause_s) - _log(_at(pauses_s, 0.1)),
            long_pauses=_log(_at(pauses_s, 0.9)) - _log(pause_s),
            longest_pause=_log(pauses_s[-1]) - _log(pause_s),
            together=_correlation(
                [_log(cycle.burst_s) for cycle in whole], [_log(cycle.pause_s) for cycle in whole]
            ),
        )

    def _whole(self) -> Sequence[Cycle]:
        """Those whose burst was seen from its begin: the job's first was not."""
        last = list(self._last)
        return last[1:] if self.count == len(last) else last


def _at(ordered: Sequence[float], share: float) -> float:
    """The value at this share of them, 0 to 1: the nearest."""
    return ordered[round(share * (len(ordered) - 1))]


def _log(seconds: float) -> float:
    return math.log(max(seconds, _LEAST_S))


def _spread(ordered_s: Sequence[float]) -> float:
    middle_s = _at(ordered_s, 0.5)
    return math.log(_at(sorted(abs(value_s - middle_s) for value_s in ordered_s), 0.5) + _LEAST_S)


def _deviation(values: Sequence[float]) -> float:
    """Their standard deviation."""
    mean = fmean(values)
    return math.sqrt(fmean([(value - mean) ** 2 for value in values]))


def _correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Pearson's, -1 to 1; 0 where one of them is constant."""
    mean_first, mean_second = fmean(first), fmean(second)
    off_first = [value - mean_first for value in first]
    off_second = [value - mean_second for value in second]
    size = math.sqrt(sum(off * off for off in off_first) * sum(off * off for off in off_second))
    both = sum(one * other for one, other in zip(off_first, off_second, strict=True))
    return both / size if size > 1e-9 else 0.0
