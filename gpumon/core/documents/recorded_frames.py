"""Frames of a source as JSON objects and back, each telling only what is new since the one before.

A writer and a reader go through a block of a recording side by side: both
begin each block knowing nothing, so that a block says all by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from gpumon.core.documents.flat_codec import (
    FlatCodec,
    MalformedError,
    items,
    mapping,
    number,
    plain,
    text,
    whole,
)
from gpumon.core.sample import (
    ActivitySample,
    BusySample,
    Device,
    FieldFault,
    Frame,
    GpuDetails,
    GpuSample,
    ProcessSample,
    checked_busy_sample,
)
from gpumon.errors import InvalidSampleError

_MOST_GPUS: Final = 1_024
_MOST_BUSY: Final = 65_536
_MOST_PROCESSES: Final = 65_536
_MOST_CALLS: Final = 1_024
_MOST_XIDS: Final = 4_096
_MOST_FAULTS: Final = 256

_DEVICE: Final = FlatCodec(Device)
_DETAILS: Final = FlatCodec(GpuDetails)
_ACTIVITY: Final = FlatCodec(ActivitySample)
_PROCESS: Final = FlatCodec(ProcessSample)
_FAULT: Final = FlatCodec(FieldFault)
_NESTED: Final = ("device", "busy", "processes", "details", "activity", "xid_errors", "faults")
_SAMPLE: Final = FlatCodec(GpuSample, without=_NESTED)

_Kept = TypeVar("_Kept")


def encode_device(device: Device) -> dict[str, Any]:
    """A board's identity."""
    return _DEVICE.encode(device)


def decode_device(document: object) -> Device:
    """A board's identity, or ``MalformedError``."""
    return _DEVICE.decode(document)


class _Told(NamedTuple):
    """What a block has told of one GPU so far."""

    position: int
    sample: GpuSample
    busy_until_ns: int


class FrameWriter:
    """Writes the frames of a block."""

    def __init__(self) -> None:
        self._gpus: dict[str, _Told] = {}
        self._calls = _Sums("calls")
        self._counts = _Sums("call_counts")
        self._errors: tuple[tuple[str, int, int], ...] = ()

    def encode(self, frame: Frame, at_ns: int) -> dict[str, Any]:
        """One frame.

        Args:
            frame: What the source said.
            at_ns: The stamp that the frame's own counts from.
        """
        document: dict[str, Any] = {
            "after_ns": frame.taken_at_ns - at_ns,
            "gpus": [self._gpu(sample, at_ns) for sample in frame.gpus],
        }
        if frame.rejected:
            document["rejected"] = frame.rejected
        if frame.trouble is not None:
            document["trouble"] = plain(frame.trouble)
        self._calls.write(document, frame.call_seconds)
        self._counts.write(document, frame.call_counts)
        if frame.call_errors != self._errors:
            document["call_errors"] = [[*error] for error in frame.call_errors]
            self._errors = frame.call_errors
        return document

    def _gpu(self, sample: GpuSample, at_ns: int) -> dict[str, Any]:
        uuid = sample.device.uuid
        told = self._gpus.get(uuid)
        document: dict[str, Any] = {"gpu": len(self._gpus) if told is None else told.position}
        before = None if told is None else told.sample
        if before is None or before.device != sample.device:
            document["device"] = _DEVICE.encode(sample.device)
        until_ns = at_ns if told is None else told.busy_until_ns
        if sample.busy:
            document["busy"], until_ns = _encode_busy(sample.busy, until_ns)
        for name in _SAMPLE.names:
            value = getattr(sample, name)
            if value != (None if before is None else getattr(before, name)):
                document[name] = plain(value)
        _write_nested(document, before, sample)
        position = document["gpu"]
        self._gpus[uuid] = _Told(position, sample, until_ns)
        return document


class FrameReader:
    """Reads the frames of one block after another.

    Args:
        known: What the block before told: an object that comes again in equal
            words stays the same object.
    """

    def __init__(self, known: FrameReader | None = None) -> None:
        self._gpus: list[_Told] = []
        self._calls, self._counts = _Sums("calls"), _Sums("call_counts")
        self._errors: tuple[tuple[str, int, int], ...] = ()
        self._known = {} if known is None else {one.sample.device.uuid: one for one in known._gpus}

    def decode(self, document: object, at_ns: int) -> Frame:
        """One frame, or ``MalformedError``."""
        fields = mapping(document)
        gpus = items(fields.get("gpus"), _MOST_GPUS)
        trouble = fields.get("trouble")
        if "call_errors" in fields:
            self._errors = _decode_errors(fields["call_errors"])
        return Frame(
            taken_at_ns=at_ns + _offset(fields.get("after_ns")),
            gpus=tuple([self._gpu(mapping(gpu), at_ns) for gpu in gpus]),
            rejected=whole(fields.get("rejected", 0)),
            call_seconds=self._calls.read(fields, number),
            trouble=None if trouble is None else text(trouble),
            call_counts=self._counts.read(fields, whole),
            call_errors=self._errors,
        )

    def _gpu(self, fields: Mapping[str, object], at_ns: int) -> GpuSample:
        position = whole(fields.get("gpu"))
        if position > len(self._gpus):
            raise MalformedError("a GPU that nobody introduced")
        told = self._gpus[position] if position < len(self._gpus) else None
        if told is None:
            device = _DEVICE.decode(fields.get("device"))
            known = self._known.get(device.uuid)
            before = GpuSample(device=_same(device, None if known is None else known.sample.device))
            until_ns = at_ns
        else:
            known, before, until_ns = self._known.get(told.sample.device.uuid), *told[1:]
            if "device" in fields:
                before = before._replace(device=_DEVICE.decode(fields["device"]))
        busy, until_ns = _decode_busy(fields.get("busy", []), until_ns)
        changed = _SAMPLE.values(fields)
        changed.update(_read_nested(fields, None if known is None else known.sample))
        sample = before._replace(busy=busy, **changed)
        self._gpus[position : position + 1] = [_Told(position, sample, until_ns)]
        if len(self._gpus) > _MOST_GPUS:
            raise MalformedError("too many GPUs")
        return sample


class _Sums:
    """Sums by name of a driver function: all of them once a block, then those that grew."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._known: dict[str, Any] = {}

    def write(self, document: dict[str, Any], sums: Sequence[tuple[str, float]]) -> None:
        told = dict(sums)
        if told.keys() == self._known.keys():
            grown = {name: value for name, value in told.items() if value != self._known[name]}
            if grown:
                document[self._name] = grown
        else:
            document[f"all_{self._name}"] = told
        self._known = told

    def read(
        self, fields: Mapping[str, object], checked: Callable[[object], Any]
    ) -> tuple[tuple[str, Any], ...]:
        if f"all_{self._name}" in fields:
            self._known = {}
        for key in (f"all_{self._name}", self._name):
            for function, value in mapping(fields.get(key, {})).items():
                self._known[text(function)] = checked(value)
        if len(self._known) > _MOST_CALLS:
            raise MalformedError("too many driver functions")
        return tuple(self._known.items())


def _write_nested(document: dict[str, Any], before: GpuSample | None, sample: GpuSample) -> None:
    """What is itself a record or a list of some: only where it has become another."""
    told = GpuSample(device=sample.device) if before is None else before
    if sample.details != told.details:
        document["details"] = None if sample.details is None else _DETAILS.encode(sample.details)
    if sample.activity != told.activity:
        document["activity"] = (
            None if sample.activity is None else _ACTIVITY.encode(sample.activity)
        )
    if sample.processes != told.processes:
        processes = sample.processes
        document["processes"] = (
            None if processes is None else [_PROCESS.encode(process) for process in processes]
        )
    if sample.xid_errors != told.xid_errors:
        document["xid_errors"] = [[*pair] for pair in sample.xid_errors]
    if sample.faults != told.faults:
        document["faults"] = [_FAULT.encode(fault) for fault in sample.faults]


def _read_nested(fields: Mapping[str, object], known: GpuSample | None) -> dict[str, Any]:
    """The nested fields that a sample tells anew."""
    changed: dict[str, Any] = {}
    readers: tuple[tuple[str, Callable[[object], Any]], ...] = (
        ("details", _DETAILS.decode),
        ("activity", _ACTIVITY.decode),
        ("processes", _decode_processes),
        ("xid_errors", _decode_xids),
        ("faults", _decode_faults),
    )
    for name, read in readers:
        if name in fields:
            value = None if fields[name] is None else read(fields[name])
            changed[name] = _same(value, None if known is None else getattr(known, name))
    if changed.get("xid_errors", ()) is None or changed.get("faults", ()) is None:
        raise MalformedError("no list of errors")
    return changed


def _same(value: _Kept, known: _Kept | None) -> _Kept:
    """The object that is known already, where the new one is equal to it."""
    return known if known is not None and known == value else value


def _encode_busy(busy: Sequence[BusySample], until_ns: int) -> tuple[list[list[Any]], int]:
    """Each sample as the gap before it, its length and its ratio; and where the last one ends."""
    rows: list[list[Any]] = []
    for start_ns, end_ns, ratio in busy:
        rows.append([start_ns - until_ns, end_ns - start_ns, ratio])
        until_ns = end_ns
    return rows, until_ns


def _decode_busy(rows: object, until_ns: int) -> tuple[tuple[BusySample, ...], int]:
    busy = []
    for row in items(rows, _MOST_BUSY):
        values = items(row, 3)
        if len(values) != 3:
            raise MalformedError("a sample is a gap, a length and a ratio")
        start_ns = until_ns + _offset(values[0])
        end_ns = start_ns + whole(values[1])
        try:
            busy.append(checked_busy_sample(start_ns, end_ns, number(values[2])))
        except InvalidSampleError as error:
            raise MalformedError(str(error)) from error
        until_ns = end_ns
    whole(max(0, until_ns))
    return tuple(busy), until_ns


def _decode_processes(value: object) -> tuple[ProcessSample, ...]:
    return tuple(_PROCESS.decode(one) for one in items(value, _MOST_PROCESSES))


def _decode_errors(value: object) -> tuple[tuple[str, int, int], ...]:
    errors = []
    for error in items(value, _MOST_CALLS):
        if len(values := items(error, 3)) != 3:
            raise MalformedError("an error of a call is its function, a code and a count")
        errors.append((text(values[0]), whole(values[1]), whole(values[2])))
    return tuple(errors)


def _decode_faults(value: object) -> tuple[FieldFault, ...]:
    return tuple(_FAULT.decode(one) for one in items(value, _MOST_FAULTS))


def _decode_xids(value: object) -> tuple[tuple[int, int], ...]:
    pairs = []
    for pair in items(value, _MOST_XIDS):
        if len(values := items(pair, 2)) != 2:
            raise MalformedError("an error is its number and a count")
        pairs.append((whole(values[0]), whole(values[1])))
    return tuple(pairs)


def _offset(value: object) -> int:
    """A difference of stamps, which may be negative."""
    if type(value) is not int:
        raise MalformedError("no difference of stamps")
    return whole(abs(value)) * (1 if value >= 0 else -1)
