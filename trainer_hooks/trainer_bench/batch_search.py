"""Finds the largest batch that fits on a GPU, by doubling and bisection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_PRECISION: Final = 64
"""The search ends when the answer is known to 1/64."""

_ROUND_TO: Final = 8
LARGEST: Final = 1 << 20


Try = tuple[int, float | None]
"""A batch and its samples per second; ``None`` where memory ran out."""


@dataclass(frozen=True, slots=True)
class BatchFound:
    """The result of a search.

    Attributes:
        fits: The largest batch that was trained.
        advised: ``fits`` less the margin, a multiple of 8 where it is large enough; it was trained
            after memory had run out for the last time.
    """

    fits: int
    advised: int
    tries: tuple[Try, ...]


def find_batch(
    train: Callable[[int], float | None],
    *,
    first: int = 64,
    margin: float = 0.05,
    most: int = LARGEST,
) -> BatchFound | None:
    """Search for the largest batch.

    Args:
        train: Tries a batch; returns samples per second, or ``None`` where it does not fit.
        first: The first batch to try.
        margin: The part of the largest batch to leave free: free memory varies.
        most: The largest batch to try.

    Returns:
        ``None`` where not even one sample fits.

    >>> found = find_batch(lambda batch: 100.0 if batch <= 1000 else None)
    >>> found.fits, found.advised, [batch for batch, _ in found.tries[:6]]
    (1000, 944, [64, 128, 256, 512, 1024, 768])
    """
    tries: list[Try] = []

    def fits(batch: int) -> bool:
        tries.append((batch, train(batch)))
        return tries[-1][1] is not None

    largest, too_large = _doubled(fits, min(first, most), most)
    while largest and too_large is not None and too_large - largest > max(1, largest // _PRECISION):
        middle = (largest + too_large) // 2
        if fits(middle):
            largest = middle
        else:
            too_large = middle
    batch = int(largest * (1 - margin))
    while largest:
        advised = _rounded(batch) or 1
        if fits(advised):
            return BatchFound(largest, advised, tuple(tries))
        if advised == 1:
            break
        # Smaller even without a margin: what no longer fits is not tried again.
        batch = min(int(advised * (1 - margin)), advised - max(1, advised // _PRECISION))
    return None


def _doubled(fits: Callable[[int], bool], batch: int, most: int) -> tuple[int, int | None]:
    """The last size that fits, 0 for none, and the first that does not."""
    too_large = None
    while batch and not fits(batch):
        too_large, batch = batch, batch // 2
    while batch and too_large is None and batch < most:
        larger = min(batch * 2, most)
        if fits(larger):
            batch = larger
        else:
            too_large = larger
    return batch, too_large


def _rounded(batch: int) -> int:
    return batch // _ROUND_TO * _ROUND_TO if batch >= 4 * _ROUND_TO else batch
