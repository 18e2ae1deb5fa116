"""The clock interface and units of time. The system clock is in ``sources.system_clock``."""

from __future__ import annotations

from typing import Final, Protocol


class Clock(Protocol):
    """Reads the time and waits for it."""

    def monotonic_ns(self) -> int:
        """CLOCK_MONOTONIC, in nanoseconds."""
        ...

    def wall_time_s(self) -> float:
        """Seconds since the epoch, only for display."""
        ...

    def sleep_until_ns(self, deadline_ns: int) -> None:
        """Return at or after ``deadline_ns`` of the monotonic clock."""
        ...


NS_PER_S = 1_000_000_000
LONGEST_LOOK_BACK_S: Final = 3_650 * 86_400.0
"""Ten years: a longer time is a typing error, and its nanoseconds would still fit."""


def seconds(duration_ns: int) -> float:
    """Nanoseconds as seconds, unrounded.

    >>> seconds(1_500_000_000)
    1.5
    """
    return duration_ns / NS_PER_S


def nanoseconds(duration_s: float) -> int:
    """Seconds as the nearest whole nanoseconds.

    >>> nanoseconds(0.25)
    250000000
    """
    return round(duration_s * NS_PER_S)
