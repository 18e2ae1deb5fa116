"""What one look at the machine brought. Pure data: no I/O, no clock."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.core.ring_events import RingsReading
from gpumon.core.sample import Frame


class Tick(NamedTuple):
    """What one tick brought.

    Attributes:
        at_ns: CLOCK_MONOTONIC of the tick.
        late_ns: By how much it was later than its deadline.
        frames: Frames that arrived: normally one; none while the source
            hangs; two when a late one arrives beside a fresh one.
        missed_count: Deadlines for which no frame was there in time, those
            skipped because a tick before took too long included.
        error: Why the source cannot be read; ``None`` where it can.
        duration_seconds: How long the newest read took.
    """

    at_ns: int
    late_ns: int
    frames: tuple[Frame, ...]
    missed_count: int
    error: str | None
    duration_seconds: float


class Moment(NamedTuple):
    """One tick and all that was read beside it: what a monitor advances by.

    Attributes:
        tick: What the source brought.
        rings: What the phase rings said after it.
        wall_time_s: Seconds since the epoch.
        rings_seconds: How long reading the rings took.
    """

    tick: Tick
    rings: RingsReading
    wall_time_s: float
    rings_seconds: float = 0.0
