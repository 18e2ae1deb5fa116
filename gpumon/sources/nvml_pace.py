"""Whether a source is read as regularly as before. Pure logic."""

from __future__ import annotations

from typing import Final

from gpumon.core.units import NS_PER_S

_NO_STOP_NS: Final = 3 * NS_PER_S // 2
"""NVML's own reading looks back up to 1 s, so a shorter silence is no stop."""


class Pace:
    """Notices that the source was not read for a while, as after SIGSTOP or a hanging call.

    A reading of the present must not be spread over such a stop.

    Attributes:
        steady_since_ns: Since when the reads have come regularly; CLOCK_MONOTONIC.
        usual_from_ns: A distance of two reads from here ...
        usual_to_ns: ... to here is as usual: there is nothing to learn from it.
    """

    def __init__(self) -> None:
        self._usual_ns = 0
        self.steady_since_ns = 0
        self.usual_from_ns = self.usual_to_ns = -1

    def step(self, gap_ns: int, now_ns: int) -> None:
        """Take a distance of two reads that is not as usual; 0 is the first read's."""
        if gap_ns == 0:
            self.steady_since_ns = now_ns
            return
        if gap_ns <= max(_NO_STOP_NS, self._usual_ns * 5 // 2):
            self._usual_ns += (gap_ns - self._usual_ns) // 4
        else:
            # A longer period is learnt too, but one stop is not a period.
            self._usual_ns = min(gap_ns, 2 * max(self._usual_ns, _NO_STOP_NS))
            self.steady_since_ns = now_ns
        self.usual_from_ns, self.usual_to_ns = self._usual_ns * 7 // 8, self._usual_ns * 9 // 8
