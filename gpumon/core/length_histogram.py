"""The median of any number of lengths of time, in a structure that stays small."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

WARM_UP_STEPS: Final = 3
"""Steps at the beginning that tell nothing of the rest: they trace, compile and fill caches."""
_BITS: Final = 6
_PER_OCTAVE: Final = 1 << _BITS


class LengthHistogram:
    """Counts lengths in buckets, sixty-four an octave: a median is exact to 0.8 %.

    Attributes:
        count: How many lengths were added, each as often as it stands for.

    >>> lengths = LengthHistogram()
    >>> lengths.add([1_000_000] * 97)
    >>> lengths.add([9_000_000], each=3)
    >>> lengths.count, round(lengths.median_ns / 1e6, 1)
    (100, 1.0)
    """

    __slots__ = ("_counts", "count")

    def __init__(self) -> None:
        self._counts: defaultdict[int, int] = defaultdict(int)
        self.count = 0

    def add(self, lengths_ns: Iterable[int], each: int = 1) -> None:
        """Add lengths, positive whole nanoseconds; each stands for so many."""
        counts, added = self._counts, 0
        for length_ns in lengths_ns:
            octave = length_ns.bit_length()  # and the six bits that follow the first
            counts[octave << _BITS | length_ns << _BITS + 1 >> octave & _PER_OCTAVE - 1] += each
            added += each
        self.count += added

    @property
    def median_ns(self) -> float | None:
        """The median, in nanoseconds; ``None`` where there is no length."""
        left = self.count / 2
        for bucket in sorted(self._counts):
            left -= self._counts[bucket]
            if left <= 0:
                octave, part = divmod(bucket, _PER_OCTAVE)
                return float(2.0 ** (octave - 1) * (1 + (part + 0.5) / _PER_OCTAVE))
        return None
