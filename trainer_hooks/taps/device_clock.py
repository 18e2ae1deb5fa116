"""At which instants of the host the device's events happened: bounds only, no clock of its own."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

_NS_PER_MS: Final = 1e6
_RESOLUTION_NS: Final = 1_000
"""CUDA says half a microsecond, and hands elapsed times out as 32-bit floats."""
_DRIFT: Final = 6e-4
"""Two clocks of one machine part by less than that, as a ratio: NTP slews the host's by 5e-4."""
_REFERENCE_AGE_NS: Final = 1_000_000_000
"""A 32-bit float of a second resolves 60 ns, and the clocks part by 0.6 ms at most meanwhile."""


class Event(Protocol):
    """A mark in the device's queue of work, such as ``torch.cuda.Event``."""

    def record(self) -> None:
        """Put the mark behind the work that the device has now."""
        ...

    def query(self) -> bool:
        """Whether the device came past it. Returns at once."""
        ...

    def elapsed_time(self, end_event: object) -> float:
        """Milliseconds from this mark to another; the device came past both."""
        ...


class Instant(NamedTuple):
    """When the device came past a mark.

    Attributes:
        at_ns: CLOCK_MONOTONIC, nanoseconds.
        error_ns: The truth is at most so far away.
    """

    at_ns: int
    error_ns: int


class DeviceClock:
    """Joins the device's clock to the host's, by what must be true of every event.

    Of each event the host knows that it happened after one instant (it had
    not been recorded before, or was found unfinished) and before another (it
    was found finished). The device tells how far apart two events are. So each
    event bounds where the reference lies, and all of them bound it closely.

    Attributes:
        reference: The event that the others are told by; it must not be
            recorded again while it is this one.
    """

    def __init__(self) -> None:
        self.reference: Event | None = None
        self._earliest_ns = self._latest_ns = 0.0

    def instant_of(self, event: Event, after_ns: int, by_ns: int) -> Instant:
        """When a finished event happened.

        Args:
            event: Finished, as ``query`` said.
            after_ns: It had not happened then.
            by_ns: It had happened then.

        Raises:
            RuntimeError: As the device's library does, for events of two devices.
        """
        since_ns = self._ns_since_reference(event)
        unsure_ns = _RESOLUTION_NS + abs(since_ns) * _DRIFT
        earliest_ns = max(self._earliest_ns + since_ns - unsure_ns, after_ns)
        latest_ns = min(self._latest_ns + since_ns + unsure_ns, by_ns)
        if self.reference is None or earliest_ns > latest_ns:
            # The first one; or the clocks went apart, as in a machine that was suspended.
            earliest_ns, latest_ns, since_ns = float(after_ns), float(by_ns), _REFERENCE_AGE_NS
        if since_ns >= _REFERENCE_AGE_NS:
            self.reference = event
            self._earliest_ns, self._latest_ns = earliest_ns, latest_ns
        else:
            self._earliest_ns = max(self._earliest_ns, earliest_ns - since_ns - unsure_ns)
            self._latest_ns = min(self._latest_ns, latest_ns - since_ns + unsure_ns)
        middle_ns = (earliest_ns + latest_ns) / 2
        return Instant(round(middle_ns), round((latest_ns - earliest_ns) / 2))

    def _ns_since_reference(self, event: Event) -> float:
        if self.reference is None:
            return 0.0
        return self.reference.elapsed_time(event) * _NS_PER_MS
