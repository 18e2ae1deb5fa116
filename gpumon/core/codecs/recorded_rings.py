"""What phase rings said, as JSON objects and back, each telling only what is new.

Like frames, they are told anew in each block of a recording. As a ring says
only what is new in it, a block also tells what each training was doing when
the block began: a reader that lost the block before goes on from there.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from gpumon.core.clock import NS_PER_S
from gpumon.core.codecs.field_codec import (
    KEPT,
    FieldCodec,
    MalformedError,
    bounded,
    difference,
    items,
    mapping,
    row,
    text,
    whole,
)
from gpumon.core.phase import PHASE_NUMBER, PHASES, TrainingPhase, phase_named
from gpumon.core.ring_format.events import (
    NO_RECORDS,
    RingEvent,
    RingKind,
    RingReading,
    RingRecords,
    RingsReading,
    RunFacts,
)
from gpumon.core.ring_format.facts import encode_facts, parse_facts
from gpumon.core.ring_format.fair_share import MAX_OWNERS_LISTED
from gpumon.errors import RingError

_SLACK_NS: Final = NS_PER_S
"""By so much a reader of rings believes a stamp beyond its bounds."""
_LONGEST_READ_NS: Final = 60 * NS_PER_S
_MOST_RINGS: Final = 1_024
_MOST_EVENTS: Final = 1 << 20
_WORD: Final = 1 << 64
_KINDS: Final = frozenset(int(kind) for kind in RingKind)
_READING: Final = FieldCodec(
    RingReading,
    KEPT._replace(tells_none=True),
    "key alive host_pid owner_uid ended_ns steps samples epoch",
)


class RingsWriter:
    """Writes what rings said in a block.

    Args:
        present: What each training is doing, by ring: kept from block to block.
    """

    def __init__(self, present: dict[str, RingEvent]) -> None:
        self._present = present
        self._rings: dict[str, tuple[int, RingReading | None]] = {}  # its number, and what was told
        self._before = RingsReading()

    def encode(self, rings: RingsReading, at_ns: int) -> dict[str, Any]:
        """One reading of all rings; empty where nothing was new and there is no ring.

        Stamps of readings are told as what they are after ``at_ns``.
        """
        document: dict[str, Any] = {}
        if rings.rings:
            newest_ns = max(one.read_at_ns for one in rings.rings)
            document["read_after_ns"] = newest_ns - at_ns
            document["rings"] = [self._ring(one, newest_ns) for one in rings.rings]
            listed = {one.key for one in rings.rings}
            for gone in self._present.keys() - listed:
                del self._present[gone]
        before, self._before = self._before, rings
        if (rings.rejected, rings.message) != (before.rejected, before.message):
            message = None if rings.message is None else bounded(rings.message)
            document["rings_rejected"] = [rings.rejected, message]
        if (rings.left_out, rings.is_whole) != (before.left_out, before.is_whole):
            document["rings_left_out"] = [rings.is_whole, *map(list, rings.left_out)]
        return document

    def _ring(self, reading: RingReading, newest_ns: int) -> int | dict[str, Any]:
        """What is new in a ring; its number alone where nothing is."""
        position, before = self._rings.get(reading.key, (len(self._rings), None))
        document = _what_is_new(reading, before)
        # One that has ended is not read again.
        if reading.ended_ns is None and reading.read_at_ns != newest_ns:
            document["read_after_ns"] = reading.read_at_ns - newest_ns
        if reading.lost_events:
            document["lost_events"] = reading.lost_events
        if before is None and (present := self._present.get(reading.key)) is not None:
            document["present"] = [present.at_ns, PHASE_NUMBER[present.phase], present.value]
        if reading.events:
            document["events"] = _encode_events(reading.events)
            entered = reading.events.newest(RingKind.ENTER)
            if entered is not None:
                self._present[reading.key] = entered
        self._rings[reading.key] = position, reading
        return {"ring": position, **document} if document else position


class RingsReader:
    """Reads what rings said in a block.

    Args:
        is_after_gap: Whether something is missing before this block.
    """

    def __init__(self, *, is_after_gap: bool = False) -> None:
        self._rings: list[RingReading] = []
        self._before = RingsReading()
        self._is_after_gap = is_after_gap

    def decode(self, fields: Mapping[str, object], at_ns: int) -> RingsReading:
        """One reading of all rings, or ``MalformedError``."""
        changed: dict[str, Any] = {}
        if "rings_rejected" in fields:
            refused, message = (*items(fields["rings_rejected"], 2), None, None)[:2]
            changed["rejected"] = whole(refused)
            changed["message"] = None if message is None else text(message)
        if "rings_left_out" in fields:
            left_out = _decode_left_out(fields["rings_left_out"])
            changed["left_out"], changed["is_whole"] = left_out
        read_at_ns = whole(at_ns + difference(fields.get("read_after_ns", 0)))
        if read_at_ns > at_ns + _LONGEST_READ_NS:
            raise MalformedError("rings that were read long after their tick")
        listed = items(fields.get("rings", []), _MOST_RINGS)
        changed["rings"] = tuple([self._ring(one, read_at_ns) for one in listed])
        self._before = replace(self._before, **changed)
        return self._before

    def _ring(self, told: object, newest_ns: int) -> RingReading:
        fields = {"ring": told} if type(told) is int else mapping(told)
        position = whole(fields.get("ring"))
        if position > len(self._rings) or position >= _MOST_RINGS:
            raise MalformedError("a ring that nobody introduced")
        is_new = position == len(self._rings)
        events = _decode_events(fields.get("events"))
        changed: dict[str, Any] = {
            **_READING.values(fields),
            "read_at_ns": min(
                newest_ns, whole(newest_ns + difference(fields.get("read_after_ns", 0)))
            ),
            "lost_events": whole(fields.get("lost_events", 0)),
            "events": events,
        }
        if is_new or "facts" in fields:
            changed["facts"] = _decode_facts(fields.get("facts"))
        if is_new or "phase_ns" in fields:
            known_ns = {} if is_new else self._rings[position].phase_ns
            changed["phase_ns"] = _decode_phases(fields.get("phase_ns", {}), known_ns)
        if is_new:
            changed = {"ended_ns": None, "epoch": None, **changed}
            if self._is_after_gap and "present" in fields:
                changed["events"] = RingRecords.of((_decode_present(fields["present"]), *events))
                changed["lost_events"] += 1
            try:
                reading = RingReading(**changed)
            except TypeError as error:
                raise MalformedError("a ring that says too little of itself") from error
            self._rings.append(reading)
        else:
            reading = self._rings[position] = replace(self._rings[position], **changed)
        _insist_on_possible(reading)
        return reading


def _decode_facts(document: object) -> RunFacts:
    try:
        return parse_facts(json.dumps(mapping(document)).encode("utf-8", "surrogatepass"))
    except (RingError, RecursionError) as error:
        raise MalformedError(str(error)) from error


def _what_is_new(reading: RingReading, before: RingReading | None) -> dict[str, Any]:
    """The lasting fields that have changed; all of them where nothing was told before."""
    document = _READING.encode(reading, since=before)
    if before is None or before.facts != reading.facts:
        document["facts"] = json.loads(encode_facts(reading.facts))
    known_ns = {} if before is None else before.phase_ns
    spent = {p.value: ns for p, ns in reading.phase_ns.items() if known_ns.get(p) != ns}
    if spent:
        document["phase_ns"] = spent
    return document


def _insist_on_possible(reading: RingReading) -> None:
    """Times that no reader of rings would have believed."""
    earliest_ns = reading.facts.started_ns - _SLACK_NS
    latest_ns = reading.read_at_ns + _SLACK_NS
    if sum(reading.phase_ns.values()) > max(_SLACK_NS, latest_ns - reading.facts.started_ns):
        raise MalformedError("a ring that claims more time than has passed")
    if reading.ended_ns is not None and not earliest_ns <= reading.ended_ns <= latest_ns:
        raise MalformedError("a ring that ended before it began, or after it was read")
    stamps_ns = reading.events.stamps_ns
    if stamps_ns and not earliest_ns <= min(stamps_ns) <= max(stamps_ns) <= latest_ns:
        raise MalformedError("a ring with records from before its run, or after they were read")


def _encode_events(events: RingRecords) -> dict[str, Any]:
    """Events as columns: stamps as what lies between, values as what they grew by in their kind."""
    stamps_ns = events.stamps_ns
    return {
        "after_ns": [at - before for at, before in zip(stamps_ns, [0, *stamps_ns], strict=False)],
        "kind": list(events.kinds),
        "phase": list(events.phases),
        "more": _grown(events.kinds, events.values),
    }


def _decode_events(document: object) -> RingRecords:
    if document is None:
        return NO_RECORDS
    fields = mapping(document)
    kinds = _column(fields, "kind", max(_KINDS) + 1)
    phases = _column(fields, "phase", len(PHASES))
    values = _summed(kinds, items(fields.get("more"), _MOST_EVENTS))
    gaps_ns = items(fields.get("after_ns"), _MOST_EVENTS)
    if not len(kinds) == len(phases) == len(values) == len(gaps_ns) or not _KINDS.issuperset(kinds):
        raise MalformedError("events whose columns do not fit each other")
    stamps_ns, at_ns = [], 0
    for gap_ns in gaps_ns:
        at_ns = whole(at_ns + difference(gap_ns))
        stamps_ns.append(at_ns)
    return RingRecords(bytes(kinds), bytes(phases), stamps_ns, array("Q", values))


def _grown(kinds: Sequence[int], values: Sequence[int]) -> list[int]:
    """Each value as the difference to the one of its kind before it."""
    newest = dict.fromkeys(_KINDS, 0)
    grown = []
    for kind, value in zip(kinds, values, strict=True):
        grown.append(value - newest[kind])
        newest[kind] = value
    return grown


def _summed(kinds: Sequence[int], grown: Sequence[object]) -> list[int]:
    """The values again."""
    newest = dict.fromkeys(range(max(_KINDS) + 1), 0)
    values = []
    for kind, more in zip(kinds, grown, strict=False):
        value = newest[kind] + more if type(more) is int else -1
        if not 0 <= value < _WORD:
            raise MalformedError("events of which a value is none")
        newest[kind] = value
        values.append(value)
    return values


def _column(fields: Mapping[str, object], name: str, limit: int) -> list[int]:
    column = items(fields.get(name), _MOST_EVENTS)
    numbers = [value for value in column if type(value) is int and 0 <= value < limit]
    if len(numbers) != len(column):
        raise MalformedError(f"events of which a {name} is none")
    return numbers


def _decode_left_out(value: object) -> tuple[tuple[tuple[int | None, int], ...], bool]:
    is_whole, *told = items(value, 2 + MAX_OWNERS_LISTED) or [True]
    pairs = [row(pair, 2, "who has rings that are not read: a uid and a number") for pair in told]
    left_out = [(None if uid is None else whole(uid), whole(count)) for uid, count in pairs]
    return tuple(left_out), is_whole is True


def _decode_present(value: object) -> RingEvent:
    at_ns, phase, mode = map(whole, row(value, 3, "what a training does: stamp, phase and mode"))
    if phase >= len(PHASES):
        raise MalformedError("what a training does is no phase")
    return RingEvent(RingKind.ENTER, at_ns, PHASES[phase], mode)


def _decode_phases(
    document: object, known_ns: Mapping[TrainingPhase, int]
) -> dict[TrainingPhase, int]:
    spent = dict(known_ns)
    for name, spent_ns in mapping(document).items():
        spent[phase_named(name)] = whole(spent_ns)
    return {phase: spent[phase] for phase in PHASES if phase in spent}
