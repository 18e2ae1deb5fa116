"""Time: what gpumon asks of a clock, and the units it keeps beside those that people read.

The system's own clock is in ``sources.system_clock``.
"""

from __future__ import annotations

from typing import Final, Protocol


class Clock(Protocol):
    """Tells the time, and waits for it."""

    def monotonic_ns(self) -> int:
        """CLOCK_MONOTONIC, in nanoseconds."""
        ...

    def wall_time_s(self) -> float:
        """Seconds since the epoch, for people: no time of a GPU is measured by it."""
        ...

    def sleep_until_ns(self, deadline_ns: int) -> None:
        """Return at or after ``deadline_ns`` of the monotonic clock."""
        ...


NS_PER_S = 1_000_000_000
LONGEST_LOOK_BACK_S: Final = 3_650 * 86_400.0
"""Ten years: whoever asks for more has mistyped, and nanoseconds of it still fit."""


def seconds(duration_ns: int) -> float:
    """Nanoseconds as seconds, not rounded.

    >>> seconds(1_500_000_000)
    1.5
    """
    return duration_ns / NS_PER_S


def nanoseconds(duration_s: float) -> int:
    """Seconds as whole nanoseconds, to the nearest.

    >>> nanoseconds(0.25)
    250000000
    """
    return round(duration_s * NS_PER_S)
