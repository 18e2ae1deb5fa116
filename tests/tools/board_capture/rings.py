"""Watches the driver's rings of samples: how deep, how fast, how late, by which clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from gpumon.core.clock import Clock
from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.clock import US, StampClock
from gpumon.sources.nvml.codes import NOT_FOUND, SUCCESS
from gpumon.sources.nvml.probe.rings import (
    SAMPLE_KINDS,
    RingDrain,
    RingTap,
    value_type_name,
)
from tests.tools.board_capture.results import RingWatch, Spread

BETWEEN_LOOKS_S: Final = 0.004
"""A delay cannot be told finer than that."""
_KEPT: Final = frozenset({SUCCESS, NOT_FOUND})
_NS_PER_S: Final = 1_000_000_000


@dataclass
class _Watched:
    name: str
    tap: RingTap
    depth: int
    value_type: int
    position_us: int
    looked_ns: int = 0
    stamps_us: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    delays_s: list[float] = field(default_factory=list)
    updates_ns: list[int] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)


class RingWatcher:
    """Looks at every ring of one GPU again and again."""

    def __init__(
        self,
        library: NvmlLibrary,
        handle: int,
        clock: Clock,
        read_clock_ns: Callable[[int], int] = time.clock_gettime_ns,
    ) -> None:
        self._clock = clock
        self._stamps = StampClock(clock, read_clock_ns)
        self._taps = [RingTap(library, handle, kind) for kind in range(len(SAMPLE_KINDS))]

    def watch(self, seconds: float, load: str) -> list[RingWatch]:
        """What the rings did for so long; those that the board does not keep are left out."""
        rings = self._opened()
        until_ns = self._clock.monotonic_ns() + round(seconds * _NS_PER_S)
        while (now_ns := self._clock.monotonic_ns()) < until_ns:
            self._stamps.tick()
            for ring in rings:
                self._look(ring)
            self._clock.sleep_until_ns(now_ns + round(BETWEEN_LOOKS_S * _NS_PER_S))
        return [self._told(ring, load) for ring in rings]

    def _opened(self) -> list[_Watched]:
        rings = []
        self._stamps.tick()
        for name, tap in zip(SAMPLE_KINDS, self._taps, strict=True):
            drained = tap.drain()
            if drained.code in _KEPT:
                self._learn(drained)
                newest_us = drained.entries[-1].stamp_us if drained.entries else 0
                count = len(drained.entries)
                rings.append(_Watched(name, tap, count, drained.value_type, newest_us))
        return rings

    def _learn(self, drained: RingDrain) -> None:
        if drained.entries:
            self._stamps.learn([drained.entries[-1].stamp_us], self._clock.monotonic_ns())

    def _look(self, ring: _Watched) -> None:
        drained = ring.tap.drain(ring.position_us)
        now_ns = self._clock.monotonic_ns()
        looked_ns, ring.looked_ns = ring.looked_ns, now_ns
        if not drained.entries:
            return
        self._learn(drained)
        newest_us = drained.entries[-1].stamp_us
        ring.position_us = newest_us
        ring.stamps_us += [entry.stamp_us for entry in drained.entries]
        ring.values += [entry.value for entry in drained.entries]
        ring.value_type = drained.value_type
        if not looked_ns:
            return  # it may have lain there for long
        ring.batches.append(len(drained.entries))
        ring.updates_ns.append(now_ns)
        if self._stamps.offset_ns is not None:
            delay_ns = now_ns - (newest_us * US - self._stamps.offset_ns)
            ring.delays_s.append(delay_ns / _NS_PER_S)

    def _told(self, ring: _Watched, load: str) -> RingWatch:
        domain = self._stamps.domain
        batches = Spread.of(ring.batches)
        return RingWatch(
            name=ring.name,
            load=load,
            depth=ring.depth,
            arrived=len(ring.stamps_us),
            cadence_s=Spread.of(_steps(ring.stamps_us, 1_000_000)),
            update_s=Spread.of(_steps(ring.updates_ns, _NS_PER_S)),
            batch=None if batches is None else batches.median,
            delay_s=Spread.of(ring.delays_s),
            values=Spread.of(ring.values),
            clock=None if domain is None else domain.value,
            value_type=value_type_name(ring.value_type) if ring.stamps_us else None,
        )


def _steps(stamps: Sequence[int], per_second: int) -> list[float]:
    return [(after - before) / per_second for before, after in pairwise(stamps)]
