"""How long pauses are: a fixed log histogram, so that a year costs as much memory as a minute."""

from __future__ import annotations

import math
from bisect import bisect_left
from itertools import accumulate

from gpumon.core.settings import GAP_BUCKETS_SECONDS
from gpumon.core.totals import GapTotals
from gpumon.core.units import NS_PER_S

_BINS_PER_OCTAVE = 32  # neighbouring bins differ by 2.2 %, so a quantile is off by 1.1 % at most
_STEADY_COUNT = 100  # beyond so many pauses, quantiles are taken anew each time 1 % has come
_LAST_BIN = 32 * _BINS_PER_OCTAVE  # 2**32 us = 71 minutes and everything longer
_BOUNDS_NS = tuple(round(bound * NS_PER_S) for bound in GAP_BUCKETS_SECONDS)


class GapHistogram:
    """Lengths of the pauses that have ended."""

    def __init__(self) -> None:
        self._bins: dict[int, int] = {}
        self._bucket_counts = [0] * (len(_BOUNDS_NS) + 1)  # each its own; the last: longer
        self._count = 0
        self._total_ns = 0
        self._longest_ns = self._last_ns = 0
        self._quantiles_ns: tuple[int | None, int | None] = (None, None)
        self._quantiles_due_at = 1
        self._snapshot: GapTotals | None = None

    @property
    def count(self) -> int:
        """Pauses that have ended."""
        return self._count

    def add(self, length_ns: int) -> None:
        """Count one pause that has ended; ``length_ns`` is its idle time."""
        self._count += 1
        self._put(length_ns)

    def lengthen_last(self, by_ns: int) -> None:
        """The pause that was added last was not over: it has ``by_ns`` more of idle time."""
        last_ns = self._last_ns
        self._bins[_bin_of(last_ns)] -= 1
        self._bucket_counts[bisect_left(_BOUNDS_NS, last_ns)] -= 1
        self._total_ns -= last_ns
        self._quantiles_due_at = self._count
        self._put(last_ns + by_ns)

    def snapshot(self) -> GapTotals:
        """The sums and quantiles so far. The same object until a pause is added."""
        if self._snapshot is None:
            if self._count >= self._quantiles_due_at:
                self._quantiles_ns = (self._quantile_ns(0.50), self._quantile_ns(0.95))
                self._quantiles_due_at = self._count + 1 + self._count // _STEADY_COUNT
            self._snapshot = GapTotals(
                self._count,
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
        bin_ = _bin_of(length_ns)
        self._bins[bin_] = self._bins.get(bin_, 0) + 1
        self._bucket_counts[bisect_left(_BOUNDS_NS, length_ns)] += 1
        self._snapshot = None

    def _quantile_ns(self, quantile: float) -> int | None:
        if self._count == 0:
            return None
        wanted = math.ceil(quantile * self._count)
        seen = 0
        for bin_ in sorted(self._bins):
            seen += self._bins[bin_]
            if seen >= wanted:
                return min(_middle_ns(bin_), self._longest_ns)
        return self._longest_ns


def _bin_of(length_ns: int) -> int:
    microseconds = max(length_ns / 1_000, 1.0)
    return min(_LAST_BIN, math.floor(math.log2(microseconds) * _BINS_PER_OCTAVE))


def _middle_ns(bin_: int) -> int:
    return round(2 ** ((bin_ + 0.5) / _BINS_PER_OCTAVE) * 1_000)
