"""The split of a batch with which the slowest GPU finishes soonest."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

SecondsOf = Callable[[int], float]
"""How long a GPU takes for a number of samples; must not decrease."""

_HALVINGS: Final = 60
_PRECISION: Final = 1e-9


@dataclass(frozen=True, slots=True)
class CountRange:
    """How many samples of a batch one GPU may be given, both ends included."""

    least: int
    most: int


def slowest_seconds(seconds_of: Sequence[SecondsOf], counts: Sequence[int]) -> float:
    """How long the slowest GPU takes with that split."""
    return max(of(count) for of, count in zip(seconds_of, counts, strict=True))


def best_split(
    seconds_of: Sequence[SecondsOf], total: int, ranges: Sequence[CountRange]
) -> tuple[int, ...]:
    """Split ``total`` samples so that the slowest GPU finishes as soon as possible.

    Where steps in the curves leave a choice, each GPU gets more in proportion to what it could
    do in the same time.

    Args:
        seconds_of: One non-decreasing curve per GPU.
        total: Samples in the batch.
        ranges: How many samples each GPU may be given.

    Returns:
        Samples per GPU, adding up to ``total``, each within its range.

    Raises:
        ValueError: The ranges cannot add up to ``total``.

    >>> best_split([lambda n: n / 300, lambda n: n / 100], 80, [CountRange(1, 80)] * 2)
    (60, 20)
    """
    least, most = [each.least for each in ranges], [each.most for each in ranges]
    if not sum(least) <= total <= sum(most):
        raise ValueError(
            f"{total} samples cannot be split over GPUs that take"
            f" {sum(least)} to {sum(most)} together"
        )
    done_by, not_done_by = slowest_seconds(seconds_of, most), 0.0
    fewest = _done_within(not_done_by, seconds_of, least, most)
    for _ in range(_HALVINGS):
        if done_by - not_done_by <= _PRECISION * done_by:
            break
        middle = (done_by + not_done_by) / 2
        counts = _done_within(middle, seconds_of, fewest, most)
        if sum(counts) >= total:
            done_by, most = middle, counts
        else:
            not_done_by, fewest = middle, counts
    if sum(fewest) > total:  # the least that each must take is the whole batch
        fewest = least
    return _filled(fewest, most, total)


def _done_within(
    seconds: float, seconds_of: Sequence[SecondsOf], least: Sequence[int], most: Sequence[int]
) -> list[int]:
    """The most samples that each GPU can do in that time, between its two counts."""
    return [
        low + bisect_right(range(low + 1, high + 1), seconds, key=of)
        for of, low, high in zip(seconds_of, least, most, strict=True)
    ]


def _filled(fewest: Sequence[int], most: Sequence[int], total: int) -> tuple[int, ...]:
    """Counts between the two that add up to ``total``."""
    rest = total - sum(fewest)
    widths = [high - low for low, high in zip(fewest, most, strict=True)]
    width = max(1, sum(widths))
    counts = [low + rest * wide // width for low, wide in zip(fewest, widths, strict=True)]
    for at, high in enumerate(most):
        more = min(high - counts[at], total - sum(counts))
        counts[at] += more
    return tuple(counts)
