"""Samples of one GPU as columns, in stretches that can be settled in one step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import mul, sub
from typing import Final

from gpumon.core.sample import BusySample
from gpumon.core.settings.detector import DetectorSettings

_MEMO_LIMIT: Final = 4_096


ACTIVE: Final = 1
"""Bit of a level: the ratio is above ``active_above``."""
BURST: Final = 2
"""... above ``burst_above``."""
_LOW: Final = 4
"""... below ``low_below``."""
_HIGH: Final = 8
"""... above ``high_above``."""


class Levels(dict[float, int]):
    """Which thresholds each busy ratio passes, as bits; cached, as most logs hold few ratios."""

    def __init__(self, settings: DetectorSettings) -> None:
        super().__init__()
        self._settings = settings

    def __missing__(self, busy_ratio: float) -> int:
        settings = self._settings
        level = ACTIVE * (busy_ratio > settings.active_above)
        level |= BURST * (busy_ratio > settings.burst_above)
        level |= _LOW * (busy_ratio < settings.low_below)
        level |= _HIGH * (busy_ratio > settings.high_above)
        if len(self) < _MEMO_LIMIT:
            self[busy_ratio] = level
        return level


class SampleColumns:
    """Samples of one GPU, oldest first, disjoint, none of them empty.

    Attributes:
        busy_ratios: Busy ratio of each, 0 to 1.
        levels: Level of each, as in ``Levels``.
        stretches: Begin and end, as positions, of each sequence without a gap in which all
            samples have the same level.
    """

    def __init__(
        self,
        starts_ns: Sequence[int],
        ends_ns: Sequence[int],
        busy_ratios: Sequence[float],
        levels: Levels,
    ) -> None:
        self.starts_ns, self.ends_ns, self.busy_ratios = starts_ns, ends_ns, busy_ratios
        lengths_ns = map(sub, ends_ns, starts_ns)
        self.busy_ns: list[int] = list(map(round, map(mul, lengths_ns, busy_ratios)))
        self._sums_ns = list(accumulate(self.busy_ns, initial=0))
        self.levels = list(map(levels.__getitem__, busy_ratios))
        self.stretches = self._cut_into_stretches()

    @classmethod
    def of(
        cls, samples: Sequence[BusySample], levels: Levels, after_ns: int
    ) -> tuple[SampleColumns, int]:
        """Samples as columns, and how many were left out as overlapping, empty or invalid.

        Args:
            samples: Samples of a source, oldest first.
            levels: Levels of their ratios.
            after_ns: End of the samples before them.
        """
        accepted = samples
        if not _are_disjoint(samples, after_ns):
            accepted = list(_disjoint(samples, after_ns))
        if not accepted:
            return cls((), (), (), levels), len(samples)
        starts_ns, ends_ns, busy_ratios = zip(*accepted, strict=True)
        return cls(starts_ns, ends_ns, busy_ratios, levels), len(samples) - len(accepted)

    def part(self, begin: int, end: int, levels: Levels) -> SampleColumns:
        if (begin, end) == (0, len(self)):
            return self
        cut = slice(begin, end)
        return SampleColumns(self.starts_ns[cut], self.ends_ns[cut], self.busy_ratios[cut], levels)

    def __len__(self) -> int:
        return len(self.ends_ns)

    def busy_between(self, begin: int, end: int) -> int:
        """Busy time of the samples from position ``begin`` up to ``end``, exclusive."""
        return self._sums_ns[end] - self._sums_ns[begin]

    def sample(self, at: int) -> BusySample:
        return BusySample(self.starts_ns[at], self.ends_ns[at], self.busy_ratios[at])

    def _cut_into_stretches(self) -> list[tuple[int, int]]:
        count, levels = len(self.ends_ns), self.levels
        if not count:
            return []
        cuts = [
            at
            for at, level, before, start_ns, end_ns in zip(
                range(1, count), levels[1:], levels, self.starts_ns[1:], self.ends_ns, strict=False
            )
            if level != before or start_ns != end_ns
        ]
        return list(zip([0, *cuts], [*cuts, count], strict=True))


def _are_disjoint(samples: Sequence[BusySample], after_ns: int) -> bool:
    """Whether all samples are valid: a fast check."""
    if not samples:
        return True
    starts_ns, ends_ns, ratios = zip(*samples, strict=True)
    return (
        after_ns <= starts_ns[0]
        and all(map(int.__lt__, starts_ns, ends_ns))
        and all(map(int.__le__, ends_ns, starts_ns[1:]))
        and all(0.0 <= ratio <= 1.0 for ratio in ratios)
    )


def _disjoint(samples: Iterable[BusySample], after_ns: int) -> Iterable[BusySample]:
    for sample in samples:
        if sample.may_follow(after_ns):
            after_ns = sample.end_ns
            yield sample
