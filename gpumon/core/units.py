"""Conversions between the units gpumon keeps and the units people read."""

from __future__ import annotations

NS_PER_S = 1_000_000_000


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
