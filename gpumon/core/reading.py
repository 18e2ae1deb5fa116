"""Everything that one tick reads."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.core.ring_format.events import RingsReading
from gpumon.core.sample import Tick
from gpumon.core.stacks.reading import NO_STACKS, StacksReading
from gpumon.core.waits.evidence import NO_READING, HostReading


class Reading(NamedTuple):
    """One tick of the GPU source with the rings, host evidence and stacks read after it."""

    tick: Tick
    rings: RingsReading
    wall_time_s: float
    rings_seconds: float = 0.0
    host: HostReading = NO_READING
    stacks: StacksReading = NO_STACKS
