"""Records of a ring as columns: thousands a tick, checked and used without an object for each."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Final, overload

from gpumon.core.phase import PHASES
from gpumon.core.ring.events import RingEvent, RingKind
from gpumon.core.ring.format import COUNT_LIMIT, RECORD_BYTES, RECORD_WORDS, SEQUENCE_MASK

_BIG: Final = sys.byteorder == "big"
_KIND_BYTE, _PHASE_BYTE = (6, 7) if _BIG else (1, 0)
_SLOT_SHORT, _LAP_LONG = (2, 0) if _BIG else (1, 1)
_MODE_BYTE: Final = 23 if _BIG else 16
_LAP_RECORDS: Final = 1 << 16
_LAP_MASK: Final = (1 << 32) - 1

_KINDS: Final = {int(kind): kind for kind in RingKind}
_KNOWN_KINDS: Final = bytes(_KINDS)
_KNOWN_PHASES: Final = bytes(range(len(PHASES)))
_SLOTS: Final = array("H", range(_LAP_RECORDS))
_ONLY: Final = {kind: bytes(int(byte == kind) for byte in range(256)) for kind in RingKind}


class RingRecords(Sequence[RingEvent]):
    """Consecutive records, all of them whole. Reads like a tuple of events.

    Attributes:
        kinds: A byte a record: its ``RingKind``.
        phases: A byte a record: its phase, in ring order.
        modes: A byte a record: the lowest of its value, which is an ENTER's mode.
        stamps_ns: CLOCK_MONOTONIC of each.
        values: What each is worth, as its kind says.
        is_in_order: Whether no stamp is older than the one before it.
    """

    __slots__ = ("_events", "is_in_order", "kinds", "modes", "phases", "stamps_ns", "values")

    def __init__(self, raw: bytes, stamps_ns: list[int], values: array[int]) -> None:
        """Take over what ``whole_records`` has checked."""
        self.kinds = raw[_KIND_BYTE::RECORD_BYTES]
        self.phases = raw[_PHASE_BYTE::RECORD_BYTES]
        self.modes = raw[_MODE_BYTE::RECORD_BYTES]
        self.stamps_ns = stamps_ns
        self.values = values
        self.is_in_order = stamps_ns == sorted(stamps_ns)
        self._events: tuple[RingEvent, ...] | None = None

    @classmethod
    def of_columns(
        cls, kinds: bytes, phases: bytes, stamps_ns: list[int], values: array[int]
    ) -> RingRecords:
        """Records that were kept as columns, all of one length, kinds and phases known ones."""
        raw = bytearray(RECORD_BYTES * len(kinds))
        raw[_KIND_BYTE::RECORD_BYTES] = kinds
        raw[_PHASE_BYTE::RECORD_BYTES] = phases
        raw[_MODE_BYTE::RECORD_BYTES] = bytes(value & 0xFF for value in values)
        return cls(bytes(raw), stamps_ns, values)

    def __len__(self) -> int:
        return len(self.kinds)

    def __iter__(self) -> Iterator[RingEvent]:
        return iter(self._as_events())

    @overload
    def __getitem__(self, at: int) -> RingEvent: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[RingEvent]: ...
    def __getitem__(self, at: int | slice) -> RingEvent | Sequence[RingEvent]:
        return self.event_at(at) if isinstance(at, int) else self._as_events()[at]

    def event_at(self, at: int) -> RingEvent:
        """One record; the others are not made for it."""
        kind, phase = _KINDS[self.kinds[at]], PHASES[self.phases[at]]
        return RingEvent(kind, self.stamps_ns[at], phase, self.values[at])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._as_events() == tuple(other)

    def __hash__(self) -> int:
        return hash(self._as_events())

    def lies_within(self, earliest_ns: int, latest_ns: int) -> bool:
        """Whether every stamp does."""
        stamps_ns = self.stamps_ns
        ends_ns = (stamps_ns[0], stamps_ns[-1]) if self.is_in_order else stamps_ns
        return min(ends_ns) >= earliest_ns and max(ends_ns) <= latest_ns

    def selected(self, kind: RingKind) -> bytes:
        """A byte a record: 1 where it is of that kind, else 0. For ``itertools.compress``."""
        return self.kinds.translate(_ONLY[kind])

    def positions(self, *kinds: RingKind) -> Iterator[int]:
        """Where the records of these kinds are."""
        wanted = self.selected(kinds[0])
        if len(kinds) > 1:
            wanted = self.kinds.translate(bytes(byte in kinds for byte in range(256)))
        return compress(range(len(self.kinds)), wanted)

    def _as_events(self) -> tuple[RingEvent, ...]:
        if self._events is None:
            self._events = tuple(map(self.event_at, range(len(self))))
        return self._events


def whole_records(raw: bytes, first_sequence: int) -> RingRecords | None:
    """Consecutive records as columns, or ``None`` where any of them is not whole.

    Says the same as ``ring_format.decode_records`` says of each, in a
    twentieth of the time; that one tells which record it is that does not fit.

    Args:
        raw: Records as they lie in the file.
        first_sequence: The sequence number that the first one must have.
    """
    words = array("Q", raw)
    heads, stamps, values = words[0::RECORD_WORDS], words[1::RECORD_WORDS], words[2::RECORD_WORDS]
    checks = _number(heads) ^ _number(stamps) ^ _number(values)
    if checks != _number(words[3::RECORD_WORDS]) or not _are_numbered(raw, first_sequence):
        return None
    records = RingRecords(raw, stamps.tolist(), values)
    known = not records.kinds.translate(None, _KNOWN_KINDS)
    return records if known and not records.phases.translate(None, _KNOWN_PHASES) else None


def newest_value(events: Sequence[RingEvent], kind: RingKind) -> int:
    """What the newest record of that kind is worth, at most ``COUNT_LIMIT``; 0 where none is."""
    if isinstance(events, RingRecords):
        at = events.kinds.rfind(kind)
        value = events.values[at] if at >= 0 else 0
    else:
        value = next((event.value for event in reversed(events) if event.kind is kind), 0)
    return min(value, COUNT_LIMIT)


def _number(words: array[int]) -> int:
    """All of them as one number, so that one ``^`` is as many as there are words."""
    return int.from_bytes(words.tobytes(), sys.byteorder)


def _are_numbered(raw: bytes, first_sequence: int) -> bool:
    """Whether the records count up from that number, which wraps at 48 bits."""
    first_sequence &= SEQUENCE_MASK
    count = len(raw) // RECORD_BYTES
    slot, lap = first_sequence % _LAP_RECORDS, first_sequence // _LAP_RECORDS
    this_lap = min(count, _LAP_RECORDS - slot)
    later = count - this_lap
    slots = _SLOTS[slot : slot + this_lap] + _SLOTS[:later]
    laps = array("I", [lap]) * this_lap + array("I", [lap + 1 & _LAP_MASK]) * later
    shorts = array("H", raw)[_SLOT_SHORT :: RECORD_BYTES // 2]
    longs = array("I", raw)[_LAP_LONG :: RECORD_BYTES // 4]
    # Bytes: arrays are compared number by number.
    return shorts.tobytes() == slots.tobytes() and longs.tobytes() == laps.tobytes()
