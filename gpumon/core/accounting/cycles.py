"""The last cycles of a job, each a burst and the pause after it, and their shape."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from gpumon.core.clock import NS_PER_S, nanoseconds
from gpumon.core.settings.detector import DetectorSettings
from gpumon.core.settings.input_model import EQUAL_BELOW, VARIES_FROM_GRAINS

_MIN_S: Final = 0.05
"""No driver's window shows shorter times: they count as this."""
_UPPER: Final = 5 / 6
_LEVEL_FROM_GRAINS: Final = 3.0


class Cycle(NamedTuple):
    """A burst and the pause after it, in seconds.

    Attributes:
        burst_s: Time from the previous pause to this one.
        pause_s: Idle time of the pause.
        pause_busy_s: Busy time of the pause, in samples that were no burst.
    """

    burst_s: float
    pause_s: float
    pause_busy_s: float

    @property
    def length_s(self) -> float:
        """Time from the end of the previous pause to the end of this one."""
        return self.burst_s + self.pause_s + self.pause_busy_s


class PauseShape(NamedTuple):
    """The shape of a job's pauses, which ``settings.input_model`` weighs.

    Attributes:
        grain_s: Length of one sample: the precision at which the end of a burst is known.
        burst_s: Median burst.
        burst_width_s: Width of the middle two thirds of the bursts.
        pause_s: Median pause: its idle time.
        pause_width_s: Width of the middle two thirds of the pauses.
        paused_ratio: Idle time of the pauses over the time of the cycles, 0 to 1.
        level_ratio: Share of the pauses that is busy, 0 to 1.
    """

    pauses: int
    grain_s: float
    burst_s: float
    burst_width_s: float
    pause_s: float
    pause_width_s: float
    paused_ratio: float
    level_ratio: float

    @property
    def burst_variation(self) -> float | None:
        """Width of the bursts over their median; ``None``: the samples are too coarse.

        Bursts that differ by less than the precision count as varying by that.
        """
        if self.burst_width_s > VARIES_FROM_GRAINS * self.grain_s:
            return self.burst_width_s / self.burst_s
        grain = self.grain_s / self.burst_s
        return grain if grain < EQUAL_BELOW else None

    @property
    def pause_variation(self) -> float | None:
        """Width of the pauses over their median; ``None``: the samples are too coarse."""
        is_seen = self.pause_width_s > VARIES_FROM_GRAINS * self.grain_s
        return self.pause_width_s / self.pause_s if is_seen else None

    @property
    def resolved_level_ratio(self) -> float | None:
        """``level_ratio``; ``None``: the samples at the ends of a pause are most of it."""
        return self.level_ratio if self.pause_s >= _LEVEL_FROM_GRAINS * self.grain_s else None


class Cycles:
    """The last cycles of one GPU's job; memory is constant."""

    def __init__(self, settings: DetectorSettings) -> None:
        self._settings = settings
        self._last: deque[Cycle] = deque(maxlen=settings.remembered_cycles)
        self.count = 0

    def forget(self) -> None:
        self._last.clear()
        self.count = 0

    def add(self, cycle: Cycle) -> None:
        self._last.append(cycle)
        self.count += 1

    @property
    def steady_ns(self) -> int | None:
        """Length of a cycle if long ones are regular; ``None``: they are not."""
        settings = self._settings
        if self.count < settings.min_cycles:
            return None
        lengths_s = [cycle.length_s for cycle in self._complete()]
        mean_s = _mean(lengths_s)
        if mean_s * NS_PER_S < settings.clockwork_from_ns:
            return None
        is_steady = _deviation(lengths_s) < settings.steady_below * mean_s
        return nanoseconds(mean_s) if is_steady else None

    def shape(self, sample_s: float) -> PauseShape | None:
        """Their shape; ``None``: they are too few. ``sample_s`` is the newest sample's length."""
        last, complete = self._last, self._complete()
        if not complete or self.count < self._settings.min_pauses:
            return None
        bursts_s = sorted(cycle.burst_s for cycle in complete)
        pauses_s = sorted(cycle.pause_s for cycle in last)
        paused_s = sum(pauses_s)
        low_s = paused_s + sum(cycle.pause_busy_s for cycle in last)
        return PauseShape(
            pauses=self.count,
            grain_s=max(sample_s, _MIN_S),
            burst_s=max(_at(bursts_s, 0.5), _MIN_S),
            burst_width_s=_width(bursts_s),
            pause_s=max(_at(pauses_s, 0.5), _MIN_S),
            pause_width_s=_width(pauses_s),
            paused_ratio=paused_s / max(sum(cycle.length_s for cycle in last), _MIN_S),
            level_ratio=1 - paused_s / low_s if low_s else 0.0,
        )

    def _complete(self) -> Sequence[Cycle]:
        """Cycles whose burst was seen from its start: the job's first was not."""
        last = list(self._last)
        return last[1:] if self.count == len(last) else last


def _at(ordered: Sequence[float], share: float) -> float:
    """The value nearest to this quantile, 0 to 1."""
    return ordered[round(share * (len(ordered) - 1))]


def _width(ordered: Sequence[float]) -> float:
    return _at(ordered, _UPPER) - _at(ordered, 1 - _UPPER)


def _deviation(values: Sequence[float]) -> float:
    mean = _mean(values)
    return math.sqrt(_mean([(value - mean) ** 2 for value in values]))


def _mean(values: Sequence[float]) -> float:
    """The mean, without the module ``statistics``: a third of a megabyte in each daemon."""
    return math.fsum(values) / len(values)
