"""What the replicas' own times say of a stretch of training: a mean for each GPU, or a break."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from trainer_hooks.multi_gpu.replica_times import TimedStep

FEWEST: Final = 3
"""Steps that an interval needs."""

_KEPT: Final = 256


class SplitTimes(NamedTuple):
    """How long each GPU was busy in a step while the batch was split in one way.

    Attributes:
        counts: Samples of each GPU in each step, all 1 or more.
        busy_seconds: Mean of a step, for each GPU; above 0.
    """

    counts: tuple[int, ...]
    busy_seconds: tuple[float, ...]


class StepIntervals:
    """Gathers timed steps until they are asked for their means.

    Only steps of one split count: the last batch of an epoch may be smaller, and is left out.
    """

    def __init__(self) -> None:
        self._steps: deque[TimedStep] = deque(maxlen=_KEPT)

    def add(self, steps: Sequence[TimedStep]) -> None:
        """These steps were done."""
        self._steps.extend(steps)

    def forget(self) -> None:
        """What was done so far says nothing of what comes."""
        self._steps.clear()

    def usual_counts(self, total: int | None = None) -> tuple[int, ...] | None:
        """How batches are split now: those of ``total`` samples, else those of the usual size.

        Returns:
            Samples for each GPU; ``None`` where each batch left some GPU without any.
        """
        split_of = {sum(step.samples): step.samples for step in self._steps if min(step.samples)}
        if total in split_of:
            return split_of[total]
        times = Counter(sum(step.samples) for step in self._steps if min(step.samples))
        return split_of[times.most_common(1)[0][0]] if times else None

    def interval(self, total: int | None = None) -> SplitTimes | None:
        """The means over the steps that were split so; ``None`` where there are too few.

        Of each GPU's times the longer half is left out: what disturbs a step, such as a host that
        has no core for it, only ever makes it longer, and is not the GPU's speed.
        """
        counts = self.usual_counts(total)
        rows = [
            step.busy_seconds
            for step in self._steps
            if step.samples == counts and all(0 < s < math.inf for s in step.busy_seconds)
        ]
        if counts is None or len(rows) < FEWEST:
            return None
        return SplitTimes(
            counts, tuple(_undisturbed_mean(seconds) for seconds in zip(*rows, strict=True))
        )


def _undisturbed_mean(seconds: Sequence[float]) -> float:
    shorter = sorted(seconds)[: (len(seconds) + 1) // 2]
    return math.fsum(shorter) / len(shorter)


_CLEAR: Final = 1.3
"""How many times longer, or shorter, than can be explained by the samples."""


class SpeedVerdict(Enum):
    """What an interval says of those before it."""

    FITS = "fits"
    ODD = "odd"
    """It does not fit; a single one is not believed, so ask for another of the same split."""
    BROKEN = "broken"
    """A second one does not: the times of before are those of another GPU."""


class SpeedBreaks:
    """Notices that a GPU's speed changed at the moment at which its samples did.

    A controller that compares times of the same number of samples cannot see that: it would take
    the jump for a step in the curve of a GPU that works in waves, and look for the way round it.
    """

    def __init__(self) -> None:
        self._before: SplitTimes | None = None
        self._was_odd = False

    def judge(self, now: SplitTimes) -> SpeedVerdict:
        """Whether the times of ``now`` can be those of the GPUs of before."""
        before = self._before
        has_moved = before is not None and before.counts != now.counts
        if before is None or not has_moved or not _is_break(before, now):
            self._before, self._was_odd = now, False
            return SpeedVerdict.FITS
        if not self._was_odd:
            self._was_odd = True
            return SpeedVerdict.ODD
        self._before, self._was_odd = now, False
        return SpeedVerdict.BROKEN


def _is_break(before: SplitTimes, now: SplitTimes) -> bool:
    """Whether any GPU is clearly slower, or quicker, than its samples explain.

    Fewer samples never take longer, more never less; and nothing grows faster than in proportion
    but by steps, which are small where a batch is large.
    """
    for old, new, old_s, new_s in zip(
        before.counts, now.counts, before.busy_seconds, now.busy_seconds, strict=True
    ):
        in_proportion_s = old_s * new / old
        longest_s, shortest_s = max(old_s, in_proportion_s), min(old_s, in_proportion_s)
        if new_s > longest_s * _CLEAR or new_s < shortest_s / _CLEAR:
            return True
    return False
