"""Decides, from what each GPU took, how the next batches are to be split.

The controller is told after each interval how long every GPU was busy in a
step, and answers with a new split, or with none. It rests on one fact: more
samples never take less time. So the split is within ``dead_band`` of the best
there can be as soon as the fastest GPU is within it of the slowest, or as
every GPU that could take samples off the slowest is known not to be faster
with them. Then nothing changes any more, until a GPU's speed does.

* A move is *damped*: no GPU's count more than doubles or halves at once.
* It is made where the curves promise ``least_gain`` and more than the noise
  that the controller has seen, and never to a split that was tried since the
  last change of speed, unless it proved to be the best.
* Where lines through the points promise nothing and yet nothing proves that
  the split is good, the curves are hoped to be steps, as of GPUs that work in
  waves: first half-way, then wholly.
* A single odd interval is not believed: a change of speed is one that was
  seen twice.
* ``most_moves`` splits are tried; then the best of them stays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Final

from trainer_hooks.balance.solver import Room, SecondsOf, best_split, slowest_seconds
from trainer_hooks.balance.speed_curve import STEADIEST, SpeedCurve
from trainer_hooks.balance.split_change import ControllerSettings, SplitChange

_CLEAR_SPREADS: Final = 4.0
_DOUBT_SPREADS: Final = 1.5
_SURE: Final = 0.3
_HOPES: Final = (0.0, 0.5, 1.0)


class RatioController:
    """Levels the GPUs of one training; not thread-safe.

    >>> controller = RatioController((512, 512), limits=(1024, 640))
    >>> change = controller.advance((512, 512), (0.39, 0.57))
    >>> change.old, change.new
    ((512, 512), (608, 416))
    >>> controller.advance((608, 416), (0.47, 0.471)) is None
    True
    """

    def __init__(
        self,
        counts: Sequence[int],
        *,
        limits: Sequence[int | None] | None = None,
        names: Sequence[str] | None = None,
        settings: ControllerSettings | None = None,
    ) -> None:
        """Begin with a split; ``self.counts`` is it, or the nearest that memory allows.

        Args:
            counts: Samples for each GPU, all 1 or more.
            limits: The most that each GPU's memory holds; ``None`` where it is not known.
            names: What reasons call the GPUs; ``GPU 0`` and so on if not given.
            settings: How eager to be.

        Raises:
            ValueError: No GPU, one without a sample, or limits too small for the batch.
        """
        self.counts = tuple(counts)
        self.settings = settings or ControllerSettings()
        if not self.counts or min(self.counts) < 1:
            raise ValueError("every GPU needs a sample of each batch to be levelled")
        self.names = tuple(names or (f"GPU {at}" for at in range(len(self.counts))))
        self.limits: tuple[int | None, ...] = tuple(limits or (None,) * len(self.counts))
        if not len(self.limits) == len(self.names) == len(self.counts):
            raise ValueError(f"{len(self.counts)} GPUs need as many memory limits and names")
        self.curves = tuple(SpeedCurve() for _ in self.counts)
        self._tried: list[tuple[int, ...]] = []
        self._settled: tuple[float, ...] | None = None
        self._gave_up = False
        self._odd: tuple[int, ...] = ()
        self._check_room(sum(self.counts))
        self._start_anew()
        if self._is_over_a_limit():
            self.counts = self._nearest_that_fits()

    @property
    def is_settled(self) -> bool:
        """Whether the next interval like the last one will change nothing."""
        return self._settled is not None

    def advance(self, counts: Sequence[int], busy_seconds: Sequence[float]) -> SplitChange | None:
        """Take in one interval and say what is to change.

        Args:
            counts: Samples of each GPU in the interval's steps.
            busy_seconds: Mean seconds of a step that each GPU was busy, without
                waiting for the others.

        Returns:
            The change, already in ``self.counts``; ``None`` to go on as before.

        Raises:
            ValueError: The lengths differ, or a count or a time is not above 0.
        """
        seen = tuple(counts)
        if len(seen) != len(self.curves) or len(busy_seconds) != len(seen):
            raise ValueError(f"an interval of {len(seen)} GPUs for {len(self.curves)}")
        if min(seen) < 1 or not all(0 < seconds < math.inf for seconds in busy_seconds):
            raise ValueError("a GPU without a sample, or without busy time, says nothing")
        if sum(seen) != sum(self.counts):
            self._check_room(sum(seen))
            self._start_anew()
        self.counts = seen
        if not self._believes(seen, busy_seconds):
            return None
        if seen not in self._tried:
            self._tried.append(seen)
        return self._next_change()

    def hold_out(self, gpu: int, samples: int) -> SplitChange | None:
        """A GPU did not hold so many samples: never give it as many again.

        Returns:
            The change, as of ``advance``; ``None`` where the present split needs none.

        Raises:
            ValueError: The GPUs together no longer hold the batch; nothing is changed.
        """
        before, known = self.limits, self.limits[gpu]
        limit = samples - 1 if known is None else min(samples - 1, known)
        self.limits = (*before[:gpu], limit, *before[gpu + 1 :])
        try:
            self._check_room(sum(self.counts))
        except ValueError:
            self.limits = before
            raise
        self._start_anew()
        if not self._is_over_a_limit():
            return None
        reason = f"{self.names[gpu]} does not hold {self.counts[gpu]} samples"
        return self._change_to(self._nearest_that_fits(), reason)

    def _is_over_a_limit(self) -> bool:
        return any(
            limit is not None and count > limit
            for count, limit in zip(self.counts, self.limits, strict=True)
        )

    def _nearest_that_fits(self) -> tuple[int, ...]:
        """The best split within the limits; where speeds are not known, as level as can be."""
        total = sum(self.counts)
        seconds_of = self._seconds_of() if self._has_seen_all() else [float] * len(self.counts)
        return best_split(seconds_of, total, self._rooms(total, damped=False))

    def _has_seen_all(self) -> bool:
        return all(curve.points for curve in self.curves)

    def _believes(self, seen: tuple[int, ...], busy_seconds: Sequence[float]) -> bool:
        """Take the times into the curves; not yet where one is odd for the first time."""
        surprises = [
            curve.surprise(count, seconds)
            for curve, count, seconds in zip(self.curves, seen, busy_seconds, strict=True)
        ]
        odd = tuple(
            0 if off is None or abs(off) <= self._clear(curve) else (1 if off > 0 else -1)
            for off, curve in zip(surprises, self.curves, strict=True)
        )
        confirmed = [
            bool(now) and now == before for now, before in zip(odd, self._odd, strict=True)
        ]
        self._odd = odd
        if any(odd) and not any(confirmed):
            return False
        self.curves = tuple(
            curve.changed_to(count, seconds)
            if changed
            else curve.with_seen(count, seconds, tolerance=self._clear(curve))
            for curve, count, seconds, changed in zip(
                self.curves, seen, busy_seconds, confirmed, strict=True
            )
        )
        if any(confirmed) or self._has_crept():
            self._odd = (0,) * len(seen)
            self._start_anew()
        return True

    def _has_crept(self) -> bool:
        """Whether means have gone far from what they were when the split was left alone."""
        if self._settled is None:
            return False
        crept = [
            abs(seconds / before - 1.0) > self._clear(curve)
            for curve, seconds, before in zip(
                self.curves, self._present_seconds(), self._settled, strict=True
            )
        ]
        if any(crept):
            self.curves = tuple(
                curve.changed_to(count, seconds) if has else curve
                for curve, count, seconds, has in zip(
                    self.curves, self.counts, self._present_seconds(), crept, strict=True
                )
            )
        return any(crept)

    def _next_change(self) -> SplitChange | None:
        if self._gave_up:
            return None
        now_s, unbeatable_s = max(self._present_seconds()), self._unbeatable_seconds()
        band, doubt = self.settings.dead_band, _DOUBT_SPREADS * self._noise()
        if now_s * (1 - band) <= unbeatable_s:
            if self._noise() <= band * _SURE or not self._may_learn():
                self._settled = self._settled or self._present_seconds()
            return None
        if self.is_settled and now_s * (1 - 2 * band - doubt) <= unbeatable_s:
            return None
        if self._may_learn() and now_s * (1 - band - doubt) <= unbeatable_s:
            return None
        if len(self._tried) <= self.settings.most_moves:
            for hope in _HOPES:
                seconds_of = [partial(curve.seconds_hoped_for, hope=hope) for curve in self.curves]
                gain, new = self._proposed(seconds_of)
                if gain >= max(self.settings.least_gain, self._noise()) and new not in self._tried:
                    return self._change_to(new, self._why())
            if gain >= self.settings.least_gain and self._may_learn():
                return None
        return self._settle_on_the_best()

    def _proposed(self, seconds_of: Sequence[SecondsOf]) -> tuple[float, tuple[int, ...]]:
        """The best split by those curves, and the part of speed that they promise of it."""
        total = sum(self.counts)
        new = best_split(seconds_of, total, self._rooms(total, damped=True))
        gain = slowest_seconds(seconds_of, self.counts) / slowest_seconds(seconds_of, new) - 1.0
        return gain, new

    def _may_learn(self) -> bool:
        """Whether intervals more of the same split still make its means less noisy."""
        points = [curve.point_at(n) for curve, n in zip(self.curves, self.counts, strict=True)]
        return any(point is not None and point.weight < STEADIEST for point in points)

    def _settle_on_the_best(self) -> SplitChange | None:
        best = min(self._tried, key=lambda counts: slowest_seconds(self._seconds_of(), counts))
        gain = max(self._present_seconds()) / slowest_seconds(self._seconds_of(), best) - 1.0
        if gain < self.settings.least_gain / 2:
            best = self.counts
        change = None
        if best != self.counts:
            change = self._change_to(best, "the best of the splits that were tried")
        self._gave_up = True
        self._settled = self._present_seconds()
        return change

    def _change_to(self, new: tuple[int, ...], reason: str) -> SplitChange:
        gain = None
        if self._has_seen_all():
            seconds_of = self._seconds_of()
            gain = slowest_seconds(seconds_of, self.counts) / slowest_seconds(seconds_of, new) - 1
        change = SplitChange(self.counts, new, reason, gain)
        self.counts, self._settled = new, None
        return change

    def _why(self) -> str:
        seconds = self._present_seconds()
        slowest = seconds.index(max(seconds))
        skew = 1 - min(seconds) / max(seconds)
        return f"{self.names[slowest]} is last, {skew:.1%} of its time after the first"

    def _unbeatable_seconds(self) -> float:
        """No split can be done sooner: in less time the GPUs would not do the batch together."""
        total = sum(self.counts)
        rooms = self._rooms(total, damped=False)
        known = best_split([curve.at_least for curve in self.curves], total, rooms)
        return slowest_seconds([curve.at_least for curve in self.curves], known)

    def _rooms(self, total: int, *, damped: bool) -> list[Room]:
        """What each GPU may be given: its memory, what others leave, and the damping."""
        free = total - len(self.counts) + 1
        most = [free if limit is None else min(limit, free) for limit in self.limits]
        if not damped or self._is_over_a_limit():
            return [Room(1, many) for many in most]
        growth = self.settings.most_growth
        return [
            Room(max(1, int(count / growth)), min(many, int(count * growth) + 1))
            for count, many in zip(self.counts, most, strict=True)
        ]

    def _check_room(self, total: int) -> None:
        most = [total if limit is None else limit for limit in self.limits]
        if min(most) < 1 or sum(most) < total or total < len(most):
            raise ValueError(
                f"{total} samples cannot be split over GPUs that hold {sum(most)} together, "
                f"{min(most)} to {max(most)} each"
            )

    def _start_anew(self) -> None:
        self._tried = []
        self._gave_up = False
        self._settled = None
        self._odd = (0,) * len(self.curves)

    def _seconds_of(self) -> list[SecondsOf]:
        return [curve.seconds_of for curve in self.curves]

    def _present_seconds(self) -> tuple[float, ...]:
        return tuple(
            curve.seconds_of(count) for curve, count in zip(self.curves, self.counts, strict=True)
        )

    def _noise(self) -> float:
        return max(
            curve.spread / math.sqrt(point.weight if (point := curve.point_at(count)) else 1.0)
            for curve, count in zip(self.curves, self.counts, strict=True)
        )

    def _clear(self, curve: SpeedCurve) -> float:
        return max(self.settings.clear_change, _CLEAR_SPREADS * curve.spread)
