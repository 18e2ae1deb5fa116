"""What stands in a ring: its records, and its totals."""

from __future__ import annotations

from gpumon.core.ring_events import RingEvent
from gpumon.core.ring_format import (
    HEADER_BYTES,
    PAGE_BYTES,
    RingTotals,
    decode_records,
    newest_totals,
    parse_header,
)
from tests.builders_ring import WrittenRing


def events(ring: WrittenRing) -> list[RingEvent | None]:
    raw = ring.path.read_bytes()
    return decode_records(raw[PAGE_BYTES:], 0)[: parse_header(raw).head]


def totals(ring: WrittenRing) -> RingTotals:
    raw = ring.path.read_bytes()[:HEADER_BYTES]
    found = newest_totals(raw, parse_header(raw).totals_generation)
    assert found is not None
    return found
