"""The energy that one GPU has used: a counter that never goes back, unlike the board's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gpumon.core.clock import NS_PER_S

_MOST_WATTS: Final = 20_000
"""No board draws as much: a counter that ran faster was set."""

_SLACK_MILLIJOULES: Final = 20_000_000
"""Boards update their counter in steps: a short time may have a large one."""


class EnergyCounter:
    """Adds up the increases of a board's counter.

    The board's counter restarts when the driver is reloaded or the GPU is reset. The sum stays
    then and continues from there: the energy between the last reading and the restart is missing,
    never estimated. If the counter ran on while it could not be read, all of that counts.
    """

    def __init__(self, refuse: Callable[[], None]) -> None:
        """Start without a reading; ``refuse`` counts an invalid one."""
        self._refuse = refuse
        self._sum_millijoules = 0
        self._last_millijoules: int | None = None
        self._last_at_ns = 0

    def update(self, millijoules: int | None, now_ns: int) -> float | None:
        """Add a reading of the board's counter at ``now_ns`` of CLOCK_MONOTONIC.

        Returns:
            The sum in joules, which never falls; ``None``: no answer now.
        """
        if millijoules is None:
            return None
        last = self._last_millijoules
        if last is None:
            self._sum_millijoules = millijoules
        elif millijoules >= last:
            self._add(millijoules - last, now_ns - self._last_at_ns)
        self._last_millijoules, self._last_at_ns = millijoules, now_ns
        return self._sum_millijoules / 1000

    def _add(self, used_millijoules: int, elapsed_ns: int) -> None:
        most = _MOST_WATTS * max(0, elapsed_ns) * 1000 // NS_PER_S + _SLACK_MILLIJOULES
        if used_millijoules > most:
            self._refuse()
        else:
            self._sum_millijoules += used_millijoules
