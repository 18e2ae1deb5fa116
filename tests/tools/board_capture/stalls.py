"""Whether reading the board slows a training down: steps with a sampler beside it and without."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from gpumon.core.clock import Clock
from gpumon.sources.nvml.source import NvmlSource
from tests.tools.board_capture.load import Load
from tests.tools.board_capture.results import StallRow

RATES_HZ: Final = (0.0, 0.0, 1.0, 10.0)
"""Without a sampler twice: how far apart those two are is what such a machine's noise makes."""
ROUNDS: Final = 9
_NS_PER_S: Final = 1_000_000_000


class StallWatcher:
    """Lets the load train, with ``NvmlSource`` read at some rate, with its default fields."""

    def __init__(
        self, clock: Clock, read_clock_ns: Callable[[int], int] = time.clock_gettime_ns
    ) -> None:
        self._clock, self._read_clock_ns = clock, read_clock_ns

    def watch(self, load: Load, seconds: float) -> list[StallRow]:
        """A row for each rate; they take turns, and a turn is held against the first of its round.

        So a drift of the machine, which may be several times what is looked for, hits both.

        Args:
            load: Trains.
            seconds: Of one rate in one turn.
        """
        rounds = [[self._turn(load, rate, seconds) for rate in RATES_HZ] for _ in range(ROUNDS)]
        without = [_steps_per_second(turns[0][0]) for turns in rounds]
        return [
            _row(rate, [turns[place] for turns in rounds], without)
            for place, rate in enumerate(RATES_HZ)
        ]

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


def _row(
    rate_hz: float, turns: list[tuple[dict[str, Any], float]], without: list[float]
) -> StallRow:
    said = [one for one, _ in turns]
    steps_per_second = [_steps_per_second(one) for one in said]
    parts = sorted(own / bare for own, bare in zip(steps_per_second, without, strict=True))
    return StallRow(
        sampler=f"gpumon at {rate_hz:g} Hz" if rate_hz else "none",
        rounds=len(turns),
        steps_per_second=statistics.median(steps_per_second),
        of_bare_ratio=statistics.median(parts),
        middle_half=(parts[len(parts) // 4], parts[-1 - len(parts) // 4]),
        median_ms=statistics.median(one["median_ms"] for one in said),
        p99_ms=statistics.median(one["p99_ms"] for one in said),
        worst_ms=max(one["worst_ms"] for one in said),
        nvml_seconds_per_second=statistics.median(spent for _, spent in turns),
    )


def _steps_per_second(said: dict[str, Any]) -> float:
    rate: float = said["steps"] / said["seconds"]
    return rate
