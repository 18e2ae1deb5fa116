"""Watches the driver's rings of samples: how deep, how fast, how late, by which clock."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from gpumon.sources.nvml.codes import NOT_FOUND, SUCCESS
from gpumon.sources.nvml.sample_rings import SAMPLE_KINDS, SampleRings
from gpumon.sources.nvml.stamp_clock import US, Entry, StampClock
from tests.tools.board_capture.board import Board, looks
from tests.tools.board_capture.results import Row, Spread

BETWEEN_LOOKS_S: Final = 0.004
"""A delay cannot be reported finer than that."""


def watch_rings(board: Board, seconds: float, load: str) -> list[Row]:
    """What the rings did for so long; those that the board does not keep are left out."""
    stamps = StampClock(board.clock, board.read_clock_ns)
    stamps.tick()
    rings = [_Ring(board, kind, stamps) for kind in range(len(SAMPLE_KINDS))]
    kept = [ring for ring in rings if ring.is_kept]
    for _ in looks(board.clock, seconds, BETWEEN_LOOKS_S):
        stamps.tick()
        for ring in kept:
            ring.look()
    return [ring.row(load) for ring in kept]


class _Ring:
    """One of them, read whole at first, and then what is new in it."""

    def __init__(self, board: Board, kind: int, stamps: StampClock) -> None:
        self._name, self._clock, self._stamps = SAMPLE_KINDS[kind], board.clock, stamps
        self._rings = SampleRings(board.library, [board.handle], kind)
        self._came: list[Entry] = []
        self._delays_ms: list[float] = []
        self._newest_us, self._has_looked, self._value_type = 0, False, ""
        self._depth = len(self._drained()[0])
        self.is_kept = self._rings.codes[0] in (SUCCESS, NOT_FOUND)

    def _drained(self) -> tuple[Sequence[Entry], int]:
        """What is new, and when it was there."""
        (entries,) = self._rings.drain([self._newest_us])
        now_ns = self._clock.monotonic_ns()
        if entries:
            self._newest_us, self._value_type = entries[-1][0], self._rings.value_types[0]
            self._stamps.learn([self._newest_us], now_ns)
        return entries, now_ns

    def look(self) -> None:
        """Note what has come since."""
        entries, now_ns = self._drained()
        self._came += entries
        # What the first look finds may have lain there for long.
        if entries and self._has_looked and self._stamps.offset_ns is not None:
            delay_ns = now_ns - (self._newest_us * US - self._stamps.offset_ns)
            self._delays_ms.append(delay_ns / 1e6)
        self._has_looked = True

    def row(self, load: str) -> Row:
        domain = self._stamps.domain
        values = [value for _, value in self._came]
        apart_ms = [(after - before) / 1000 for (before, _), (after, _) in pairwise(self._came)]
        return {
            "samples": self._name,
            "load": load,
            "depth": self._depth,
            "came": len(self._came),
            "apart, ms": Spread.of(apart_ms),
            "delay, ms": Spread.of(self._delays_ms),
            "values": f"{min(values):g} to {max(values):g}" if values else None,
            "type": self._value_type if values else None,
            "clock": None if domain is None else domain.value,
        }
