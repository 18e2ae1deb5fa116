"""Frames of a source as JSON objects and back, each telling only what is new since the one before.

A writer and a reader go through a block of a recording side by side: both
begin each block knowing nothing, so that a block says all by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from gpumon.core.codecs.field_codec import (
    KEPT,
    FieldCodec,
    MalformedError,
    difference,
    items,
    mapping,
    number,
    row,
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

MOST_GPUS: Final = 1_024
_MOST_BUSY: Final = 65_536
_MOST_CALLS: Final = 1_024

DEVICE: Final = (
    "uuid index name pci_bus_id driver_version memory_capacity_bytes mig_enabled? parent_uuid"
    " mig_index gpu_instance compute_instance"
)
DETAILS: Final = (
    "read_at_ns power_limit_watts sm_clock_max_hertz memory_clock_hertz performance_state"
    " throttle_reasons ecc_corrected_errors ecc_uncorrected_errors persistence_mode"
    " fan_speed_ratio encoder_ratio decoder_ratio pcie_transmitted_bytes_per_second"
    " pcie_received_bytes_per_second nvlink_transmitted_bytes_per_second"
    " nvlink_received_bytes_per_second"
)
ACTIVITY: Final = (
    "start_ns end_ns graphics_ratio sm_active_ratio sm_occupancy_ratio tensor_active_ratio"
    " memory_bandwidth_ratio"
)
_DEVICE: Final = FieldCodec(Device, KEPT, DEVICE)
_FRAME: Final = FieldCodec(Frame, KEPT, "rejected? trouble call_errors?")
_SAMPLE: Final = FieldCodec(
    GpuSample,
    KEPT,
    "utilization_ratio memory_used_bytes power_watts temperature_celsius sm_clock_hertz"
    " energy_joules processes error details activity xid_errors? faults? processes_at_ns",
    {
        ProcessSample: "pid memory_used_bytes sm_ratio name user uid is_hidden? serves_others?",
        GpuDetails: DETAILS,
        ActivitySample: ACTIVITY,
        FieldFault: "field reason since_ns",
    },
)


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
        """One frame; its stamps are told as what they are after ``at_ns``."""
        document: dict[str, Any] = {
            "after_ns": frame.taken_at_ns - at_ns,
            "gpus": [self._gpu(sample, at_ns) for sample in frame.gpus],
        }
        document |= _FRAME.encode(frame, since=Frame(taken_at_ns=0, call_errors=self._errors))
        self._errors = frame.call_errors
        self._calls.write(document, frame.call_seconds)
        self._counts.write(document, frame.call_counts)
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
        nothing = GpuSample(device=sample.device)
        document |= _SAMPLE.encode(sample, since=nothing if before is None else before)
        self._gpus[uuid] = _Told(document["gpu"], sample, until_ns)
        return document


class FrameReader:
    """Reads the frames of a block."""

    def __init__(self) -> None:
        self._gpus: list[_Told] = []
        self._calls, self._counts = _Sums("calls"), _Sums("call_counts")
        self._errors: tuple[tuple[str, int, int], ...] = ()

    def decode(self, document: object, at_ns: int) -> Frame:
        """One frame, or ``MalformedError``."""
        fields = mapping(document)
        gpus = items(fields.get("gpus"), MOST_GPUS)
        said = {"call_errors": self._errors, **_FRAME.values(fields)}
        self._errors = said["call_errors"]
        return Frame(
            taken_at_ns=at_ns + difference(fields.get("after_ns")),
            gpus=tuple([self._gpu(mapping(gpu), at_ns) for gpu in gpus]),
            call_seconds=self._calls.read(fields, number),
            call_counts=self._counts.read(fields, whole),
            **said,
        )

    def _gpu(self, fields: Mapping[str, object], at_ns: int) -> GpuSample:
        position = whole(fields.get("gpu"))
        if position > len(self._gpus):
            raise MalformedError("a GPU that nobody introduced")
        told = self._gpus[position] if position < len(self._gpus) else None
        if told is None:
            before, until_ns = GpuSample(device=_DEVICE.decode(fields.get("device"))), at_ns
        else:
            _, before, until_ns = told
            if "device" in fields:
                before = before._replace(device=_DEVICE.decode(fields["device"]))
        busy, until_ns = _decode_busy(fields.get("busy", []), until_ns)
        sample = before._replace(busy=busy, **_SAMPLE.values(fields))
        self._gpus[position : position + 1] = [_Told(position, sample, until_ns)]
        if len(self._gpus) > MOST_GPUS:
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


def _encode_busy(busy: Sequence[BusySample], until_ns: int) -> tuple[list[list[Any]], int]:
    """Each sample as the gap before it, its length and its ratio; and where the last one ends."""
    rows: list[list[Any]] = []
    for start_ns, end_ns, ratio in busy:
        rows.append([start_ns - until_ns, end_ns - start_ns, ratio])
        until_ns = end_ns
    return rows, until_ns


def _decode_busy(rows: object, until_ns: int) -> tuple[tuple[BusySample, ...], int]:
    busy = []
    for one in items(rows, _MOST_BUSY):
        gap_ns, length_ns, ratio = row(one, 3, "a sample: its gap, length and ratio")
        start_ns = until_ns + difference(gap_ns)
        end_ns = start_ns + whole(length_ns)
        try:
            busy.append(checked_busy_sample(start_ns, end_ns, number(ratio)))
        except InvalidSampleError as error:
            raise MalformedError(str(error)) from error
        until_ns = end_ns
    whole(max(0, until_ns))
    return tuple(busy), until_ns
