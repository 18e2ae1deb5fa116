"""Readings of phase rings and host evidence in a recording; of rings, only what changed.

A block can be read alone, as with frames. Because a ring's events continue from the block before,
a block also contains the phase of each run when the block began: a reader that lost the block
before continues from there.
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
    number,
    row,
    text,
    whole,
)
from gpumon.core.owner_quotas import MAX_OWNERS_LISTED
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
from gpumon.core.waits.evidence import (
    MAX_TASKS,
    NO_READING,
    HostEvidence,
    HostReading,
    ProcessState,
    TaskSample,
)
from gpumon.errors import RingError

_TOLERANCE_NS: Final = NS_PER_S
"""How far a timestamp may lie outside its run."""
_MAX_READING_NS: Final = 60 * NS_PER_S
_MAX_RUNS: Final = 1_024
_MAX_EVENTS: Final = 1 << 20
_VALUE_LIMIT: Final = 1 << 64
_KINDS: Final = frozenset(int(kind) for kind in RingKind)
_READING: Final = FieldCodec(
    RingReading,
    KEPT._replace(writes_none=True),
    "key alive host_pid owner_uid ended_ns steps samples epoch",
)


_EVIDENCE: Final = FieldCodec(
    HostEvidence,
    KEPT,
    "start_ns end_ns waiting_ratio main threads? workers? read_bytes_per_second"
    " major_faults_per_second disk_busy_ratio disk_read_bytes_per_second"
    " received_bytes_per_second memory_stalled_ratio refaults_per_second usable_cores"
    " throttled_ratio",
    {TaskSample: "on_cpu_cores queued_cores switches_per_second state sleeps_in"},
)
_PROCESS: Final = FieldCodec(ProcessState, KEPT, "is_stopped sleeps_in")


class RingsWriter:
    """Writes the ring readings of a block.

    Args:
        present: The phase of each run, by ring: kept from block to block.
    """

    def __init__(self, present: dict[str, RingEvent]) -> None:
        self._present = present
        self._rings: dict[str, tuple[int, RingReading]] = {}  # its number and last reading
        self._before = RingsReading()

    def encode(self, rings: RingsReading, at_ns: int) -> dict[str, Any]:
        """One reading of all rings, its timestamps relative to ``at_ns``."""
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
        """What changed in a ring; only its number if nothing did."""
        position, before = self._rings.get(reading.key, (len(self._rings), None))
        document = _changes(reading, before)
        # A run that has ended is not read again.
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
    """Reads the ring readings of a block.

    Args:
        is_after_gap: Whether a block is missing before this one.
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
        if read_at_ns > at_ns + _MAX_READING_NS:
            raise MalformedError("rings read long after their tick")
        listed = items(fields.get("rings", []), _MAX_RUNS)
        changed["rings"] = tuple([self._ring(one, read_at_ns) for one in listed])
        self._before = replace(self._before, **changed)
        return self._before

    def _ring(self, document: object, newest_ns: int) -> RingReading:
        fields = {"ring": document} if type(document) is int else mapping(document)
        position = whole(fields.get("ring"))
        if position > len(self._rings) or position >= _MAX_RUNS:
            raise MalformedError(f"ring {position} before the one before it")
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
                raise MalformedError("an incomplete first reading of a ring") from error
            self._rings.append(reading)
        else:
            reading = self._rings[position] = self._rings[position]._replace(**changed)
        _check_times(reading)
        return reading


def _decode_facts(document: object) -> RunFacts:
    try:
        return parse_facts(json.dumps(mapping(document)).encode("utf-8", "surrogatepass"))
    except (RingError, RecursionError) as error:
        raise MalformedError(str(error)) from error


def _changes(reading: RingReading, before: RingReading | None) -> dict[str, Any]:
    """The lasting fields that changed; all of them in the first reading."""
    document = _READING.encode(reading, since=before)
    if before is None or before.facts != reading.facts:
        document["facts"] = json.loads(encode_facts(reading.facts))
    known_ns = {} if before is None else before.phase_ns
    spent = {p.value: ns for p, ns in reading.phase_ns.items() if known_ns.get(p) != ns}
    if spent:
        document["phase_ns"] = spent
    return document


def _check_times(reading: RingReading) -> None:
    """Refuse times that the daemon would have refused in the ring itself."""
    earliest_ns = reading.facts.started_ns - _TOLERANCE_NS
    latest_ns = reading.read_at_ns + _TOLERANCE_NS
    if sum(reading.phase_ns.values()) > max(_TOLERANCE_NS, latest_ns - reading.facts.started_ns):
        raise MalformedError("a ring with more time than has passed")
    if reading.ended_ns is not None and not earliest_ns <= reading.ended_ns <= latest_ns:
        raise MalformedError("a ring that ended before its start or after its reading")
    stamps_ns = reading.events.stamps_ns
    if stamps_ns and not earliest_ns <= min(stamps_ns) <= max(stamps_ns) <= latest_ns:
        raise MalformedError("a ring with events before its start or after its reading")


def _encode_events(events: RingRecords) -> dict[str, Any]:
    """Events as columns: differences of timestamps, and of values within their kind."""
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
    values = _summed(kinds, items(fields.get("more"), _MAX_EVENTS))
    gaps_ns = items(fields.get("after_ns"), _MAX_EVENTS)
    if not len(kinds) == len(phases) == len(values) == len(gaps_ns) or not _KINDS.issuperset(kinds):
        raise MalformedError("event columns that do not match")
    stamps_ns, at_ns = [], 0
    for gap_ns in gaps_ns:
        at_ns = whole(at_ns + difference(gap_ns))
        stamps_ns.append(at_ns)
    return RingRecords(bytes(kinds), bytes(phases), stamps_ns, array("Q", values))


def _grown(kinds: Sequence[int], values: Sequence[int]) -> list[int]:
    """Each value minus the previous one of its kind."""
    newest = dict.fromkeys(_KINDS, 0)
    grown = []
    for kind, value in zip(kinds, values, strict=True):
        grown.append(value - newest[kind])
        newest[kind] = value
    return grown


def _summed(kinds: Sequence[int], grown: Sequence[object]) -> list[int]:
    """Reverse ``_grown``."""
    newest = dict.fromkeys(range(max(_KINDS) + 1), 0)
    values = []
    for kind, more in zip(kinds, grown, strict=False):
        value = newest[kind] + more if type(more) is int else -1
        if not 0 <= value < _VALUE_LIMIT:
            raise MalformedError("an event value out of range")
        newest[kind] = value
        values.append(value)
    return values


def _column(fields: Mapping[str, object], name: str, limit: int) -> list[int]:
    column = items(fields.get(name), _MAX_EVENTS)
    numbers = [value for value in column if type(value) is int and 0 <= value < limit]
    if len(numbers) != len(column):
        raise MalformedError(f"an event {name} out of range")
    return numbers


def _decode_left_out(value: object) -> tuple[tuple[tuple[int | None, int], ...], bool]:
    is_whole, *owners = items(value, 2 + MAX_OWNERS_LISTED) or [True]
    pairs = [row(pair, 2) for pair in owners]
    left_out = [(None if uid is None else whole(uid), whole(count)) for uid, count in pairs]
    return tuple(left_out), is_whole is True


def _decode_present(value: object) -> RingEvent:
    at_ns, phase, mode = map(whole, row(value, 3))
    if phase >= len(PHASES):
        raise MalformedError("a present phase that does not exist")
    return RingEvent(RingKind.ENTER, at_ns, PHASES[phase], mode)


def _decode_phases(
    document: object, known_ns: Mapping[TrainingPhase, int]
) -> dict[TrainingPhase, int]:
    spent = dict(known_ns)
    for name, spent_ns in mapping(document).items():
        spent[phase_named(name)] = whole(spent_ns)
    return {phase: spent[phase] for phase in PHASES if phase in spent}


def encode_host(host: HostReading) -> dict[str, Any]:
    """Host evidence of one tick, by ring; empty where there was none."""
    if host == NO_READING:
        return {}
    document: dict[str, Any] = {
        "runs": {key: _EVIDENCE.encode(evidence) for key, evidence in host.of_run.items()},
        "took_s": host.took_seconds,
    }
    if host.processes:
        document["processes"] = {key: _PROCESS.encode(one) for key, one in host.processes.items()}
    if host.message is not None:
        document["message"] = bounded(host.message)
    return document


def decode_host(document: object) -> HostReading:
    """Host evidence of one tick, or ``MalformedError``."""
    fields = mapping(document)
    if not fields:
        return NO_READING
    runs, processes = mapping(fields.get("runs", {})), mapping(fields.get("processes", {}))
    if max(len(runs), len(processes)) > _MAX_RUNS:
        raise MalformedError("host evidence of too many runs")
    of_run = {key: _EVIDENCE.decode(evidence) for key, evidence in runs.items()}
    for one in of_run.values():
        if not 0 < one.end_ns - one.start_ns <= _MAX_READING_NS:
            raise MalformedError("host evidence over an impossible time")
        if max(len(one.threads), len(one.workers)) > MAX_TASKS:
            raise MalformedError("host evidence of too many tasks")
    message = fields.get("message")
    return HostReading(
        of_run=of_run,
        processes={key: _PROCESS.decode(state) for key, state in processes.items()},
        took_seconds=number(fields.get("took_s", 0.0)),
        message=None if message is None else text(message),
    )
