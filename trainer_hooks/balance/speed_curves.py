"""Measured GPU speeds, and the split of a batch with which the slowest GPU finishes soonest."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

MOST_POINTS: Final = 12
"""Older points are forgotten."""

MOST_WEIGHT: Final = 8.0
"""A point counts for at most this many intervals, so that it follows slow changes."""

_APART: Final = 0.1
"""Points nearer to each other do not give a slope: their noise is larger than it."""

_FLATTEST: Final = 0.15
"""The part of a GPU's time that is assumed to grow with the samples, at least."""

_INITIAL_SPREAD: Final = 0.004
"""Relative noise of an interval's mean, before intervals were compared."""

_SPREAD_MEMORY: Final = 0.85

_CLEAR_CHANGE: Final = 0.03
"""A GPU's speed changed when its time is off by this part twice, unless its noise is larger."""

_CLEAR_SPREADS: Final = 4.0


@dataclass(frozen=True, slots=True)
class Point:
    """A mean over the intervals with one sample count.

    Attributes:
        samples: Per step.
        seconds: Busy per step.
        weight: Number of intervals in the mean.
        order: Grows with each observation of the curve; the newest has the largest.
    """

    samples: int
    seconds: float
    weight: float = 1.0
    order: int = 0


@dataclass(frozen=True, slots=True)
class SpeedCurve:
    """The seconds of a step against its samples, for one GPU.

    Linear between points; beyond them, a line fitted to all. With one point, time is assumed to be
    proportional to samples.

    Attributes:
        points: Sorted by samples, one per count.
        growing_part: The part of a step's time that grows with its samples, 0 to 1, kept from
            before a slow-down that made the older points worthless.
        spread: Relative noise of one interval's mean.
        monotone_seconds: The seconds of the points, made non-decreasing: the curve goes through
            them.
        trend: The slope of the fitted line; ``None`` where the points are too close.
    """

    points: tuple[Point, ...] = ()
    growing_part: float = 1.0
    spread: float = _INITIAL_SPREAD
    monotone_seconds: tuple[float, ...] = field(default=(), repr=False, compare=False)
    trend: float | None = field(default=None, repr=False, compare=False)

    def point_at(self, samples: int) -> Point | None:
        at = self._at(samples)
        found = at < len(self.points) and self.points[at].samples == samples
        return self.points[at] if found else None

    def deviation(self, samples: int, seconds: float) -> float | None:
        """The relative difference from the point at that count; ``None`` without a point."""
        point = self.point_at(samples)
        return None if point is None else seconds / point.seconds - 1.0

    def with_interval(self, samples: int, seconds: float, *, tolerance: float) -> SpeedCurve:
        """The curve with one more interval.

        Points that contradict it (more samples in clearly less time, or fewer in clearly more) are
        outdated and dropped.

        Args:
            samples: Per step; 1 or more.
            seconds: Busy per step; more than 0.
            tolerance: The relative difference from which on two times clearly differ.

        Raises:
            ValueError: Samples or seconds are out of range.
        """
        if samples < 1 or not 0 < seconds < float("inf"):
            raise ValueError(f"{samples} samples in {seconds} s are no speed of a GPU")
        order = 1 + max((point.order for point in self.points), default=0)
        known = self.point_at(samples)
        if known is None:
            here = Point(samples, seconds, 1.0, order)
            spread = self.spread
        else:
            weight = min(known.weight + 1.0, MOST_WEIGHT)
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

    def restarted_at(self, samples: int, seconds: float) -> SpeedCurve:
        """The curve after a change of speed: this point, and only the shape of the old curve."""
        part = self.slope_at(samples) * samples / self.seconds_of(samples)
        fresh = SpeedCurve(growing_part=min(1.0, max(_FLATTEST, part)), spread=self.spread)
        return fresh._of([Point(samples, seconds)])

    def seconds_of(self, samples: int) -> float:
        """The expected busy seconds of a step with that many samples; never decreases."""
        at = self._at(samples)
        seconds = self.monotone_seconds
        if at < len(self.points) and self.points[at].samples == samples:
            return seconds[at]
        if 0 < at < len(self.points):
            low, high = self.points[at - 1], self.points[at]
            part = (samples - low.samples) / (high.samples - low.samples)
            return seconds[at - 1] + part * (seconds[at] - seconds[at - 1])
        edge = 0 if at == 0 else -1
        nearest, nearest_seconds = self.points[edge].samples, seconds[edge]
        beyond = nearest_seconds + self.slope_at(nearest) * (samples - nearest)
        return max(beyond, nearest_seconds * 0.01)

    def optimistic_seconds_of(self, samples: int, *, optimism: float) -> float:
        """Between the expected seconds (``optimism`` 0) and the least possible ones (1).

        A GPU that works in waves has a step function: one time may hold far beyond its point.
        """
        if not 0 < self._at(samples) < len(self.points):
            return self.seconds_of(samples)
        least = self.monotone_seconds[self._at(samples + 1) - 1]
        return (1 - optimism) * self.seconds_of(samples) + optimism * least

    def slope_at(self, samples: int) -> float:
        """Seconds per additional sample beyond the points, from the nearest point."""
        here = self.seconds_of(samples) / samples
        if self.trend is None:
            return here * self.growing_part
        return min(here, max(_FLATTEST * here, self.trend))

    def _at(self, samples: int) -> int:
        return bisect_left(self.points, samples, key=lambda point: point.samples)

    def _spread_after(self, deviation: float, weight: float) -> float:
        own = abs(deviation) / math.sqrt(1.0 + 1.0 / weight) * 1.25  # mean to standard deviation
        return _SPREAD_MEMORY * self.spread + (1 - _SPREAD_MEMORY) * own

    def _of(self, points: list[Point]) -> SpeedCurve:
        ordered = tuple(sorted(points, key=lambda point: point.samples))
        monotone, trend = _non_decreasing(ordered), _trend(ordered)
        return replace(self, points=ordered, monotone_seconds=monotone, trend=trend)


def _contradicts(older: Point, newer: Point, tolerance: float) -> bool:
    if older.samples < newer.samples:
        return older.seconds > newer.seconds * (1 + tolerance)
    return older.seconds < newer.seconds * (1 - tolerance)


def _trend(points: tuple[Point, ...]) -> float | None:
    """The slope of a line through the points, where the furthest are far enough apart."""
    far = points[-1].samples - points[0].samples
    if not far or far < _APART * points[-1].samples:
        return None
    weight = sum(point.weight for point in points)
    mean_n = sum(point.weight * point.samples for point in points) / weight
    mean_s = sum(point.weight * point.seconds for point in points) / weight
    across = sum(p.weight * (p.samples - mean_n) * (p.seconds - mean_s) for p in points)
    along = sum(p.weight * (p.samples - mean_n) ** 2 for p in points)
    return across / along


def _non_decreasing(points: tuple[Point, ...]) -> tuple[float, ...]:
    """Isotonic regression: adjacent points in the wrong order are pooled into their mean."""
    pools: list[tuple[float, float, int]] = []  # mean seconds, weight, number of points
    for point in points:
        pools.append((point.seconds, point.weight, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            later, earlier = pools.pop(), pools.pop()
            weight = earlier[1] + later[1]
            mean = (earlier[0] * earlier[1] + later[0] * later[1]) / weight
            pools.append((mean, weight, earlier[2] + later[2]))
    return tuple(mean for mean, _, many in pools for _ in range(many))


@dataclass(frozen=True, slots=True)
class SpeedCurves:
    """One curve per GPU."""

    curves: tuple[SpeedCurve, ...]

    def seconds_of(self, *, optimism: float = 0.0) -> list[SecondsOf]:
        """The curves as functions; ``optimism`` as in ``SpeedCurve.optimistic_seconds_of``."""
        if optimism:
            return [
                partial(curve.optimistic_seconds_of, optimism=optimism) for curve in self.curves
            ]
        return [curve.seconds_of for curve in self.curves]

    def at(self, counts: Sequence[int]) -> tuple[float, ...]:
        """Busy seconds of each GPU with that split."""
        return tuple(of(count) for of, count in zip(self.seconds_of(), counts, strict=True))

    def slowest_at(self, counts: Sequence[int]) -> float:
        """Seconds until the slowest GPU is done with that split."""
        return slowest_seconds(self.seconds_of(), counts)

    def changes_of(self, counts: Sequence[int], busy_seconds: Sequence[float]) -> tuple[int, ...]:
        """Per GPU: 1 clearly slower than before with that count, -1 clearly faster, else 0."""
        return tuple(
            _sign(curve.deviation(count, seconds), self._clear(curve))
            for curve, count, seconds in zip(self.curves, counts, busy_seconds, strict=True)
        )

    def with_interval(
        self, counts: Sequence[int], busy_seconds: Sequence[float], *, changed: Sequence[bool]
    ) -> SpeedCurves:
        """The curves with one more interval; those of changed GPUs start again with it."""
        seen = zip(self.curves, counts, busy_seconds, changed, strict=True)
        return SpeedCurves(
            tuple(
                curve.restarted_at(count, seconds)
                if has_changed
                else curve.with_interval(count, seconds, tolerance=self._clear(curve))
                for curve, count, seconds, has_changed in seen
            )
        )

    def drifted_from(self, before: Sequence[float], counts: Sequence[int]) -> list[bool]:
        """Which GPUs' times with that split have moved far from ``before``."""
        return [
            _sign(now / then - 1.0, self._clear(curve)) != 0
            for curve, now, then in zip(self.curves, self.at(counts), before, strict=True)
        ]

    def restarted(self, changed: Sequence[bool], counts: Sequence[int]) -> SpeedCurves:
        """For the GPUs that changed, keep only what is known of the present split."""
        known = zip(self.curves, counts, self.at(counts), changed, strict=True)
        return SpeedCurves(
            tuple(
                curve.restarted_at(count, seconds) if has_changed else curve
                for curve, count, seconds, has_changed in known
            )
        )

    def noise_at(self, counts: Sequence[int]) -> float:
        """Relative noise of the measurements with that split: that of the noisiest GPU."""
        return max(
            curve.spread / math.sqrt(point.weight if point else 1.0)
            for curve, point in zip(self.curves, self._points_at(counts), strict=True)
        )

    def more_would_help_at(self, counts: Sequence[int]) -> bool:
        """Whether more intervals with that split would reduce its noise."""
        return any(point is None or point.weight < MOST_WEIGHT for point in self._points_at(counts))

    def unbeatable_seconds(self, total: int, ranges: Sequence[CountRange]) -> float:
        """A lower bound: no split is faster, whatever the curves look like between points.

        In less time each GPU does fewer samples than the smallest count that was measured to take
        that long, and together they would not finish the batch.
        """
        steps = [curve.monotone_seconds for curve in self.curves]
        for seconds in (0.0, *sorted(second for levels in steps for second in levels)):
            done = 0
            for curve, levels, allowed in zip(self.curves, steps, ranges, strict=True):
                above = bisect_right(levels, seconds)
                most = curve.points[above].samples - 1 if above < len(levels) else allowed.most
                done += max(allowed.least, min(most, allowed.most))
            if done >= total:
                return seconds
        return 0.0

    def _points_at(self, counts: Sequence[int]) -> list[Point | None]:
        return [curve.point_at(count) for curve, count in zip(self.curves, counts, strict=True)]

    def _clear(self, curve: SpeedCurve) -> float:
        return max(_CLEAR_CHANGE, _CLEAR_SPREADS * curve.spread)


def _sign(deviation: float | None, clear: float) -> int:
    if deviation is None or abs(deviation) <= clear:
        return 0
    return 1 if deviation > 0 else -1


SecondsOf = Callable[[int], float]
"""How long a GPU takes for a number of samples; must not decrease."""

_HALVINGS: Final = 60
_PRECISION: Final = 1e-9


@dataclass(frozen=True, slots=True)
class CountRange:
    """How many samples of a batch one GPU may be given, both ends included."""

    least: int
    most: int


def slowest_seconds(seconds_of: Sequence[SecondsOf], counts: Sequence[int]) -> float:
    """How long the slowest GPU takes with that split."""
    return max(of(count) for of, count in zip(seconds_of, counts, strict=True))


def best_split(
    seconds_of: Sequence[SecondsOf], total: int, ranges: Sequence[CountRange]
) -> tuple[int, ...]:
    """Split ``total`` samples so that the slowest GPU finishes as soon as possible.

    Where steps in the curves leave a choice, each GPU gets more in proportion to what it could
    do in the same time.

    Args:
        seconds_of: One non-decreasing curve per GPU.
        total: Samples in the batch.
        ranges: How many samples each GPU may be given.

    Returns:
        Samples per GPU, adding up to ``total``, each within its range.

    Raises:
        ValueError: The ranges cannot add up to ``total``.

    >>> best_split([lambda n: n / 300, lambda n: n / 100], 80, [CountRange(1, 80)] * 2)
    (60, 20)
    """
    least, most = [each.least for each in ranges], [each.most for each in ranges]
    if not sum(least) <= total <= sum(most):
        raise ValueError(
            f"{total} samples cannot be split over GPUs that take"
            f" {sum(least)} to {sum(most)} together"
        )
    done_by, not_done_by = slowest_seconds(seconds_of, most), 0.0
    fewest = _done_within(not_done_by, seconds_of, least, most)
    for _ in range(_HALVINGS):
        if done_by - not_done_by <= _PRECISION * done_by:
            break
        middle = (done_by + not_done_by) / 2
        counts = _done_within(middle, seconds_of, fewest, most)
        if sum(counts) >= total:
            done_by, most = middle, counts
        else:
            not_done_by, fewest = middle, counts
    if sum(fewest) > total:  # the least that each must take is the whole batch
        fewest = least
    return _filled(fewest, most, total)


def _done_within(
    seconds: float, seconds_of: Sequence[SecondsOf], least: Sequence[int], most: Sequence[int]
) -> list[int]:
    """The most samples that each GPU can do in that time, between its two counts."""
    return [
        low + bisect_right(range(low + 1, high + 1), seconds, key=of)
        for of, low, high in zip(seconds_of, least, most, strict=True)
    ]


def _filled(fewest: Sequence[int], most: Sequence[int], total: int) -> tuple[int, ...]:
    """Counts between the two that add up to ``total``."""
    rest = total - sum(fewest)
    widths = [high - low for low, high in zip(fewest, most, strict=True)]
    width = max(1, sum(widths))
    counts = [low + rest * wide // width for low, wide in zip(fewest, widths, strict=True)]
    for at, high in enumerate(most):
        more = min(high - counts[at], total - sum(counts))
        counts[at] += more
    return tuple(counts)
