"""Decides, from what each GPU took, how the next batches are to be split.

The controller is told after each interval how long every GPU was busy in a
step, and answers with a new split, or with none. It rests on one fact: more
samples never take less time. So the split is within ``dead_band`` of the best
there can be as soon as the fastest GPU is within it of the slowest, or as
every GPU that could take samples off the slowest is known not to be faster
with them. Then nothing changes any more, until a GPU's speed does.

* A move is *damped*: no GPU's count more than doubles or halves at once.
* It is made where the curves promise half a percent and more than the noise
  that the controller has seen, and never to a split that was tried since the
  last change of speed, unless it proved to be the best.
* Where lines through the points promise nothing and yet nothing proves that
  the split is good, the curves are hoped to be steps, as of GPUs that work in
  waves: first half-way, then wholly.
* A single odd interval is not believed: a change of speed is one that was
  seen twice.
* Nine splits are tried; then the best of them stays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from trainer_hooks.multi_gpu.balance.known_speeds import KnownSpeeds
from trainer_hooks.multi_gpu.balance.solver import Room, SecondsOf, best_split, slowest_seconds
from trainer_hooks.multi_gpu.balance.speed_curve import SpeedCurve

DEAD_BAND: Final = 0.01
"""A split whose step is known to be within this part of the best is left alone, if not told."""
_LEAST_GAIN: Final = 0.005
"""A move that promises less speed, as a part, is not made."""
_MOST_MOVES: Final = 9
"""Splits that are tried before the best of them stays."""
_MOST_GROWTH: Final = 2
"""How many times a GPU's samples may be multiplied or divided by in one move."""
_DOUBT_SPREADS: Final = 1.5
_SURE: Final = 0.3
_HOPES: Final = (0.0, 0.5, 1.0)


@dataclass(frozen=True, slots=True)
class SplitChange:
    """An event: the batch is split otherwise from now on.

    Attributes:
        old: Samples for each GPU until now.
        new: ... and from now on.
        reason: A sentence's worth of why.
        expected_gain: Speed, as a part of the old one, that the curves promise; below 0
            where a memory limit forces the change, ``None`` where nothing is known.
    """

    old: tuple[int, ...]
    new: tuple[int, ...]
    reason: str
    expected_gain: float | None


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
        dead_band: float = DEAD_BAND,
    ) -> None:
        """Begin with a split; ``self.counts`` is it, or the nearest that memory allows.

        Args:
            counts: Samples for each GPU, all 1 or more.
            limits: The most that each GPU's memory holds; ``None`` where it is not known.
            names: What reasons call the GPUs; ``GPU 0`` and so on if not given.
            dead_band: A split whose step is known to be within this part of the best is left alone.

        Raises:
            ValueError: No GPU, one without a sample, or limits too small for the batch.
        """
        self.counts = tuple(counts)
        self._dead_band = dead_band
        if not self.counts or min(self.counts) < 1:
            raise ValueError("every GPU needs a sample of each batch to be levelled")
        self._names = tuple(names or (f"GPU {at}" for at in range(len(self.counts))))
        self._limits: tuple[int | None, ...] = tuple(limits or (None,) * len(self.counts))
        self.speeds = KnownSpeeds(tuple(SpeedCurve() for _ in self.counts))
        self._check_room(sum(self.counts))
        self._start_anew()
        if self._is_over_a_limit():
            # Speeds are not known yet: as level as can be.
            total, nothing_known = sum(self.counts), [float] * len(self.counts)
            self.counts = best_split(nothing_known, total, self._rooms(total, damped=False))

    def _start_anew(self) -> None:
        self._tried: list[tuple[int, ...]] = []
        self._gave_up = False
        self._fruitless = 0
        self._moved_from_s: float | None = None
        self._settled: tuple[float, ...] | None = None
        self._odd: tuple[int, ...] = (0,) * len(self._names)

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
        if len(seen) != len(self._names) or len(busy_seconds) != len(seen):
            raise ValueError(f"an interval of {len(seen)} GPUs for {len(self._names)}")
        if min(seen) < 1 or not all(0 < seconds < math.inf for seconds in busy_seconds):
            raise ValueError("a GPU without a sample, or without busy time, says nothing")
        if sum(seen) != sum(self.counts):
            self._check_room(sum(seen))
            self._start_anew()
        self.counts = seen
        if not self._believes(busy_seconds):
            return None
        if seen not in self._tried:
            self._tried.append(seen)
        self._note_what_came_of_the_move()
        return self._next_change()

    def _is_over_a_limit(self) -> bool:
        return any(
            limit is not None and count > limit
            for count, limit in zip(self.counts, self._limits, strict=True)
        )

    def _believes(self, busy_seconds: Sequence[float]) -> bool:
        """Take the times into the curves; not yet where one is odd for the first time."""
        odd = self.speeds.oddities(self.counts, busy_seconds)
        changed = [now != 0 and now == last for now, last in zip(odd, self._odd, strict=True)]
        self._odd = odd
        if any(odd) and not any(changed):
            return False
        self.speeds = self.speeds.with_seen(self.counts, busy_seconds, changed=changed)
        if self._settled is not None and not any(changed):
            changed = self.speeds.crept_from(self._settled, self.counts)
            self.speeds = self.speeds.forgetting(changed, self.counts)
        if any(changed):
            self._start_anew()
        return True

    def _next_change(self) -> SplitChange | None:
        if self._gave_up or self._is_good_enough():
            return None
        noise = self.speeds.noise_at(self.counts)
        promised = 0.0
        for hope in _HOPES if len(self._tried) <= _MOST_MOVES else ():
            promised, new = self._proposed(self.speeds.seconds_of(hope=hope))
            if promised >= max(_LEAST_GAIN, noise) and new not in self._tried:
                return self._change_to(new, self._why())
        if promised >= _LEAST_GAIN and self.speeds.may_learn_at(self.counts):
            return None
        return self._settle_on_the_best()

    def _is_good_enough(self) -> bool:
        """Whether the split is known to be near the best, or may still be found to be."""
        now_s = self.speeds.slowest_at(self.counts)
        total = sum(self.counts)
        unbeatable_s = self.speeds.unbeatable_seconds(total, self._rooms(total, damped=False))
        band, noise = self._dead_band, self.speeds.noise_at(self.counts)
        may_learn = self.speeds.may_learn_at(self.counts)
        if now_s * (1 - band) <= unbeatable_s:
            if self._settled is None and (noise <= band * _SURE or not may_learn):
                self._settled = self.speeds.at(self.counts)
            return True
        band += _DOUBT_SPREADS * noise
        is_settled = self._settled is not None
        if is_settled:
            band += self._dead_band
        return (is_settled or may_learn) and now_s * (1 - band) <= unbeatable_s

    def _proposed(self, seconds_of: Sequence[SecondsOf]) -> tuple[float, tuple[int, ...]]:
        """The speed, as a part, that the best split by those curves promises, and that split."""
        total = sum(self.counts)
        rooms = self._rooms(total, damped=True)
        new = best_split(seconds_of, total, rooms)
        gain = slowest_seconds(seconds_of, self.counts) / slowest_seconds(seconds_of, new) - 1.0
        return gain, self._stretched(new, rooms)

    def _stretched(self, new: tuple[int, ...], rooms: Sequence[Room]) -> tuple[int, ...]:
        """Twice as far for each move before that went along a step's level and changed nothing."""
        for fruitless in range(self._fruitless, 0, -1):
            far = tuple(
                old + (to - old) * 2**fruitless for old, to in zip(self.counts, new, strict=True)
            )
            fits = all(room.least <= n <= room.most for n, room in zip(far, rooms, strict=True))
            if fits and far not in self._tried:
                return far
        return new

    def _note_what_came_of_the_move(self) -> None:
        if self._moved_from_s is None:
            return
        came_of_it = abs(self.speeds.slowest_at(self.counts) / self._moved_from_s - 1.0)
        level = max(_LEAST_GAIN, self.speeds.noise_at(self.counts))
        self._fruitless = self._fruitless + 1 if came_of_it < level else 0
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
        return f"{self._names[slowest]} is last, {skew:.1%} of its time after the first"

    def _rooms(self, total: int, *, damped: bool) -> list[Room]:
        """What each GPU may be given: its memory, what others leave, and the damping."""
        free = total - len(self.counts) + 1
        most = [free if limit is None else min(limit, free) for limit in self._limits]
        if not damped or self._is_over_a_limit():
            return [Room(1, many) for many in most]
        return [
            Room(max(1, count // _MOST_GROWTH), min(many, count * _MOST_GROWTH + 1))
            for count, many in zip(self.counts, most, strict=True)
        ]

    def _check_room(self, total: int) -> None:
        most = [total if limit is None else limit for limit in self._limits]
        if min(most) < 1 or sum(most) < total or total < len(most):
            raise ValueError(
                f"{total} samples cannot be split over GPUs that hold {sum(most)} together, "
                f"{min(most)} to {max(most)} each"
            )
