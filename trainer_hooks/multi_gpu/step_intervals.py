"""What the replicas' own times say of a stretch of training: one mean for each GPU."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from trainer_hooks.multi_gpu.replica_times import TimedStep

FEWEST: Final = 3
"""Steps that an interval needs."""

_KEPT: Final = 256


class Interval(NamedTuple):
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

    def interval(self, total: int | None = None) -> Interval | None:
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
        return Interval(
            counts, tuple(_undisturbed_mean(seconds) for seconds in zip(*rows, strict=True))
        )


def _undisturbed_mean(seconds: Sequence[float]) -> float:
    shorter = sorted(seconds)[: (len(seconds) + 1) // 2]
    return math.fsum(shorter) / len(shorter)
