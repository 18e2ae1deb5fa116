"""Which stretch of time a utilisation sample speaks for, found from a wave that is known."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise, product
from typing import Final, NamedTuple

from gpumon.core.clock import nanoseconds, seconds

Span = tuple[int, int]
"""A stretch of time, in CLOCK_MONOTONIC nanoseconds."""

_COARSE: Final = 24
_FINEST_NS: Final = 200_000
_SHORTEST_NS: Final = 5_000_000


class WindowFit(NamedTuple):
    """Which stretch a utilisation sample speaks for: how long, and how long before its stamp.

    ``error_ratio`` is the mean distance of so many samples and the truth then.
    """

    window_s: float
    lag_s: float
    error_ratio: float
    samples: int


class BusyTruth:
    """When the device really worked: disjoint spans, in order."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self.spans = tuple(spans)
        self._starts = [start_ns for start_ns, _ in spans]
        self._sums = [*accumulate((end_ns - start_ns for start_ns, end_ns in spans), initial=0)]

    def busy_ns(self, start_ns: int, end_ns: int) -> int:
        """Busy time of a stretch."""
        return self._until(end_ns) - self._until(start_ns)

    def _until(self, at_ns: int) -> int:
        place = bisect_right(self._starts, at_ns)
        if place == 0:
            return 0
        start_ns, end_ns = self.spans[place - 1]
        return self._sums[place - 1] + min(at_ns, end_ns) - start_ns

    def pauses(self) -> list[Span]:
        """What lies between two spans."""
        return [(before[1], after[0]) for before, after in pairwise(self.spans)]


def fit_window(
    truth: BusyTruth, samples: Iterable[tuple[int, float]], cadence_s: float
) -> WindowFit | None:
    """The window and the lag that explain the samples best.

    Args:
        truth: When the device worked.
        samples: ``(stamp, ratio)``: CLOCK_MONOTONIC nanoseconds, and 0 to 1.
        cadence_s: The distance of stamps, from which the search starts.

    Returns:
        ``None`` where no sample lies wholly within the truth.
    """
    longest_ns = nanoseconds(4 * cadence_s)
    first_ns, last_ns = truth.spans[0][0] + 2 * longest_ns, truth.spans[-1][1]
    held = [one for one in samples if first_ns <= one[0] <= last_ns - longest_ns // 4]
    if not held:
        return None

    def judged(near_ns: int, far_ns: int) -> tuple[float, int, int]:
        """How wrong samples are if they speak for the time from ``far`` to ``near`` before."""
        wrong = sum(
            abs(truth.busy_ns(at_ns - far_ns, at_ns - near_ns) / (far_ns - near_ns) - ratio)
            for at_ns, ratio in held
        )
        return wrong / len(held), near_ns, far_ns

    step_ns = max(1, longest_ns // _COARSE)
    best = min(
        judged(near_ns, far_ns)
        for near_ns in range(-longest_ns // 4, longest_ns, step_ns)
        for far_ns in range(near_ns + step_ns, near_ns + longest_ns + 1, step_ns)
    )
    while step_ns > _FINEST_NS:
        around = [
            (best[1] + a * step_ns, best[2] + b * step_ns) for a, b in product((-1, 0, 1), repeat=2)
        ]
        better = min(judged(near, far) for near, far in around if near + _SHORTEST_NS <= far)
        if better < best:
            best = better
        else:
            step_ns //= 2
    error_ratio, near_ns, far_ns = best
    return WindowFit(seconds(far_ns - near_ns), seconds(near_ns), error_ratio, len(held))
