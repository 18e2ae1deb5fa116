"""What stands in a ring that a test wrote."""

from __future__ import annotations

from gpumon.core.ring.events import RingEvent
from gpumon.core.ring.format import RingTotals
from tests.builders_ring import WrittenRing
from tests.ring_contents import records_in, totals_in


def events(ring: WrittenRing) -> list[RingEvent]:
    return records_in(ring.path.read_bytes())


def totals(ring: WrittenRing) -> RingTotals:
    return totals_in(ring.path.read_bytes())
