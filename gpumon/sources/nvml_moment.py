"""What the GPUs of one tick have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

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
