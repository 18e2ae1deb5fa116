"""What gpumon asks of a clock. The system's own is in ``sources.system_clock``."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Tells the time, and waits for it."""

    def monotonic_ns(self) -> int:
        """CLOCK_MONOTONIC, in nanoseconds."""
        ...

    def wall_time_s(self) -> float:
        """Seconds since the epoch; for outlets only."""
        ...

    def sleep_until_ns(self, deadline_ns: int) -> None:
        """Return at or after ``deadline_ns`` of the monotonic clock."""
        ...
