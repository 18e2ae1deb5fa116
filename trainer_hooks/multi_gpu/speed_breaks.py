"""Notices that a GPU's speed changed at the moment at which its samples did.

A controller that compares times of the same number of samples cannot see that: it would take the
jump for a step in the curve of a GPU that works in waves, and look for the way round it.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from trainer_hooks.multi_gpu.step_intervals import Interval

_CLEAR: Final = 1.3
"""How many times longer, or shorter, than can be explained by the samples."""


class Verdict(Enum):
    """What an interval says of those before it."""

    FITS = "fits"
    ODD = "odd"
    """It does not fit; a single one is not believed, so ask for another of the same split."""
    BROKEN = "broken"
    """A second one does not: the times of before are those of another GPU."""


class SpeedBreaks:
    """Compares each interval with the last one that fitted."""

    def __init__(self) -> None:
        self._before: Interval | None = None
        self._was_odd = False

    def judge(self, now: Interval) -> Verdict:
        """Whether the times of ``now`` can be those of the GPUs of before."""
        before = self._before
        has_moved = before is not None and before.counts != now.counts
        if before is None or not has_moved or not _is_break(before, now):
            self._before, self._was_odd = now, False
            return Verdict.FITS
        if not self._was_odd:
            self._was_odd = True
            return Verdict.ODD
        self._before, self._was_odd = now, False
        return Verdict.BROKEN


def _is_break(before: Interval, now: Interval) -> bool:
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
