"""Rows of a log that come quicker than the driver's windows, put together again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpumon.core.sample import BusySample
from gpumon.core.units import NS_PER_S

LONGEST_WINDOW_NS: Final = NS_PER_S
"""NVML averages utilisation over 1/6 s to 1 s, by product."""


def put_together(samples: Sequence[BusySample]) -> list[BusySample]:
    """Neighbours that say the same become one sample, of at most the longest window.

    A logger that asks ten times a second is told each window of the driver
    several times. Taken row by row, the window in which a pause begins would
    be a burst of several rows, and only the last of them its edge.

    Args:
        samples: Of one GPU, disjoint, oldest first; shorter than a window.

    Returns:
        Samples with the same sums.
    """
    if not samples:
        return []
    joined: list[BusySample] = []
    start_ns, end_ns, ratio = samples[0]
    for sample in samples[1:]:
        next_start_ns, next_end_ns, next_ratio = sample
        is_same = next_ratio == ratio and next_start_ns == end_ns
        if is_same and next_end_ns - start_ns <= LONGEST_WINDOW_NS:
            end_ns = next_end_ns
        else:
            joined.append(BusySample(start_ns, end_ns, ratio))
            start_ns, end_ns, ratio = sample
    joined.append(BusySample(start_ns, end_ns, ratio))
    return joined
