"""What is known of all GPUs of a training: one curve each, and what follows from them."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from trainer_hooks.multi_gpu.balance.solver import Room, SecondsOf, slowest_seconds
from trainer_hooks.multi_gpu.balance.speed_curve import STEADIEST, Point, SpeedCurve

_CLEAR_CHANGE: Final = 0.03
"""A GPU's time has changed when it is off by this part twice, where its own noise is not larger."""
_CLEAR_SPREADS: Final = 4.0


@dataclass(frozen=True, slots=True)
class KnownSpeeds:
    """The curves of some GPUs, one for each."""

    curves: tuple[SpeedCurve, ...]

    def seconds_of(self, *, hope: float = 0.0) -> list[SecondsOf]:
        """The curves as functions; ``hope`` as of ``SpeedCurve.seconds_hoped_for``."""
        if hope:
            return [partial(curve.seconds_hoped_for, hope=hope) for curve in self.curves]
        return [curve.seconds_of for curve in self.curves]

    def at(self, counts: Sequence[int]) -> tuple[float, ...]:
        """Seconds that each GPU is busy under that split."""
        return tuple(of(count) for of, count in zip(self.seconds_of(), counts, strict=True))

    def slowest_at(self, counts: Sequence[int]) -> float:
        """Seconds until the last GPU is done under that split."""
        return slowest_seconds(self.seconds_of(), counts)

    def oddities(self, counts: Sequence[int], busy_seconds: Sequence[float]) -> tuple[int, ...]:
        """For each GPU: 1 clearly slower than it was there, -1 clearly faster, 0 as expected."""
        return tuple(
            _sign(curve.surprise(count, seconds), self._clear(curve))
            for curve, count, seconds in zip(self.curves, counts, busy_seconds, strict=True)
        )

    def with_seen(
        self, counts: Sequence[int], busy_seconds: Sequence[float], *, changed: Sequence[bool]
    ) -> KnownSpeeds:
        """With an interval more; the GPUs that have changed begin anew with it."""
        seen = zip(self.curves, counts, busy_seconds, changed, strict=True)
        return KnownSpeeds(
            tuple(
                curve.changed_to(count, seconds)
                if has_changed
                else curve.with_seen(count, seconds, tolerance=self._clear(curve))
                for curve, count, seconds, has_changed in seen
            )
        )

    def crept_from(self, before: Sequence[float], counts: Sequence[int]) -> list[bool]:
        """Which GPUs' times under that split have gone far from what they were."""
        return [
            _sign(now / then - 1.0, self._clear(curve)) != 0
            for curve, now, then in zip(self.curves, self.at(counts), before, strict=True)
        ]

    def forgetting(self, changed: Sequence[bool], counts: Sequence[int]) -> KnownSpeeds:
        """Of the GPUs that have changed only what is known of the present split."""
        known = zip(self.curves, counts, self.at(counts), changed, strict=True)
        return KnownSpeeds(
            tuple(
                curve.changed_to(count, seconds) if has_changed else curve
                for curve, count, seconds, has_changed in known
            )
        )

    def noise_at(self, counts: Sequence[int]) -> float:
        """Relative noise of what is known of that split: of the noisiest GPU."""
        return max(
            curve.spread / math.sqrt(point.weight if point else 1.0)
            for curve, point in zip(self.curves, self._points_at(counts), strict=True)
        )

    def may_learn_at(self, counts: Sequence[int]) -> bool:
        """Whether more intervals of that split would still make its noise less."""
        return any(point is None or point.weight < STEADIEST for point in self._points_at(counts))

    def unbeatable_seconds(self, total: int, rooms: Sequence[Room]) -> float:
        """No split of the batch is done sooner, whatever the curves look like between points.

        In less time each GPU does fewer samples than the least that it was seen to take as
        long for, and together they would not do the batch.
        """
        steps = [curve.levelled for curve in self.curves]
        for seconds in (0.0, *sorted(second for levels in steps for second in levels)):
            done = 0
            for curve, levels, room in zip(self.curves, steps, rooms, strict=True):
                above = bisect_right(levels, seconds)
                most = curve.points[above].samples - 1 if above < len(levels) else room.most
                done += max(room.least, min(most, room.most))
            if done >= total:
                return seconds
        return 0.0

    def _points_at(self, counts: Sequence[int]) -> list[Point | None]:
        return [curve.point_at(count) for curve, count in zip(self.curves, counts, strict=True)]

    def _clear(self, curve: SpeedCurve) -> float:
        return max(_CLEAR_CHANGE, _CLEAR_SPREADS * curve.spread)


def _sign(off: float | None, clear: float) -> int:
    if off is None or abs(off) <= clear:
        return 0
    return 1 if off > 0 else -1
