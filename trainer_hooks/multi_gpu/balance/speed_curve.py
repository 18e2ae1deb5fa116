"""What has been seen of one GPU's speed: how long it takes for how many samples."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, field, replace
from typing import Final

MOST_POINTS: Final = 12
"""Older ones are forgotten."""

STEADIEST: Final = 8.0
"""A point counts as so many intervals at most, so that it follows slow changes."""

_APART: Final = 0.1
"""Points nearer to each other say nothing of the slope: their noise is larger than it."""

_FLATTEST: Final = 0.15
"""The least part of a GPU's time that is taken to grow with the samples."""

_BELIEVED_SPREAD: Final = 0.004
"""The relative noise of an interval's mean, until intervals were compared."""

_SPREAD_MEMORY: Final = 0.85


@dataclass(frozen=True, slots=True)
class Point:
    """A mean over intervals at one count.

    Attributes:
        samples: In each step.
        seconds: Busy in each step.
        weight: How many intervals it rests on.
        order: Grows with each observation of the curve: the newest has the largest.
    """

    samples: int
    seconds: float
    weight: float = 1.0
    order: int = 0


@dataclass(frozen=True, slots=True)
class SpeedCurve:
    """The seconds of a step against its samples, as far as they are known.

    Between points it is a line; beyond them, a line through them all. A curve of
    one point is a line through nothing at all: time grows in proportion.

    Attributes:
        points: By samples, one for each count seen.
        growing_part: How much of a step's time grows with its samples, 0 to 1, as it was
            known before a slow-down made the older points worthless.
        spread: Relative noise of one interval's mean.
        levelled: The seconds of the points, never falling: what the curve goes through.
        trend: The slope of the line through the points; ``None`` where they tell none.
    """

    points: tuple[Point, ...] = ()
    growing_part: float = 1.0
    spread: float = _BELIEVED_SPREAD
    levelled: tuple[float, ...] = field(default=(), repr=False, compare=False)
    trend: float | None = field(default=None, repr=False, compare=False)

    def point_at(self, samples: int) -> Point | None:
        """What was seen at exactly that count; ``None`` where nothing was."""
        at = self._at(samples)
        found = at < len(self.points) and self.points[at].samples == samples
        return self.points[at] if found else None

    def surprise(self, samples: int, seconds: float) -> float | None:
        """How far off what was seen there before, as a part of it; ``None`` where nothing was."""
        point = self.point_at(samples)
        return None if point is None else seconds / point.seconds - 1.0

    def with_seen(self, samples: int, seconds: float, *, tolerance: float) -> SpeedCurve:
        """The curve with an interval more.

        Points that contradict it (more samples in clearly less time, or fewer in
        clearly more) are from another time, and dropped.

        Args:
            samples: In each step of the interval; 1 or more.
            seconds: Busy in each step; more than 0.
            tolerance: From which part of a time on a difference is clear.

        Raises:
            ValueError: Either is out of its range.
        """
        if samples < 1 or not 0 < seconds < float("inf"):
            raise ValueError(f"{samples} samples in {seconds} s say nothing of a GPU's speed")
        order = 1 + max((point.order for point in self.points), default=0)
        known = self.point_at(samples)
        if known is None:
            here = Point(samples, seconds, 1.0, order)
            spread = self.spread
        else:
            weight = min(known.weight + 1.0, STEADIEST)
            mean = known.seconds + (seconds - known.seconds) / weight
            here = Point(samples, mean, weight, order)
            spread = self._spread_after(seconds / known.seconds - 1.0, known.weight)
        others = [
            point
            for point in self.points
            if point.samples != samples and not _contradicts(point, here, tolerance)
        ]
        newest = sorted(others, key=lambda point: -point.order)[: MOST_POINTS - 1]
        return replace(self, spread=spread)._of([*newest, here])

    def changed_to(self, samples: int, seconds: float) -> SpeedCurve:
        """The curve of a GPU whose speed has changed: this point, and only the shape of before."""
        part = self.slope_at(samples) * samples / self.seconds_of(samples)
        fresh = SpeedCurve(growing_part=min(1.0, max(_FLATTEST, part)), spread=self.spread)
        return fresh._of([Point(samples, seconds)])

    def seconds_of(self, samples: int) -> float:
        """How long a step of so many samples is expected to keep the GPU busy; never falls."""
        at = self._at(samples)
        seconds = self.levelled
        if at < len(self.points) and self.points[at].samples == samples:
            return seconds[at]
        if 0 < at < len(self.points):
            low, high = self.points[at - 1], self.points[at]
            part = (samples - low.samples) / (high.samples - low.samples)
            return seconds[at - 1] + part * (seconds[at] - seconds[at - 1])
        edge = 0 if at == 0 else -1
        nearest, there = self.points[edge].samples, seconds[edge]
        beyond = there + self.slope_at(nearest) * (samples - nearest)
        return max(beyond, there * 0.01)

    def seconds_hoped_for(self, samples: int, *, hope: float) -> float:
        """Between points, so far (0 to 1) from what is expected to the least that it can be.

        A GPU that works in waves has a curve of steps: a time may reach far beyond its point.
        """
        if not 0 < self._at(samples) < len(self.points):
            return self.seconds_of(samples)
        least = self.levelled[self._at(samples + 1) - 1]
        return (1 - hope) * self.seconds_of(samples) + hope * least

    def slope_at(self, samples: int) -> float:
        """Seconds that one sample more costs beyond the points, where the nearest is there."""
        here = self.seconds_of(samples) / samples
        if self.trend is None:
            return here * self.growing_part
        return min(here, max(_FLATTEST * here, self.trend))

    def _at(self, samples: int) -> int:
        return bisect_left(self.points, samples, key=lambda point: point.samples)

    def _spread_after(self, surprise: float, weight: float) -> float:
        """Noise of an interval, told from how far it is off a mean of others."""
        own = abs(surprise) / math.sqrt(1.0 + 1.0 / weight) * 1.25  # mean deviation to standard
        return _SPREAD_MEMORY * self.spread + (1 - _SPREAD_MEMORY) * own

    def _of(self, points: list[Point]) -> SpeedCurve:
        ordered = tuple(sorted(points, key=lambda point: point.samples))
        levelled, trend = _never_falling(ordered), _trend(ordered)
        return replace(self, points=ordered, levelled=levelled, trend=trend)


def _contradicts(older: Point, newer: Point, tolerance: float) -> bool:
    if older.samples < newer.samples:
        return older.seconds > newer.seconds * (1 + tolerance)
    return older.seconds < newer.seconds * (1 - tolerance)


def _trend(points: tuple[Point, ...]) -> float | None:
    """The slope of a line through them, if the furthest are far enough apart to tell one."""
    far = points[-1].samples - points[0].samples
    if not far or far < _APART * points[-1].samples:
        return None
    weight = sum(point.weight for point in points)
    mean_n = sum(point.weight * point.samples for point in points) / weight
    mean_s = sum(point.weight * point.seconds for point in points) / weight
    across = sum(p.weight * (p.samples - mean_n) * (p.seconds - mean_s) for p in points)
    along = sum(p.weight * (p.samples - mean_n) ** 2 for p in points)
    return across / along


def _never_falling(points: tuple[Point, ...]) -> tuple[float, ...]:
    """Their seconds, with neighbours in the wrong order pooled into their mean."""
    pools: list[tuple[float, float, int]] = []  # mean seconds, weight, how many points
    for point in points:
        pools.append((point.seconds, point.weight, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            later, earlier = pools.pop(), pools.pop()
            weight = earlier[1] + later[1]
            mean = (earlier[0] * earlier[1] + later[0] * later[1]) / weight
            pools.append((mean, weight, earlier[2] + later[2]))
    return tuple(mean for mean, _, many in pools for _ in range(many))
