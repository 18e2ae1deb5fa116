"""What stands in the file of a ring: its records, and its totals."""

from __future__ import annotations

from gpumon.core.ring.events import RingEvent
from gpumon.core.ring.format import (
    HEADER_BYTES,
    PAGE_BYTES,
    RECORD_BYTES,
    RingTotals,
    decode_records,
    newest_totals,
    parse_header,
)


def records_in(raw: bytes) -> list[RingEvent]:
    """Every record of a ring that has not come round yet."""
    end = PAGE_BYTES + RECORD_BYTES * parse_header(raw[:HEADER_BYTES]).head
    records, whole = decode_records(raw[PAGE_BYTES:end], 0)
    assert all(whole)
    return list(records)


def totals_in(raw: bytes) -> RingTotals:
    """The newest of its totals."""
    header = raw[:HEADER_BYTES]
    found = newest_totals(header, parse_header(header).totals_generation)
    assert found is not None
    return found
