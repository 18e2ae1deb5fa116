"""Watches the driver's rings of samples: how deep, how fast, how late, by which clock."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.sources.nvml.clock import US, Entry, StampClock
from gpumon.sources.nvml.codes import NOT_FOUND, SUCCESS
from gpumon.sources.nvml.drain import SAMPLE_KINDS, SampleRings
from tests.tools.board_capture.board import Board, looks
from tests.tools.board_capture.results import RingWatch, Spread

BETWEEN_LOOKS_S: Final = 0.004
"""A delay cannot be told finer than that."""


def watch_rings(board: Board, seconds: float, load: str) -> list[RingWatch]:
    """What the rings did for so long; those that the board does not keep are left out."""
    stamps = StampClock(board.clock, board.read_clock_ns)
    stamps.tick()
    rings = [_Ring(board, kind, stamps) for kind in range(len(SAMPLE_KINDS))]
    kept = [ring for ring in rings if ring.is_kept]
    for _ in looks(board.clock, seconds, BETWEEN_LOOKS_S):
        stamps.tick()
        for ring in kept:
            ring.look()
    return [ring.told(load) for ring in kept]


class _Ring:
    """One of them, read whole at first, and then what is new in it."""

    def __init__(self, board: Board, kind: int, stamps: StampClock) -> None:
        self._name, self._clock, self._stamps = SAMPLE_KINDS[kind], board.clock, stamps
        self._rings = SampleRings(board.library, [board.handle], kind)
        self._stamps_us: list[int] = []
        self._values: list[float] = []
        self._delays_s: list[float] = []
        self._updates_ns: list[int] = []
        self._batches: list[int] = []
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
        had_looked, self._has_looked = self._has_looked, True
        self._stamps_us += [stamp_us for stamp_us, _ in entries]
        self._values += [value for _, value in entries]
        if not entries or not had_looked:  # what came before may have lain there for long
            return
        self._batches.append(len(entries))
        self._updates_ns.append(now_ns)
        if self._stamps.offset_ns is not None:
            delay_ns = now_ns - (self._newest_us * US - self._stamps.offset_ns)
            self._delays_s.append(delay_ns / NS_PER_S)

    def told(self, load: str) -> RingWatch:
        domain, batches = self._stamps.domain, Spread.of(self._batches)
        return RingWatch(
            name=self._name,
            load=load,
            depth=self._depth,
            arrived=len(self._stamps_us),
            cadence_s=Spread.of(_steps(self._stamps_us, 1_000_000)),
            update_s=Spread.of(_steps(self._updates_ns, NS_PER_S)),
            batch=None if batches is None else batches.median,
            delay_s=Spread.of(self._delays_s),
            values=Spread.of(self._values),
            clock=None if domain is None else domain.value,
            value_type=self._value_type if self._stamps_us else None,
        )


def _steps(stamps: Sequence[int], per_second: int) -> list[float]:
    return [(after - before) / per_second for before, after in pairwise(stamps)]
