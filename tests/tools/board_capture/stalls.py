"""Whether reading the board slows a run down: steps with a sampler and without."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Final

from gpumon.core.clock import Clock
from gpumon.sources.nvml.source import NvmlSource
from tests.tools.board_capture.board import looks
from tests.tools.board_capture.load import Load
from tests.tools.board_capture.results import Row

RATES_HZ: Final = (0.0, 0.0, 1.0, 10.0)
"""Without a sampler twice: how far apart those two are is what such a machine's noise makes."""
ROUNDS: Final = 9


def watch_stalls(
    clock: Clock,
    load: Load,
    seconds: float,
    read_clock_ns: Callable[[int], int] = time.clock_gettime_ns,
) -> list[Row]:
    """A row for each rate at which ``NvmlSource`` is read, with its default fields.

    They take turns of so many seconds, and a turn is compared with the first of its round. So a
    drift of the machine, which may be several times what is looked for, hits both.
    """

    def turn(rate_hz: float) -> dict[str, float]:
        sampler: AbstractContextManager[NvmlSource | None] = nullcontext()
        if rate_hz:
            sampler = closing(NvmlSource(clock, read_clock_ns=read_clock_ns))
        with sampler as source:
            load.begin({"do": "steps", "seconds": seconds})
            spent_s = 0.0
            if source is not None:
                for _ in looks(clock, seconds, 1 / rate_hz):
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
