"""Which stretch of time a utilisation sample speaks for, found from a wave that is known."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

from tests.tools.board_capture.results import Span, WindowFit

_NS_PER_S: Final = 1_000_000_000
_COARSE: Final = 24
_FINEST_NS: Final = 200_000
_SHORTEST_NS: Final = 5_000_000


class BusyTruth:
    """When the device really worked.

    Args:
        spans: Disjoint, sorted.
    """

    def __init__(self, spans: Sequence[Span]) -> None:
        self.spans = tuple(spans)
        self._starts = [start_ns for start_ns, _ in spans]
        self._sums = [0]
        for start_ns, end_ns in spans:
            self._sums.append(self._sums[-1] + end_ns - start_ns)

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
        return [
            (before[1], after[0]) for before, after in zip(self.spans, self.spans[1:], strict=False)
        ]


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
    longest_ns = round(4 * cadence_s * _NS_PER_S)
    if not truth.spans:
        return None
    first_ns, last_ns = truth.spans[0][0] + 2 * longest_ns, truth.spans[-1][1]
    held = [one for one in samples if first_ns <= one[0] <= last_ns - longest_ns // 4]
    if not held:
        return None

    def error(near_ns: int, far_ns: int) -> float:
        """How wrong samples are if they speak for the time from ``far`` to ``near`` before."""
        return sum(
            abs(truth.busy_ns(at_ns - far_ns, at_ns - near_ns) / (far_ns - near_ns) - ratio)
            for at_ns, ratio in held
        ) / len(held)

    step_ns = max(1, longest_ns // _COARSE)
    best = min(
        (error(near_ns, far_ns), near_ns, far_ns)
        for near_ns in range(-longest_ns // 4, longest_ns, step_ns)
        for far_ns in range(near_ns + step_ns, near_ns + longest_ns + 1, step_ns)
    )
    while step_ns > _FINEST_NS:
        _, near_ns, far_ns = best
        around = [
            (near_ns + a * step_ns, far_ns + b * step_ns)
            for a in (-1, 0, 1)
            for b in (-1, 0, 1)
            if near_ns + a * step_ns + _SHORTEST_NS <= far_ns + b * step_ns
        ]
        better = min((error(*one), *one) for one in around)
        if better < best:
            best = better
        else:
            step_ns //= 2
    return WindowFit(
        window_s=(best[2] - best[1]) / _NS_PER_S,
        lag_s=best[1] / _NS_PER_S,
        error_ratio=best[0],
        samples=len(held),
    )
