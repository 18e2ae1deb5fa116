"""What a driver would say of a GPU whose true busy spans are known."""

from __future__ import annotations

from collections.abc import Iterable

from gpumon.core.sample import BusySample

WINDOW_NS = 166_666_667
"""Length of a sample: the finest that NVML documents, 1/6 s."""


def windows_between(from_ns: int, until_ns: int) -> Iterable[tuple[int, int]]:
    """Whole windows, counted from ``from_ns``, that have ended by ``until_ns``."""
    return zip(
        range(from_ns, until_ns - WINDOW_NS + 1, WINDOW_NS),
        range(from_ns + WINDOW_NS, until_ns + 1, WINDOW_NS),
        strict=False,
    )


def sample_of(start_ns: int, end_ns: int, busy_ns: int) -> BusySample:
    """One sample, in whole percent as NVML gives it."""
    percent = round(100 * min(busy_ns, end_ns - start_ns) / (end_ns - start_ns))
    return BusySample(start_ns, end_ns, percent / 100)
