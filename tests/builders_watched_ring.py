"""A phase ring that a test writes and a daemon's reader looks at."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from gpumon.core.ring_format.events import RingReading, RingsReading, RunFacts
from gpumon.sources.ring_reader.phase_rings import PhaseRingReader
from tests.builders_ring import BOOT_ID, WrittenRing, held_by_a_process, now, only


class WatchedRing(WrittenRing):
    """A ring whose writer is this test, and a reader of all rings beside it."""

    def __init__(self, runtime: Path, facts: RunFacts | None = None) -> None:
        super().__init__(runtime, facts)
        self.reader = PhaseRingReader([runtime], boot_id=BOOT_ID)

    def held(self) -> AbstractContextManager[int]:
        """Let it be alive meanwhile: another process, whose pid it gives, holds its lock."""
        return held_by_a_process(self.path)

    def look(self) -> RingReading:
        """What the reader makes of it now, when there is no other and nothing to complain of."""
        return only(self.look_at_all())

    def look_at_all(self, later_ns: int = 0) -> RingsReading:
        """What the reader makes of all rings now, or so much later."""
        return self.reader.read(now() + later_ns)
