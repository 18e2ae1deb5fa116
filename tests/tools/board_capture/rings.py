"""Watches the driver's rings of samples: how deep, how fast, how late, by which clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from gpumon.core.clock import Clock
from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.clock import US, Entry, StampClock
from gpumon.sources.nvml.codes import NOT_FOUND, SUCCESS
from gpumon.sources.nvml.drain import SAMPLE_KINDS, SampleRings
from tests.tools.board_capture.results import RingWatch, Spread

BETWEEN_LOOKS_S: Final = 0.004
"""A delay cannot be told finer than that."""
_KEPT: Final = frozenset({SUCCESS, NOT_FOUND})
_NS_PER_S: Final = 1_000_000_000


@dataclass
class _Watched:
    name: str
    ring: SampleRings
    depth: int
    value_type: str
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
        self._rings = [SampleRings(library, [handle], kind) for kind in range(len(SAMPLE_KINDS))]

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
        for name, ring in zip(SAMPLE_KINDS, self._rings, strict=True):
            (entries,) = ring.drain([0])
            if ring.codes[0] in _KEPT:
                self._learn(entries)
                newest_us = entries[-1][0] if entries else 0
                rings.append(_Watched(name, ring, len(entries), ring.value_types[0], newest_us))
        return rings

    def _learn(self, entries: Sequence[Entry]) -> None:
        if entries:
            self._stamps.learn([entries[-1][0]], self._clock.monotonic_ns())

    def _look(self, ring: _Watched) -> None:
        (entries,) = ring.ring.drain([ring.position_us])
        now_ns = self._clock.monotonic_ns()
        looked_ns, ring.looked_ns = ring.looked_ns, now_ns
        if not entries:
            return
        self._learn(entries)
        newest_us = entries[-1][0]
        ring.position_us = newest_us
        ring.stamps_us += [stamp_us for stamp_us, _ in entries]
        ring.values += [value for _, value in entries]
        ring.value_type = ring.ring.value_types[0]
        if not looked_ns:
            return  # it may have lain there for long
        ring.batches.append(len(entries))
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
            value_type=ring.value_type if ring.stamps_us else None,
        )


def _steps(stamps: Sequence[int], per_second: int) -> list[float]:
    return [(after - before) / per_second for before, after in pairwise(stamps)]
