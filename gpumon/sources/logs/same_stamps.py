"""Rows that share a stamp because it counts whole seconds: when they came within that second."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from gpumon.core.units import NS_PER_S
from gpumon.sources.logs.log_sample import LogSample

_MOST_HELD: Final = 4_096
"""Rows with one stamp from which on the clock stands still: they are handed on as they are."""


def spread_same_stamps(
    samples: Iterable[LogSample], resolution_ns: int = NS_PER_S
) -> Iterator[LogSample]:
    """Samples in file order; those of one GPU with one stamp are spread over what it counts.

    A clock of whole seconds says 14, 14, 16 of rows that came at 14.0, 14.9 and 16.0. The second
    of the two did come before 15.

    Args:
        samples: Of any number of GPUs. Rows with one stamp are held until another comes.
        resolution_ns: What the stamps count.

    >>> [one.stamp_ns for one in spread_same_stamps([LogSample(0, 10, 1.0)] * 2, 10)]
    [10, 15]
    """
    held: list[LogSample] = []
    stamp_ns: int | None = None
    for sample in samples:
        if sample.stamp_ns != stamp_ns:
            yield from _spread(held, resolution_ns)
            held.clear()
            stamp_ns = sample.stamp_ns
        held.append(sample)
        if len(held) > _MOST_HELD:
            yield from held
            held.clear()
    yield from _spread(held, resolution_ns)


def _spread(held: list[LogSample], resolution_ns: int) -> Iterable[LogSample]:
    if len(held) < 2:
        return held
    counts: dict[int, int] = {}
    for sample in held:
        counts[sample.gpu] = counts.get(sample.gpu, 0) + 1
    return held if len(counts) == len(held) else _apart(held, counts, resolution_ns)


def _apart(
    held: list[LogSample], counts: dict[int, int], resolution_ns: int
) -> Iterator[LogSample]:
    seen = dict.fromkeys(counts, 0)
    for sample in held:
        gpu = sample.gpu
        later_ns = seen[gpu] * resolution_ns // counts[gpu]
        seen[gpu] += 1
        yield sample._replace(stamp_ns=sample.stamp_ns + later_ns)
