"""Which phase of a run is under way, as its newest records tell."""

from __future__ import annotations

from gpumon.core.phase import TrainingPhase
from gpumon.core.ring_format.events import RingKind, RingRecords


class PresentPhase:
    """Follows the records of one ring.

    Attributes:
        phase: What is under way; ``None`` before anything is known.
        since_ns: CLOCK_MONOTONIC from which on it is in none of the ring's sums.
    """

    def __init__(self, since_ns: int) -> None:
        self.phase: TrainingPhase | None = None
        self.since_ns = since_ns

    def take(self, events: RingRecords) -> None:
        """Take what is new in the ring, oldest first."""
        entered = events.newest(RingKind.ENTER)
        if entered is not None:
            self.phase, self.since_ns = entered.phase, entered.at_ns
        last = events.kinds.rfind(RingKind.ENTER)
        for at in events.positions(RingKind.AMOUNT):
            if at > last:
                self.since_ns += events.values[at]  # the ring's sums hold it already
