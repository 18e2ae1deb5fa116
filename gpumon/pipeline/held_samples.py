"""Samples of one GPU that wait until it is known whose work they are of."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from gpumon.core.sample import BusySample
from gpumon.core.totals import GpuTotals


class HeldSamples:
    """What was heard in some ticks and not settled yet: busy time counts, idle time is pending.

    Attributes:
        until_ns: Where the newest of them ends; -1 where there is none.
    """

    __slots__ = ("_busy_ns", "_observed_ns", "_ticks", "until_ns")

    def __init__(self) -> None:
        self._ticks: deque[tuple[Sequence[BusySample], bool | None]] = deque()
        self._observed_ns = self._busy_ns = 0
        self.until_ns = -1

    def __bool__(self) -> bool:
        return bool(self._ticks)

    @property
    def samples(self) -> Iterator[BusySample]:
        """All of them, oldest first."""
        return (sample for busy, _ in self._ticks for sample in busy)

    def add(self, busy: Sequence[BusySample], present: bool | None, *, after_ns: int) -> None:
        """Take those of a tick.

        Args:
            busy: Oldest first.
            present: Whether processes were on the GPU then; ``None``: nothing told.
            after_ns: Where the newest ended that is settled.
        """
        self._ticks.append((busy, present))
        self._count(busy, max(self.until_ns, after_ns))

    def until(self, open_from_ns: int | None) -> Iterator[tuple[Sequence[BusySample], bool | None]]:
        """Let those ticks go, one by one, that end before an instant; ``None``: all."""
        ticks, settled_ns = self._ticks, -1
        while ticks and not _reaches(ticks[0][0], open_from_ns):
            tick = ticks.popleft()
            yield tick
            settled_ns = max([settled_ns, *(end_ns for _, end_ns, _ in tick[0])])
        self._observed_ns = self._busy_ns = 0
        self.until_ns = -1
        for busy, _ in ticks:
            self._count(busy, max(self.until_ns, settled_ns))

    def beside(self, totals: GpuTotals) -> GpuTotals:
        """What is settled and what is held, together."""
        return totals._replace(
            observed_ns=totals.observed_ns + self._observed_ns,
            busy_ns=totals.busy_ns + self._busy_ns,
            pending_ns=totals.pending_ns + self._observed_ns - self._busy_ns,
        )

    def _count(self, busy: Sequence[BusySample], until_ns: int) -> None:
        """Add up what a ledger would take: no nonsense, and no time twice."""
        for start_ns, end_ns, busy_ratio in busy:
            if start_ns >= until_ns and end_ns > start_ns and 0.0 <= busy_ratio <= 1.0:
                length_ns = end_ns - start_ns
                self._observed_ns += length_ns
                self._busy_ns += round(length_ns * busy_ratio)
                until_ns = end_ns
        self.until_ns = max(self.until_ns, until_ns)


def _reaches(busy: Sequence[BusySample], open_from_ns: int | None) -> bool:
    return open_from_ns is not None and any(end_ns > open_from_ns for _, end_ns, _ in busy)
