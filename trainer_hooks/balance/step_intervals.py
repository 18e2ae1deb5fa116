"""Mean busy seconds per GPU over a number of steps, and sudden changes of speed between them."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

FEWEST_STEPS: Final = 3
_KEPT_STEPS: Final = 256


class TimedStep(NamedTuple):
    """One step of all replicas, in the order of the devices.

    Attributes:
        busy_seconds: Per replica, from the arrival of the batch to its last gradient; without the
            wait for other replicas and the update of the weights.
        samples: Per replica; borrowed samples with weight 0 are not counted.
    """

    busy_seconds: tuple[float, ...]
    samples: tuple[int, ...]


class SplitTimes(NamedTuple):
    """Mean step times with one split of the batch.

    Attributes:
        counts: Samples per GPU and step, all 1 or more.
        busy_seconds: Per GPU and step, above 0.
    """

    counts: tuple[int, ...]
    busy_seconds: tuple[float, ...]


class StepIntervals:
    """Collects timed steps and returns their means.

    Only steps with the same split count: the last batch of an epoch may be smaller.
    """

    def __init__(self) -> None:
        self._steps: deque[TimedStep] = deque(maxlen=_KEPT_STEPS)

    def add(self, steps: Sequence[TimedStep]) -> None:
        self._steps.extend(steps)

    def clear(self) -> None:
        self._steps.clear()

    def usual_counts(self, total: int | None = None) -> tuple[int, ...] | None:
        """How batches of ``total`` samples are split now; else those of the most common size.

        Returns:
            Samples per GPU; ``None`` where each batch left some GPU without any.
        """
        split_of = {sum(step.samples): step.samples for step in self._steps if min(step.samples)}
        if total in split_of:
            return split_of[total]
        times = Counter(sum(step.samples) for step in self._steps if min(step.samples))
        return split_of[times.most_common(1)[0][0]] if times else None

    def interval(self, total: int | None = None) -> SplitTimes | None:
        """The means over the steps with the usual split; ``None`` where there are too few.

        The longer half of each GPU's times is ignored: what disturbs a step, such as a busy host,
        only makes it longer.
        """
        counts = self.usual_counts(total)
        rows = [
            step.busy_seconds
            for step in self._steps
            if step.samples == counts and all(0 < s < math.inf for s in step.busy_seconds)
        ]
        if counts is None or len(rows) < FEWEST_STEPS:
            return None
        return SplitTimes(
            counts, tuple(_undisturbed_mean(seconds) for seconds in zip(*rows, strict=True))
        )


def _undisturbed_mean(seconds: Sequence[float]) -> float:
    shorter = sorted(seconds)[: (len(seconds) + 1) // 2]
    return math.fsum(shorter) / len(shorter)


_CLEAR: Final = 1.3
"""A speed changed when a step takes this factor longer or shorter than its samples explain."""


class SpeedVerdict(Enum):
    """Whether an interval fits the one before."""

    FITS = "fits"
    ODD = "odd"
    """It does not fit; one interval is not enough, so measure the same split again."""
    CHANGED = "changed"
    """A second one does not fit either: the earlier times are outdated."""


class SpeedChanges:
    """Detects a GPU whose speed changed together with its samples.

    The controller compares times of the same number of samples, and would take such a jump for a
    step in the curve of a GPU that works in waves.
    """

    def __init__(self) -> None:
        self._before: SplitTimes | None = None
        self._was_odd = False

    def update(self, now: SplitTimes) -> SpeedVerdict:
        before = self._before
        has_moved = before is not None and before.counts != now.counts
        if before is None or not has_moved or not _has_changed(before, now):
            self._before, self._was_odd = now, False
            return SpeedVerdict.FITS
        if not self._was_odd:
            self._was_odd = True
            return SpeedVerdict.ODD
        self._before, self._was_odd = now, False
        return SpeedVerdict.CHANGED


def _has_changed(before: SplitTimes, now: SplitTimes) -> bool:
    """Whether any GPU is clearly slower or faster than its samples explain.

    Fewer samples never take longer, more never less; and time grows at most in proportion to
    samples, except for steps in the curve, which are small where a batch is large.
    """
    for old, new, old_s, new_s in zip(
        before.counts, now.counts, before.busy_seconds, now.busy_seconds, strict=True
    ):
        in_proportion_s = old_s * new / old
        longest_s, shortest_s = max(old_s, in_proportion_s), min(old_s, in_proportion_s)
        if new_s > longest_s * _CLEAR or new_s < shortest_s / _CLEAR:
            return True
    return False
