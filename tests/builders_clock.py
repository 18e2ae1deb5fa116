"""A clock that a test moves by hand."""

from __future__ import annotations

from gpumon.core.clock import NS_PER_S


class HandClock:
    """Stands still until the test says otherwise; sleeping moves it."""

    def __init__(self, at_s: float = 1000.0) -> None:
        self.now_ns = round(at_s * NS_PER_S)

    def monotonic_ns(self) -> int:
        return self.now_ns

    def wall_time_s(self) -> float:
        return 1_700_000_000.0 + self.now_ns / NS_PER_S

    def sleep_until_ns(self, deadline_ns: int) -> None:
        self.now_ns = max(self.now_ns, deadline_ns)

    def pass_seconds(self, seconds: float) -> None:
        """Let time pass."""
        self.now_ns += round(seconds * NS_PER_S)
