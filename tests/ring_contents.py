"""The records and totals in the file of a ring."""

from __future__ import annotations

from pathlib import Path

from gpumon.core.ring_format.events import RingEvent, RingKind
from gpumon.core.ring_format.format import (
    HEADER_BYTES,
    KIND_SHIFT,
    PAGE_BYTES,
    RECORD_BYTES,
    SEQUENCE_MASK,
    SEQUENCE_SHIFT,
    RingTotals,
    decode_records,
    newest_totals,
    parse_header,
)


def count_rings(folder: Path) -> int:
    """The ring files in a folder and below."""
    return len(list(folder.rglob("*.ring")))


def records_in(raw: bytes) -> list[RingEvent]:
    """Every record of a ring that has not wrapped."""
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


def record_words(
    sequence: int, kind: RingKind, phase_number: int, at_ns: int, value: int
) -> tuple[int, int, int, int]:
    """One record as its four words.

    >>> record_words(2, RingKind.STEP, 4, 1_000, 7)
    (132100, 1000, 7, 133099)
    """
    head = (sequence & SEQUENCE_MASK) << SEQUENCE_SHIFT | kind << KIND_SHIFT | phase_number
    return head, at_ns, value, head ^ at_ns ^ value
