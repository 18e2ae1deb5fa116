"""Samples and clocks in a test's own time."""

from __future__ import annotations

from collections.abc import Iterable

from gpumon.core.accounting.ledger import GpuLedger
from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.clock import NS_PER_S
from gpumon.core.sample import BusySample


def s(seconds: float) -> int:
    """Seconds as nanoseconds."""
    return round(seconds * NS_PER_S)


def every(period_s: float, ratios: Iterable[float], start_s: float = 0.0) -> list[BusySample]:
    """Consecutive samples, each ``period_s`` long."""
    length_ns = s(period_s)
    return [
        BusySample(s(start_s) + k * length_ns, s(start_s) + (k + 1) * length_ns, ratio)
        for k, ratio in enumerate(ratios)
    ]


def rhythm(busy: int, idle: int, times: int, level: float = 1.0) -> list[float]:
    """``busy`` busy samples and ``idle`` idle ones, repeated."""
    return ([level] * busy + [0.0] * idle) * times


def settled(samples: Iterable[BusySample]) -> GpuTotals:
    """Totals of a finished log."""
    ledger = GpuLedger()
    ledger.observe(list(samples))
    ledger.end_job()
    return ledger.snapshot()


class HandClock:
    """A clock that only moves by sleeping or by the test."""

    def __init__(self, at_s: float = 1000.0) -> None:
        self.now_ns = round(at_s * NS_PER_S)

    def monotonic_ns(self) -> int:
        return self.now_ns

    def wall_time_s(self) -> float:
        return 1_700_000_000.0 + self.now_ns / NS_PER_S

    def sleep_until_ns(self, deadline_ns: int) -> None:
        self.now_ns = max(self.now_ns, deadline_ns)

    def pass_seconds(self, seconds: float) -> None:
        self.now_ns += round(seconds * NS_PER_S)
