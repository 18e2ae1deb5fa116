"""What one GPU has used: a counter that never goes back, whatever the board's own does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gpumon.core.clock import NS_PER_S

_MOST_WATTS: Final = 20_000
"""No board draws as much: a counter that ran faster than that was set, not used."""

_SLACK_MILLIJOULES: Final = 20_000_000
"""Boards bring their counter up to date in steps: a short time may bring a large one."""


class EnergyCounter:
    """Adds up what a board's counter says it used.

    The board's counter begins anew when the driver is reloaded or the GPU
    reset. Then what is handed out stays, and goes on from there: what the
    counter does not tell (from its last reading to its new beginning) is
    missing, never guessed. Where it went on while nobody could ask, all of it
    counts.

    """

    def __init__(self, refuse: Callable[[], None]) -> None:
        """Know nothing yet; ``refuse`` counts a reading that no board can have meant."""
        self._refuse = refuse
        self._sum_millijoules = 0
        self._last_millijoules: int | None = None
        self._last_at_ns = 0

    def take(self, millijoules: int | None, now_ns: int) -> float | None:
        """Take a reading of the board's counter, which it told at ``now_ns`` of CLOCK_MONOTONIC.

        Returns:
            The sum in joules, at least that of the reading before; ``None``
            where there is no answer now.
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
