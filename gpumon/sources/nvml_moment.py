"""What the GPUs of one tick have in common. Pure logic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from gpumon.core.sample import BusySample
from gpumon.sources.nvml_busy import BusyTrack
from gpumon.sources.nvml_clock import Entry, StampClock

EntriesOf = Callable[[], Iterable[Entry]]
"""Gives what is new in a GPU's ring, oldest first."""


class Moment(NamedTuple):
    """When a tick's rings were drained, and how their stamps are to be read.

    Attributes:
        stamps: Where the driver's stamps lie on the monotonic clock.
        steady_since_ns: Since when the source was read without a stop.
        now_ns: CLOCK_MONOTONIC just after the rings were drained.
    """

    stamps: StampClock
    steady_since_ns: int
    now_ns: int

    def take(self, track: BusyTrack, entries: Iterable[Entry]) -> Sequence[BusySample]:
        """What new entries of a GPU's ring say, as far as their stamps can be placed in time."""
        stamps = self.stamps
        if stamps.offset_ns is None:
            track.start(entries, None, self.now_ns)
            return ()
        if stamps.was_set:
            entries = stamps.straightened(entries, self.now_ns)
        return track.take_with_care(entries, stamps.offset_ns, self.now_ns)
