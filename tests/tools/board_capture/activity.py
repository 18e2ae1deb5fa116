"""GPM beside utilisation and power, idle, with a small kernel and with one that fills the board."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Final

from gpumon.core.clock import Clock
from gpumon.core.sample import ActivitySample
from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.codes import SUCCESS
from gpumon.sources.nvml.fields.gpm import Gpm
from tests.tools.board_capture.results import ActivityRow

_EVERY_NS: Final = 500_000_000
_NS_PER_S: Final = 1_000_000_000


class ActivityWatcher:
    """Reads GPM, ``GetUtilizationRates`` and the power of one GPU side by side."""

    def __init__(self, library: NvmlLibrary, handle: int, clock: Clock) -> None:
        self._library, self._handle, self._clock = library, handle, clock

    def watch(self, seconds: float, load: str) -> ActivityRow:
        """Means over so long."""
        gpm = Gpm(self._library, self._clock.monotonic_ns)
        track = gpm.track(self._handle)
        found: list[ActivitySample] = []
        rates: list[float] = []
        watts: list[float] = []
        until_ns = self._clock.monotonic_ns() + round(seconds * _NS_PER_S)
        try:
            while (now_ns := self._clock.monotonic_ns()) < until_ns:
                activity = track.read()
                found += [activity] if activity is not None else []
                rates += [one / 100 for one in self._asked("nvmlDeviceGetUtilizationRates", 2)]
                watts += [one / 1000 for one in self._asked("nvmlDeviceGetPowerUsage", 1)]
                self._clock.sleep_until_ns(now_ns + _EVERY_NS)
        finally:
            gpm.close()
        limit = [one / 1000 for one in self._asked("nvmlDeviceGetEnforcedPowerLimit", 1)]
        return ActivityRow(
            load=load,
            utilisation_ratio=_mean(rates),
            sm_active_ratio=_mean([one.sm_active_ratio for one in found]),
            sm_occupancy_ratio=_mean([one.sm_occupancy_ratio for one in found]),
            tensor_active_ratio=_mean([one.tensor_active_ratio for one in found]),
            memory_bandwidth_ratio=_mean([one.memory_bandwidth_ratio for one in found]),
            power_watts=_mean(watts),
            power_limit_watts=_mean(limit),
        )

    def _asked(self, function: str, numbers: int) -> list[int]:
        """The first of the numbers that the driver answers; none where it refuses."""
        room = (ctypes.c_uint * numbers)()
        call = self._library.function(function)
        return [room[0]] if call(ctypes.c_void_p(self._handle), room) == SUCCESS else []


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
