"""Decides how the next batches are split, from the time each GPU took.

After each interval the controller gets the busy seconds of every GPU per step, and returns a new
split or ``None``. It relies on one fact: more samples never take less time. So a split is within
``dead_band`` of the best one as soon as the fastest GPU is within it of the slowest, or every GPU
that could take samples from the slowest is known not to be faster with them. Then nothing changes
until a GPU's speed does.

* Moves are *damped*: no GPU's count more than doubles or halves at once.
* A move is made where the curves promise at least half a percent and more than the measured noise,
  and never to a split tried since the last change of speed, unless that one was the best.
* Where linear interpolation promises nothing and nothing proves that the split is good, the curves
  are assumed to be step functions (GPUs that work in waves), first half-way, then completely.
* A single odd interval is ignored: a change of speed must be measured twice.
* After nine splits the best of them stays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from trainer_hooks.balance.speed_curves import (
    CountRange,
    SecondsOf,
    SpeedCurve,
    SpeedCurves,
    best_split,
    slowest_seconds,
)

DEAD_BAND: Final = 0.01
"""Default: a split within this part of the best is left alone."""
STEPS_TO_SETTLE: Final = 2
"""Steps after a change that are not measured: kernels are chosen again for the new sizes."""
_LEAST_GAIN: Final = 0.005
"""A move that promises less gain in speed, as a part, is not made."""
_MOST_MOVES: Final = 9
"""Splits to try before the best of them stays."""
_MOST_GROWTH: Final = 2
"""The factor by which one move may multiply or divide a GPU's samples."""
_UNSURE_SPREADS: Final = 1.5
_SURE: Final = 0.3
_OPTIMISM: Final = (0.0, 0.5, 1.0)


@dataclass(frozen=True, slots=True)
class SplitChange:
    """A change of the split.

    Attributes:
        old: Samples per GPU until now.
        new: Samples per GPU from now on.
        reason: Why, in words.
        expected_gain: Expected gain in speed, as a part of the old speed; below 0 where a memory
            limit forces the change, ``None`` where nothing is known.
    """

    old: tuple[int, ...]
    new: tuple[int, ...]
    reason: str
    expected_gain: float | None


class RatioController:
    """Balances the GPUs of one training run; not thread-safe.

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
        dead_band: float = DEAD_BAND,
    ) -> None:
        """Start with a split; ``self.counts`` is the nearest one that memory allows.

        Args:
            counts: Samples per GPU, all 1 or more.
            limits: The most samples that fit in each GPU's memory; ``None`` where unknown.
            names: The GPUs' names in reasons; default ``GPU 0``, ``GPU 1``, ...
            dead_band: A split within this part of the best is left alone.

        Raises:
            ValueError: No GPU, one without a sample, or limits too small for the batch.
        """
        self.counts = tuple(counts)
        self._dead_band = dead_band
        if not self.counts or min(self.counts) < 1:
            raise ValueError("every GPU needs a sample of each batch to be balanced")
        self._names = tuple(names or (f"GPU {at}" for at in range(len(self.counts))))
        self._limits: tuple[int | None, ...] = tuple(limits or (None,) * len(self.counts))
        self.speeds = SpeedCurves(tuple(SpeedCurve() for _ in self.counts))
        self._check_limits(sum(self.counts))
        self._restart()
        if self._is_over_a_limit():
            # Speeds are not known yet: as even as possible.
            total, nothing_known = sum(self.counts), [float] * len(self.counts)
            self.counts = best_split(nothing_known, total, self._ranges(total, damped=False))

    def _restart(self) -> None:
        self._tried: list[tuple[int, ...]] = []
        self._gave_up = False
        self._fruitless = 0
        self._moved_from_s: float | None = None
        self._settled: tuple[float, ...] | None = None
        self._odd: tuple[int, ...] = (0,) * len(self._names)

    def advance(self, counts: Sequence[int], busy_seconds: Sequence[float]) -> SplitChange | None:
        """Add one interval; return the change that it leads to, if any.

        Args:
            counts: Samples per GPU and step.
            busy_seconds: Mean busy seconds per GPU and step, without waiting for other GPUs.

        Returns:
            The change, already in ``self.counts``; ``None`` to continue as before.

        Raises:
            ValueError: The lengths differ, or a count or a time is not above 0.
        """
        seen = tuple(counts)
        if len(seen) != len(self._names) or len(busy_seconds) != len(seen):
            raise ValueError(f"an interval of {len(seen)} GPUs for {len(self._names)}")
        if min(seen) < 1 or not all(0 < seconds < math.inf for seconds in busy_seconds):
            raise ValueError("a GPU without samples or without busy time cannot be measured")
        if sum(seen) != sum(self.counts):
            self._check_limits(sum(seen))
            self._restart()
        self.counts = seen
        if not self._accept(busy_seconds):
            return None
        if seen not in self._tried:
            self._tried.append(seen)
        self._record_gain_of_last_move()
        return self._next_change()

    def _is_over_a_limit(self) -> bool:
        return any(
            limit is not None and count > limit
            for count, limit in zip(self.counts, self._limits, strict=True)
        )

    def _accept(self, busy_seconds: Sequence[float]) -> bool:
        """Add the times to the curves, unless one is odd for the first time."""
        odd = self.speeds.changes_of(self.counts, busy_seconds)
        changed = [now != 0 and now == last for now, last in zip(odd, self._odd, strict=True)]
        self._odd = odd
        if any(odd) and not any(changed):
            return False
        self.speeds = self.speeds.with_interval(self.counts, busy_seconds, changed=changed)
        if self._settled is not None and not any(changed):
            changed = self.speeds.drifted_from(self._settled, self.counts)
            self.speeds = self.speeds.restarted(changed, self.counts)
        if any(changed):
            self._restart()
        return True

    def _next_change(self) -> SplitChange | None:
        if self._gave_up or self._is_good_enough():
            return None
        noise = self.speeds.noise_at(self.counts)
        promised = 0.0
        for optimism in _OPTIMISM if len(self._tried) <= _MOST_MOVES else ():
            promised, new = self._proposed(self.speeds.seconds_of(optimism=optimism))
            if promised >= max(_LEAST_GAIN, noise) and new not in self._tried:
                return self._change_to(new, self._why())
        if promised >= _LEAST_GAIN and self.speeds.more_would_help_at(self.counts):
            return None
        return self._settle_on_the_best()

    def _is_good_enough(self) -> bool:
        """Whether the split is near the best, or may still prove to be."""
        now_s = self.speeds.slowest_at(self.counts)
        total = sum(self.counts)
        unbeatable_s = self.speeds.unbeatable_seconds(total, self._ranges(total, damped=False))
        band, noise = self._dead_band, self.speeds.noise_at(self.counts)
        more_would_help = self.speeds.more_would_help_at(self.counts)
        if now_s * (1 - band) <= unbeatable_s:
            if self._settled is None and (noise <= band * _SURE or not more_would_help):
                self._settled = self.speeds.at(self.counts)
            return True
        band += _UNSURE_SPREADS * noise
        is_settled = self._settled is not None
        if is_settled:
            band += self._dead_band
        return (is_settled or more_would_help) and now_s * (1 - band) <= unbeatable_s

    def _proposed(self, seconds_of: Sequence[SecondsOf]) -> tuple[float, tuple[int, ...]]:
        """The gain in speed that the curves promise for their best split, and that split."""
        total = sum(self.counts)
        ranges = self._ranges(total, damped=True)
        new = best_split(seconds_of, total, ranges)
        gain = slowest_seconds(seconds_of, self.counts) / slowest_seconds(seconds_of, new) - 1.0
        return gain, self._stretched(new, ranges)

    def _stretched(self, new: tuple[int, ...], ranges: Sequence[CountRange]) -> tuple[int, ...]:
        """Double the distance for each earlier move that changed nothing, as within a wave."""
        for fruitless in range(self._fruitless, 0, -1):
            far = tuple(
                old + (to - old) * 2**fruitless for old, to in zip(self.counts, new, strict=True)
            )
            fits = all(known.least <= n <= known.most for n, known in zip(far, ranges, strict=True))
            if fits and far not in self._tried:
                return far
        return new

    def _record_gain_of_last_move(self) -> None:
        if self._moved_from_s is None:
            return
        gain = abs(self.speeds.slowest_at(self.counts) / self._moved_from_s - 1.0)
        least = max(_LEAST_GAIN, self.speeds.noise_at(self.counts))
        self._fruitless = self._fruitless + 1 if gain < least else 0
        self._moved_from_s = None

    def _settle_on_the_best(self) -> SplitChange | None:
        best = min(self._tried, key=self.speeds.slowest_at)
        gain = self.speeds.slowest_at(self.counts) / self.speeds.slowest_at(best) - 1.0
        change = None
        if gain >= _LEAST_GAIN / 2:
            change = self._change_to(best, "the best of the splits that were tried")
        self._gave_up = True
        self._settled = self.speeds.at(self.counts)
        return change

    def _change_to(self, new: tuple[int, ...], reason: str) -> SplitChange:
        self._moved_from_s = self.speeds.slowest_at(self.counts)
        gain = self._moved_from_s / self.speeds.slowest_at(new) - 1.0
        change = SplitChange(self.counts, new, reason, gain)
        self.counts, self._settled = new, None
        return change

    def _why(self) -> str:
        seconds = self.speeds.at(self.counts)
        slowest = seconds.index(max(seconds))
        skew = 1 - min(seconds) / max(seconds)
        return f"{self._names[slowest]} is slowest: the fastest GPU takes {skew:.1%} less time"

    def _ranges(self, total: int, *, damped: bool) -> list[CountRange]:
        """How many samples each GPU may be given: its memory, the other GPUs, and the damping."""
        free = total - len(self.counts) + 1
        most = [free if limit is None else min(limit, free) for limit in self._limits]
        if not damped or self._is_over_a_limit():
            return [CountRange(1, many) for many in most]
        return [
            CountRange(max(1, count // _MOST_GROWTH), min(many, count * _MOST_GROWTH + 1))
            for count, many in zip(self.counts, most, strict=True)
        ]

    def _check_limits(self, total: int) -> None:
        most = [total if limit is None else limit for limit in self._limits]
        if min(most) < 1 or sum(most) < total or total < len(most):
            raise ValueError(
                f"{total} samples cannot be split over GPUs that hold {sum(most)} together, "
                f"{min(most)} to {max(most)} each"
            )


def check_steps(*, every: object, warm_up: object) -> None:
    """Check the numbers of steps that both ``RatioBalancer`` take.

    Raises:
        ValueError: One is no whole number, or too small.
    """
    for name, value, least in (("every", every, 1), ("warm_up", warm_up, 0)):
        if not is_whole(value, least=least):
            raise ValueError(
                f"{name} must be a whole number of steps, {least} or more, not {value!r}"
            )


def is_whole(number: Any, *, least: int) -> bool:  # noqa: ANN401
    """Whether this is an integer of at least ``least``."""
    return hasattr(number, "__index__") and not isinstance(number, bool) and number >= least
