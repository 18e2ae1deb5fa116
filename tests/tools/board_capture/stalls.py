"""Whether reading the board slows a training down: steps with a sampler beside it and without."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any, Final

from gpumon.core.clock import Clock
from gpumon.sources.nvml.source import NvmlSource
from tests.tools.board_capture.board import looks
from tests.tools.board_capture.load import Load
from tests.tools.board_capture.results import StallRow

RATES_HZ: Final = (0.0, 0.0, 1.0, 10.0)
"""Without a sampler twice: how far apart those two are is what such a machine's noise makes."""
ROUNDS: Final = 9

Turn = dict[str, Any]
"""What the load says of its steps, and seconds inside NVML for each second, ``in_nvml``."""


def watch_stalls(
    clock: Clock,
    load: Load,
    seconds: float,
    read_clock_ns: Callable[[int], int] = time.clock_gettime_ns,
) -> list[StallRow]:
    """A row for each rate at which ``NvmlSource`` is read, with its default fields.

    They take turns, and a turn is held against the first of its round. So a drift of the machine,
    which may be several times what is looked for, hits both.

    Args:
        clock: The monotonic clock.
        load: Trains.
        seconds: Of one rate in one turn.
        read_clock_ns: Reads a clock by its id.
    """

    def turn(rate_hz: float) -> Turn:
        sampler: AbstractContextManager[NvmlSource | None] = nullcontext()
        if rate_hz:
            sampler = closing(NvmlSource(clock, read_clock_ns=read_clock_ns))
        with sampler as source:
            load.begin({"do": "steps", "seconds": seconds})
            spent_s = 0.0
            if source is not None:
                for _ in looks(clock, seconds, 1 / rate_hz):
                    spent_s = sum(one[1] for one in source.read().call_seconds)
            return {**load.result(), "in_nvml": spent_s / seconds}

    rounds = [[turn(rate) for rate in RATES_HZ] for _ in range(ROUNDS)]
    without = [_steps_per_second(turns[0]) for turns in rounds]
    return [
        _row(rate, [turns[place] for turns in rounds], without)
        for place, rate in enumerate(RATES_HZ)
    ]


def _row(rate_hz: float, turns: list[Turn], without: list[float]) -> StallRow:
    def median(name: str) -> float:
        return statistics.median(float(one[name]) for one in turns)

    steps_per_second = [_steps_per_second(one) for one in turns]
    parts = sorted(own / bare for own, bare in zip(steps_per_second, without, strict=True))
    return StallRow(
        sampler=f"gpumon at {rate_hz:g} Hz" if rate_hz else "none",
        rounds=len(turns),
        steps_per_second=statistics.median(steps_per_second),
        of_bare_ratio=statistics.median(parts),
        middle_half=(parts[len(parts) // 4], parts[-1 - len(parts) // 4]),
        median_ms=median("median_ms"),
        p99_ms=median("p99_ms"),
        worst_ms=max(one["worst_ms"] for one in turns),
        nvml_seconds_per_second=median("in_nvml"),
    )


def _steps_per_second(said: Turn) -> float:
    rate: float = said["steps"] / said["seconds"]
    return rate
