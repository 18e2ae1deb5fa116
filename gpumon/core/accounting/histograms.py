"""Lengths of pauses and steps in log histograms of constant size."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Final

from gpumon.core.accounting.totals import GapTotals
from gpumon.core.clock import nanoseconds
from gpumon.core.settings.detector import GAP_BUCKETS_SECONDS

_BINS_PER_OCTAVE = 32  # neighbouring bins differ by 2.2 %, so a quantile is off by 1.1 % at most
_STEADY_COUNT = 100  # beyond so many pauses, quantiles are updated after each further 1 %
_LAST_BIN = 32 * _BINS_PER_OCTAVE  # 2**32 us = 71 minutes and everything longer
_BOUNDS_NS = tuple(map(nanoseconds, GAP_BUCKETS_SECONDS))

WARM_UP_STEPS: Final = 3
"""The first steps are not typical: they trace, compile and fill caches."""
_BITS: Final = 6
_PER_OCTAVE: Final = 1 << _BITS


class GapHistogram:
    """Lengths of ended pauses."""

    def __init__(self) -> None:
        self._bins: defaultdict[int, int] = defaultdict(int)
        self._bucket_counts = [0] * (len(_BOUNDS_NS) + 1)  # not cumulative; the last: longer
        self.count = 0
        self._total_ns = 0
        self._longest_ns = self._last_ns = 0
        self._quantiles_ns: tuple[int | None, int | None] = (None, None)
        self._quantiles_due_at = 1
        self._snapshot: GapTotals | None = None

    def add(self, length_ns: int) -> None:
        """Count an ended pause; ``length_ns`` is its idle time."""
        self.count += 1
        self._put(length_ns)

    def lengthen_last(self, by_ns: int) -> None:
        """Add ``by_ns`` of idle time to the pause that was added last."""
        last_ns = self._last_ns
        self._bins[_bin_of(last_ns)] -= 1
        self._bucket_counts[bisect_left(_BOUNDS_NS, last_ns)] -= 1
        self._total_ns -= last_ns
        self._quantiles_due_at = self.count
        self._put(last_ns + by_ns)

    def snapshot(self) -> GapTotals:
        """The sums and quantiles so far. The same object until a pause is added."""
        if self._snapshot is None:
            if self.count >= self._quantiles_due_at:
                self._quantiles_ns = (self._quantile_ns(0.50), self._quantile_ns(0.95))
                self._quantiles_due_at = self.count + 1 + self.count // _STEADY_COUNT
            self._snapshot = GapTotals(
                self.count,
                self._total_ns,
                self._longest_ns,
                *self._quantiles_ns,
                tuple(accumulate(self._bucket_counts[:-1])),
            )
        return self._snapshot

    def _put(self, length_ns: int) -> None:
        self._last_ns = length_ns
        self._total_ns += length_ns
        self._longest_ns = max(self._longest_ns, length_ns)
        self._bins[_bin_of(length_ns)] += 1
        self._bucket_counts[bisect_left(_BOUNDS_NS, length_ns)] += 1
        self._snapshot = None

    def _quantile_ns(self, quantile: float) -> int | None:
        if self.count == 0:
            return None
        bin_ = _bin_at(math.ceil(quantile * self.count), self._bins)
        middle_ns = round(2 ** ((bin_ + 0.5) / _BINS_PER_OCTAVE) * 1_000)
        return min(middle_ns, self._longest_ns)


def _bin_of(length_ns: int) -> int:
    microseconds = max(length_ns / 1_000, 1.0)
    return min(_LAST_BIN, math.floor(math.log2(microseconds) * _BINS_PER_OCTAVE))


def _bin_at(rank: float, counts: Mapping[int, int]) -> int:
    """The bin with the length of that rank, counted from the shortest."""
    bins = sorted(counts)
    reached = accumulate(counts[bin_] for bin_ in bins)
    return next(bin_ for bin_, seen in zip(bins, reached, strict=True) if seen >= rank)


class LengthHistogram:
    """Lengths in buckets, sixty-four an octave: a median is exact to 0.8 %.

    Attributes:
        count: How many lengths were added, each counted as often as it stands for.

    >>> lengths = LengthHistogram()
    >>> lengths.add([1_000_000] * 97)
    >>> lengths.add([9_000_000], each=3)
    >>> lengths.count, round(lengths.median_ns / 1e6, 1)
    (100, 1.0)
    """

    def __init__(self) -> None:
        self._counts: defaultdict[int, int] = defaultdict(int)
        self.count = 0

    def add(self, lengths_ns: Iterable[int], each: int = 1) -> None:
        """Add lengths above 0; each stands for so many."""
        counts, added = self._counts, 0
        for length_ns in lengths_ns:
            octave = length_ns.bit_length()  # and the six bits that follow the first
            counts[octave << _BITS | length_ns << _BITS + 1 >> octave & _PER_OCTAVE - 1] += each
            added += each
        self.count += added

    @property
    def median_ns(self) -> float | None:
        if not self.count:
            return None
        octave, part = divmod(_bin_at(self.count / 2, self._counts), _PER_OCTAVE)
        return float(2.0 ** (octave - 1) * (1 + (part + 0.5) / _PER_OCTAVE))
