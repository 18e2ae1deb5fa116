"""Whether reading the board slows a training down: steps with a sampler beside it and without."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from gpumon.core.clock import Clock
from gpumon.sources.nvml import NvmlSource
from tests.tools.board_capture.load import Load
from tests.tools.board_capture.results import StallRow

RATES_HZ: Final = (0.0, 1.0, 10.0)
ROUNDS: Final = 3
_NS_PER_S: Final = 1_000_000_000


class StallWatcher:
    """Lets the load train, with ``NvmlSource`` read at some rate, with its default fields."""

    def __init__(
        self, clock: Clock, read_clock_ns: Callable[[int], int] = time.clock_gettime_ns
    ) -> None:
        self._clock, self._read_clock_ns = clock, read_clock_ns

    def watch(self, load: Load, seconds: float) -> list[StallRow]:
        """A row for each rate; the rates take turns, so that a drift hits all of them.

        Args:
            load: Trains.
            seconds: Of one rate in one turn.
        """
        told: dict[float, list[tuple[dict[str, Any], float]]] = {rate: [] for rate in RATES_HZ}
        for _ in range(ROUNDS):
            for rate, rows in told.items():
                rows.append(self._turn(load, rate, seconds))
        return [_row(rate, rows) for rate, rows in told.items()]

    def _turn(self, load: Load, rate_hz: float, seconds: float) -> tuple[dict[str, Any], float]:
        """What the load says of its steps, and seconds inside NVML for each second."""
        with self._opened(rate_hz) as source:
            load.begin({"do": "steps", "seconds": seconds})
            began_ns = self._clock.monotonic_ns()
            until_ns = began_ns + round(seconds * _NS_PER_S)
            spent_s = 0.0
            while source is not None and (now_ns := self._clock.monotonic_ns()) < until_ns:
                spent_s = sum(one[1] for one in source.read().call_seconds)
                self._clock.sleep_until_ns(now_ns + round(_NS_PER_S / rate_hz))
            return load.result(), spent_s / seconds

    @contextmanager
    def _opened(self, rate_hz: float) -> Iterator[NvmlSource | None]:
        if not rate_hz:
            yield None
            return
        source = NvmlSource(self._clock, read_clock_ns=self._read_clock_ns)
        try:
            yield source
        finally:
            source.close()


def _row(rate_hz: float, rows: list[tuple[dict[str, Any], float]]) -> StallRow:
    said = [one for one, _ in rows]
    return StallRow(
        sampler=f"gpumon at {rate_hz:g} Hz" if rate_hz else "none",
        rounds=len(rows),
        steps_per_second=statistics.median(one["steps"] / one["seconds"] for one in said),
        median_ms=statistics.median(one["median_ms"] for one in said),
        p99_ms=statistics.median(one["p99_ms"] for one in said),
        worst_ms=max(one["worst_ms"] for one in said),
        nvml_seconds_per_second=statistics.median(spent for _, spent in rows),
    )
