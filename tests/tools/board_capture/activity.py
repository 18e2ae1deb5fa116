"""GPM beside utilisation and power, idle, with a small kernel and with one that fills the board."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import closing
from typing import Final

from gpumon.core.sample import ActivitySample
from gpumon.sources.nvml.codes import SUCCESS
from gpumon.sources.nvml.fields.gpm import Gpm
from tests.tools.board_capture.board import Board, looks
from tests.tools.board_capture.results import Row, mean

_EVERY_S: Final = 0.5


def watch_activity(board: Board, seconds: float, load: str) -> Row:
    """Means over so long, of what is read side by side."""
    found: list[ActivitySample] = []
    rates: list[float] = []
    watts: list[float] = []
    with closing(Gpm(board.library, board.clock.monotonic_ns)) as gpm:
        track = gpm.track(board.handle)
        for _ in looks(board.clock, seconds, _EVERY_S):
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
    """The first of the numbers that the driver answers, two at most; none where it refuses."""
    room = (ctypes.c_uint * 2)()
    call = board.library.function(function)
    return [room[0]] if call(ctypes.c_void_p(board.handle), room) == SUCCESS else []
