"""What one GPU draws, and what it has used.

Its draw is the mean of the samples that its driver took since the tick before.
The driver keeps power samples in a ring as it keeps those of utilisation, some
20 ms apart at work and up to a second while idle. Each speaks for the time
since the one before it, so bursts between two ticks count as long as they
lasted. Where the ring brings nothing for a while, or there is none,
``nvmlDeviceGetPowerUsage`` is asked instead.

What it has used is a counter that never goes back, whatever the board's own does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.clock import Entry
from gpumon.sources.nvml.codes import NO_ERROR, PERMANENT
from gpumon.sources.nvml.fields.calls import NumberCall
from gpumon.sources.nvml.fields.table import MOST_MILLIWATTS, POWER_USAGE

_SILENT_NS: Final = 3 * NS_PER_S
"""Boards were seen to leave up to a second between two samples while idle."""

_LOOK_AGAIN_NS: Final = 10 * NS_PER_S


class PowerTrack:
    """One GPU's power draw from tick to tick.

    Attributes:
        has_ring: Whether the driver keeps power samples of it.
        position_us: The newest stamp seen: the ring is asked for what is
            newer; 0: all of it, to find out where it is.
    """

    def __init__(self, library: NvmlLibrary, handle: int, refuse: Callable[[], None]) -> None:
        """Ask that GPU from now on; ``refuse`` counts a value that no board can draw."""
        self.has_ring = True
        self.position_us = 0
        self._count_refused = refuse
        self._seen_us = 0
        self._milliwatts: float | None = None
        self._heard_at_ns = self._look_again_at_ns = -_LOOK_AGAIN_NS
        self._present = NumberCall(library, handle, POWER_USAGE)

    @property
    def code(self) -> int:
        """What ``ask_now`` was answered last."""
        return self._present.code

    @property
    def fails(self) -> bool:
        """Whether ``ask_now`` was answered with an error."""
        return self.code not in NO_ERROR and self.code not in PERMANENT

    def try_again(self) -> None:
        """Ask for everything again: what was not permitted may be by now."""
        self.has_ring = self._present.supported = True

    def forget_position(self) -> None:
        """The clock of the stamps was set: find out anew where the ring is."""
        self.position_us = 0

    def take(self, entries: Iterable[Entry], now_ns: int) -> float | None:
        """The mean draw since the tick before, in milliwatts.

        Args:
            entries: What is new in the ring: stamp in microseconds, and
                milliwatts, oldest first.
            now_ns: CLOCK_MONOTONIC just after they were drained.

        Returns:
            The draw; ``None`` where no call tells it.
        """
        from_us = last_us = self.position_us
        drawn, is_ordered, is_possible = 0.0, True, True
        for stamp_us, milliwatts in entries:
            if stamp_us <= last_us:
                is_ordered = False
            if not 0 <= milliwatts <= MOST_MILLIWATTS:  # said so that no number is refused, too
                is_possible = False
            drawn += milliwatts * (stamp_us - last_us)
            last_us = stamp_us
        if last_us == from_us:
            return self._without_news(now_ns)
        self.position_us = last_us
        # Where it was silent for long, what it holds may be of any time; and stamps
        # that run back are of before and after the clock was set.
        if not (from_us and is_ordered) or now_ns - self._heard_at_ns > _SILENT_NS:
            if last_us != self._seen_us:
                self._seen_us, self._heard_at_ns = last_us, now_ns
            return self.ask_now()
        self._heard_at_ns, self._seen_us = now_ns, last_us
        if is_possible:
            self._milliwatts = drawn / (last_us - from_us)
        else:
            self._refuse()
        return self._milliwatts

    def _without_news(self, now_ns: int) -> float | None:
        if now_ns - self._heard_at_ns <= _SILENT_NS:
            return self._milliwatts
        if now_ns >= self._look_again_at_ns:
            # After a reset the stamps may have begun anew: then none is ever newer.
            self._look_again_at_ns = now_ns + _LOOK_AGAIN_NS
            self.position_us = 0
        return self.ask_now()

    def ask_now(self) -> float | None:
        """What the driver says by itself, in milliwatts; ``None``: nothing."""
        milliwatts = self._milliwatts = self._present.read()
        if milliwatts is not None and milliwatts > MOST_MILLIWATTS:
            self._refuse()
        return self._milliwatts

    def _refuse(self) -> None:
        self._count_refused()
        self._milliwatts = None


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
