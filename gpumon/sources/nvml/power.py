"""One GPU's power draw: the mean of the driver's samples, or the driver's own mean."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.codes import NO_ERROR, PERMANENT
from gpumon.sources.nvml.fields.calls import NumberCall
from gpumon.sources.nvml.fields.table import (
    MOST_MILLIWATTS,
    POWER_USAGE,
    AnswerLayout,
    NvmlCall,
)
from gpumon.sources.nvml.stamp_clock import Entry

_SILENT_NS: Final = 3 * NS_PER_S
"""Boards were seen to leave up to a second between two samples while idle."""

_RETRY_NS: Final = 10 * NS_PER_S
_CAPABILITY: Final = NvmlCall("nvmlDeviceGetCudaComputeCapability", answer=AnswerLayout.TWO_NUMBERS)
_GA100: Final = (8, 0)


def has_mean_power(library: NvmlLibrary, handle: int) -> bool:
    """Whether ``nvmlDeviceGetPowerUsage`` returns a mean: on Ampere and later, not on a GA100."""
    capability = NumberCall(library, handle, _CAPABILITY).numbers()
    return capability is not None and capability > _GA100


class PowerTrack:
    """One GPU's mean power draw since the last drain.

    The driver keeps power samples in a ring, as it keeps those of utilisation: some 20 ms apart at
    work and up to a second while idle. Each covers the time since the previous one, so a burst
    between two drains counts for its complete duration. Without new entries for a while, or without
    a ring, ``nvmlDeviceGetPowerUsage`` is called instead. So it is where that call returns the
    mean of the last second: it takes a thousandth of the time.

    Attributes:
        has_ring: Whether its ring is drained.
        mean_ns: The time that its power is a mean of; ``None``: that since the drain before.
        position_us: The newest stamp seen: newer entries are drained; 0: all entries.
    """

    def __init__(self, library: NvmlLibrary, handle: int, refuse: Callable[[], None]) -> None:
        """Start without a sample; ``refuse`` counts an invalid value."""
        self.mean_ns = NS_PER_S if has_mean_power(library, handle) else None
        self._drains_ring = self.mean_ns is None
        self.has_ring = self._drains_ring
        self.position_us = 0
        self._count_refused = refuse
        self._since_us = self._seen_us = 0
        self._drawn = 0.0
        self._milliwatts: float | None = None
        self._news_at_ns = self._retry_at_ns = -_RETRY_NS
        self._current = NumberCall(library, handle, POWER_USAGE)

    @property
    def code(self) -> int:
        return self._current.code

    @property
    def fails(self) -> bool:
        return self.code not in NO_ERROR and self.code not in PERMANENT

    def try_again(self) -> None:
        """Make all calls again: one that was not permitted may be by now."""
        self.has_ring, self._current.supported = self._drains_ring, True

    @property
    def reads_all(self) -> bool:
        """Whether none of its calls was left out because the driver refused it."""
        return self.has_ring is self._drains_ring

    def forget_position(self) -> None:
        """Drain the complete ring next: the clock of the stamps was set."""
        self.position_us = 0

    def begin_tick(self) -> None:
        """Start a new mean: entries until now belong to the drain before."""
        self._since_us, self._drawn = self.position_us, 0.0

    def ingest(self, entries: Iterable[Entry], now_ns: int) -> float | None:
        """Return the mean draw since ``begin_tick``, in milliwatts; ``None``: no answer.

        ``entries`` are new in the ring, which a tick may drain twice: milliwatts, oldest first.
        """
        from_us = last_us = self.position_us
        drawn, is_ordered, is_possible = 0.0, True, True
        for stamp_us, milliwatts in entries:
            if stamp_us <= last_us:
                is_ordered = False
            if not 0 <= milliwatts <= MOST_MILLIWATTS:  # also false for NaN
                is_possible = False
            drawn += milliwatts * (stamp_us - last_us)
            last_us = stamp_us
        if last_us == from_us:
            return self._without_news(now_ns)
        self.position_us = last_us
        # The entries give no mean since the last drain after a long pause, because they may be
        # older, and with decreasing stamps, because the clock was set between them.
        since_us, is_silent = self._since_us, now_ns - self._news_at_ns > _SILENT_NS
        if not (since_us and from_us and is_ordered) or is_silent:
            self._since_us = 0  # nor can later entries of this tick give its mean
            if last_us != self._seen_us:
                self._seen_us, self._news_at_ns = last_us, now_ns
            return self.read_now()
        self._news_at_ns, self._seen_us = now_ns, last_us
        if is_possible:
            self._drawn += drawn
            self._milliwatts = self._drawn / (last_us - since_us)
        else:
            self._refuse()
            self._since_us = 0
        return self._milliwatts

    def _without_news(self, now_ns: int) -> float | None:
        if now_ns - self._news_at_ns <= _SILENT_NS:
            return self._milliwatts
        if now_ns >= self._retry_at_ns:
            # After a reset the stamps may have restarted: then none is ever newer.
            self._retry_at_ns = now_ns + _RETRY_NS
            self.position_us = 0
        return self.read_now()

    def read_now(self) -> float | None:
        """Return the current draw in milliwatts; ``None``: no answer."""
        milliwatts = self._milliwatts = self._current.read()
        if milliwatts is not None and milliwatts > MOST_MILLIWATTS:
            self._refuse()
        return self._milliwatts

    def _refuse(self) -> None:
        self._count_refused()
        self._milliwatts = None
