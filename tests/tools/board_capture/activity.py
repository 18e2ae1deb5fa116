"""GPM beside utilisation and power, idle, with a small kernel and with one that fills the board."""

from __future__ import annotations

import ctypes
from typing import Final

from gpumon.core.sample import ActivitySample
from gpumon.sources.nvml.codes import SUCCESS
from gpumon.sources.nvml.fields.gpm import Gpm
from tests.tools.board_capture.board import Board, looks, mean
from tests.tools.board_capture.results import ActivityRow

_EVERY_S: Final = 0.5


def watch_activity(board: Board, seconds: float, load: str) -> ActivityRow:
    """Means over so long, of what is read side by side."""
    gpm = Gpm(board.library, board.clock.monotonic_ns)
    track = gpm.track(board.handle)
    found: list[ActivitySample] = []
    rates: list[float] = []
    watts: list[float] = []
    try:
        for _ in looks(board.clock, seconds, _EVERY_S):
            activity = track.read()
            found += [activity] if activity is not None else []
            rates += [one / 100 for one in _asked(board, "nvmlDeviceGetUtilizationRates", 2)]
            watts += [one / 1000 for one in _asked(board, "nvmlDeviceGetPowerUsage", 1)]
    finally:
        gpm.close()
    limit = [one / 1000 for one in _asked(board, "nvmlDeviceGetEnforcedPowerLimit", 1)]
    return ActivityRow(
        load=load,
        utilisation_ratio=mean(rates),
        sm_active_ratio=mean([one.sm_active_ratio for one in found]),
        sm_occupancy_ratio=mean([one.sm_occupancy_ratio for one in found]),
        tensor_active_ratio=mean([one.tensor_active_ratio for one in found]),
        memory_bandwidth_ratio=mean([one.memory_bandwidth_ratio for one in found]),
        power_watts=mean(watts),
        power_limit_watts=mean(limit),
    )


def _asked(board: Board, function: str, numbers: int) -> list[int]:
    """The first of the numbers that the driver answers; none where it refuses."""
    room = (ctypes.c_uint * numbers)()
    call = board.library.function(function)
    return [room[0]] if call(ctypes.c_void_p(board.handle), room) == SUCCESS else []
