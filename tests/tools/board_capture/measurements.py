"""What a capture measures besides the waves: rings, activity, stalls, as rows of the page."""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple

from gpumon.cli.doctor.driver_answers import DriverAnswers, GpuAnswers
from gpumon.core.clock import Clock, nanoseconds
from gpumon.core.sample import ActivitySample
from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.codes import NOT_FOUND, SUCCESS
from gpumon.sources.nvml.fields.gpm import Gpm
from gpumon.sources.nvml.sample_rings import SAMPLE_KINDS, SampleRings
from gpumon.sources.nvml.source import NvmlSource
from gpumon.sources.nvml.stamp_clock import US, Entry, StampClock
from tests.tools.board_capture.load import Load

Row = dict[str, Any]
"""Cells of a table by their column; ``None``: no answer."""


class Spread(NamedTuple):
    """The median and the 5th and 95th percentile."""

    median: float
    p05: float
    p95: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        if not values:
            return None
        order, last = sorted(values), len(values) - 1
        return cls(statistics.median(order), order[round(0.05 * last)], order[round(0.95 * last)])

    def __str__(self) -> str:
        return f"{self.median:.4g} ({self.p05:.4g} to {self.p95:.4g})"


def mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of the known values; ``None``: none is known."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


@dataclass(slots=True, kw_only=True)
class Results:
    """All measurements so far; ``missing`` has the parts that failed, with the reason."""

    driver: DriverAnswers
    gpu: GpuAnswers
    command: str
    date: str
    python: str
    load: str | None = None
    rings: list[Row] = field(default_factory=list)
    costs: dict[str, GpuAnswers] = field(default_factory=dict)
    waves: list[Row] = field(default_factory=list)
    activity: list[Row] = field(default_factory=list)
    stalls: list[Row] = field(default_factory=list)
    recording: str | None = None
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def board(self) -> str:
        return self.gpu.name or "a GPU without a name"


@dataclass(frozen=True)
class Board:
    """One GPU with its handle; ``read_clock_ns`` reads a clock by its id."""

    library: NvmlLibrary
    handle: int
    clock: Clock
    read_clock_ns: Callable[[int], int] = time.clock_gettime_ns


def ticks(clock: Clock, seconds: float, every_s: float) -> Iterator[None]:
    """Yield every ``every_s`` until ``seconds`` have passed."""
    until_ns = clock.monotonic_ns() + nanoseconds(seconds)
    while (now_ns := clock.monotonic_ns()) < until_ns:
        yield
        clock.sleep_until_ns(now_ns + nanoseconds(every_s))


BETWEEN_LOOKS_S: Final = 0.004
"""The resolution of the delays."""


def watch_rings(board: Board, seconds: float, load: str) -> list[Row]:
    """Watch the rings that the board keeps."""
    stamps = StampClock(board.clock, board.read_clock_ns)
    stamps.tick()
    rings = [_Ring(board, kind, stamps) for kind in range(len(SAMPLE_KINDS))]
    kept = [ring for ring in rings if ring.is_kept]
    for _ in ticks(board.clock, seconds, BETWEEN_LOOKS_S):
        stamps.tick()
        for ring in kept:
            ring.read()
    return [ring.row(load) for ring in kept]


class _Ring:
    """One ring: read completely first, then only its new entries."""

    def __init__(self, board: Board, kind: int, stamps: StampClock) -> None:
        self._name, self._clock, self._stamps = SAMPLE_KINDS[kind], board.clock, stamps
        self._rings = SampleRings(board.library, [board.handle], kind)
        self._came: list[Entry] = []
        self._delays_ms: list[float] = []
        self._newest_us, self._was_read, self._value_type = 0, False, ""
        self._depth = len(self._drained()[0])
        self.is_kept = self._rings.codes[0] in (SUCCESS, NOT_FOUND)

    def _drained(self) -> tuple[Sequence[Entry], int]:
        """Return the new entries, and when they were read."""
        entries = self._rings.drain({0: self._newest_us})[0]
        now_ns = self._clock.monotonic_ns()
        if entries:
            self._newest_us, self._value_type = entries[-1][0], self._rings.value_types[0]
            self._stamps.learn([self._newest_us], now_ns)
        return entries, now_ns

    def read(self) -> None:
        entries, now_ns = self._drained()
        self._came += entries
        # Entries of the first reading may be old.
        if entries and self._was_read and self._stamps.offset_ns is not None:
            delay_ns = now_ns - (self._newest_us * US - self._stamps.offset_ns)
            self._delays_ms.append(delay_ns / 1e6)
        self._was_read = True

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


_EVERY_S: Final = 0.5


def watch_activity(board: Board, seconds: float, load: str) -> Row:
    """Means of GPM, utilisation and power, read at the same time."""
    found: list[ActivitySample] = []
    rates: list[float] = []
    watts: list[float] = []
    with closing(Gpm(board.library, board.clock.monotonic_ns)) as gpm:
        track = gpm.track(board.handle)
        for _ in ticks(board.clock, seconds, _EVERY_S):
            activity = track.read()
            found += [activity] if activity is not None else []
            rates += _asked(board, "nvmlDeviceGetUtilizationRates")
            watts += [one / 1000 for one in _asked(board, "nvmlDeviceGetPowerUsage")]
    limit = [one / 1000 for one in _asked(board, "nvmlDeviceGetEnforcedPowerLimit")]
    return {
        "load": load,
        "utilisation, %": mean(rates),
        "SM active, %": _percent([one.sm_active_ratio for one in found]),
        "occupancy, %": _percent([one.sm_occupancy_ratio for one in found]),
        "tensor, %": _percent([one.tensor_active_ratio for one in found]),
        "DRAM, %": _percent([one.memory_bandwidth_ratio for one in found]),
        "power, W": mean(watts),
        "limit, W": mean(limit),
    }


def _percent(ratios: Sequence[float | None]) -> float | None:
    return mean([None if ratio is None else 100 * ratio for ratio in ratios])


def _asked(board: Board, function: str) -> list[int]:
    """Return the first number of the driver's answer; nothing if it refuses."""
    room = (ctypes.c_uint * 2)()
    call = board.library.function(function)
    return [room[0]] if call(ctypes.c_void_p(board.handle), room) == SUCCESS else []


RATES_HZ: Final = (0.0, 0.0, 1.0, 10.0)
"""Twice without a sampler: the difference of those two is the machine's noise."""
ROUNDS: Final = 9


def watch_stalls(
    clock: Clock,
    load: Load,
    seconds: float,
    read_clock_ns: Callable[[int], int] = time.clock_gettime_ns,
) -> list[Row]:
    """Return a row for each rate at which ``NvmlSource`` is read, with its default fields.

    The rates take turns, and a turn is compared with the first of its round, so that a drift of the
    machine, which may be larger than the effect, affects both.
    """

    def turn(rate_hz: float) -> dict[str, float]:
        sampler: AbstractContextManager[NvmlSource | None] = nullcontext()
        if rate_hz:
            sampler = closing(NvmlSource(clock, read_clock_ns=read_clock_ns))
        with sampler as source:
            load.begin({"do": "steps", "seconds": seconds})
            spent_s = 0.0
            if source is not None:
                for _ in ticks(clock, seconds, 1 / rate_hz):
                    spent_s = sum(one[1] for one in source.read().call_seconds)
            printed = load.result()
        return {
            "steps/s": printed["steps"] / printed["seconds"],
            "step, ms": printed["median_ms"],
            "99 %, ms": printed["p99_ms"],
            "worst, ms": printed["worst_ms"],
            "in NVML, %": 100 * spent_s / seconds,
        }

    rounds = [[turn(rate) for rate in RATES_HZ] for _ in range(ROUNDS)]
    return [_row(rate, rounds, place) for place, rate in enumerate(RATES_HZ)]


def _row(rate_hz: float, rounds: list[list[dict[str, float]]], place: int) -> Row:
    parts = sorted(100 * turns[place]["steps/s"] / turns[0]["steps/s"] for turns in rounds)
    row: Row = {
        "sampler": f"gpumon at {rate_hz:g} Hz" if rate_hz else "none",
        "turns": len(rounds),
        "of those without, %": statistics.median(parts),
        "middle half, %": f"{parts[len(parts) // 4]:.4g} to {parts[-1 - len(parts) // 4]:.4g}",
    }
    for head in rounds[0][place]:
        of_turns = [turns[place][head] for turns in rounds]
        row[head] = max(of_turns) if head == "worst, ms" else statistics.median(of_turns)
    return row
