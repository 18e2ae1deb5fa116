"""Frames of a GPU source in a recording: each contains only what changed since the one before.

A ``FrameWriter`` and a ``FrameReader`` each serve one block, so that a block can be read alone.
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

MAX_GPUS: Final = 1_024
_MAX_BUSY_SAMPLES: Final = 65_536
_MAX_FUNCTIONS: Final = 1_024

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
    " energy_joules processes error details activity xid_errors? faults? processes_at_ns"
    " power_over_ns power_now_watts power_now_at_ns",
    {
        ProcessSample: "pid memory_used_bytes sm_ratio name user uid is_hidden? serves_others?",
        GpuDetails: DETAILS,
        ActivitySample: ACTIVITY,
        FieldFault: "field reason since_ns",
    },
)


class _Known(NamedTuple):
    """The state of one GPU within a block."""

    position: int
    sample: GpuSample
    busy_until_ns: int


class FrameWriter:
    """Writes the frames of a block."""

    def __init__(self) -> None:
        self._gpus: dict[str, _Known] = {}
        self._calls = _Sums("calls")
        self._counts = _Sums("call_counts")
        self._errors: tuple[tuple[str, int, int], ...] = ()

    def encode(self, frame: Frame, at_ns: int) -> dict[str, Any]:
        """One frame, its timestamps relative to ``at_ns``."""
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
        known = self._gpus.get(uuid)
        document: dict[str, Any] = {"gpu": len(self._gpus) if known is None else known.position}
        before = None if known is None else known.sample
        if before is None or before.device != sample.device:
            document["device"] = _DEVICE.encode(sample.device)
        until_ns = at_ns if known is None else known.busy_until_ns
        if sample.busy:
            document["busy"], until_ns = _encode_busy(sample.busy, until_ns)
        nothing = GpuSample(device=sample.device)
        document |= _SAMPLE.encode(sample, since=nothing if before is None else before)
        self._gpus[uuid] = _Known(document["gpu"], sample, until_ns)
        return document


class FrameReader:
    """Reads the frames of a block."""

    def __init__(self) -> None:
        self._gpus: list[_Known] = []
        self._calls, self._counts = _Sums("calls"), _Sums("call_counts")
        self._errors: tuple[tuple[str, int, int], ...] = ()

    def decode(self, document: object, at_ns: int) -> Frame:
        """One frame, or ``MalformedError``."""
        fields = mapping(document)
        gpus = items(fields.get("gpus"), MAX_GPUS)
        values = {"call_errors": self._errors, **_FRAME.values(fields)}
        self._errors = values["call_errors"]
        return Frame(
            taken_at_ns=at_ns + difference(fields.get("after_ns")),
            gpus=tuple([self._gpu(mapping(gpu), at_ns) for gpu in gpus]),
            call_seconds=self._calls.read(fields, number),
            call_counts=self._counts.read(fields, whole),
            **values,
        )

    def _gpu(self, fields: Mapping[str, object], at_ns: int) -> GpuSample:
        position = whole(fields.get("gpu"))
        if position > len(self._gpus):
            raise MalformedError(f"GPU {position} before its device")
        if position == len(self._gpus):
            before, until_ns = GpuSample(device=_DEVICE.decode(fields.get("device"))), at_ns
        else:
            _, before, until_ns = self._gpus[position]
            if "device" in fields:
                before = before._replace(device=_DEVICE.decode(fields["device"]))
        busy, until_ns = _decode_busy(fields.get("busy", []), until_ns)
        sample = before._replace(busy=busy, **_SAMPLE.values(fields))
        self._gpus[position : position + 1] = [_Known(position, sample, until_ns)]
        if len(self._gpus) > MAX_GPUS:
            raise MalformedError("too many GPUs")
        return sample


class _Sums:
    """Sums by driver function: all of them at the start of a block, then only those that grew."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._known: dict[str, Any] = {}

    def write(self, document: dict[str, Any], sums: Sequence[tuple[str, float]]) -> None:
        current = dict(sums)
        if current.keys() != self._known.keys():
            document[f"all_{self._name}"] = current
        elif grown := {k: value for k, value in current.items() if value != self._known[k]}:
            document[self._name] = grown
        self._known = current

    def read(
        self, fields: Mapping[str, object], checked: Callable[[object], Any]
    ) -> tuple[tuple[str, Any], ...]:
        if f"all_{self._name}" in fields:
            self._known = {}
        for key in (f"all_{self._name}", self._name):
            for function, value in mapping(fields.get(key, {})).items():
                self._known[text(function)] = checked(value)
        if len(self._known) > _MAX_FUNCTIONS:
            raise MalformedError("too many driver functions")
        return tuple(self._known.items())


def _encode_busy(busy: Sequence[BusySample], until_ns: int) -> tuple[list[list[Any]], int]:
    """Each sample as [gap before it, length, ratio]; and the end of the last one."""
    rows: list[list[Any]] = []
    for start_ns, end_ns, ratio in busy:
        rows.append([start_ns - until_ns, end_ns - start_ns, ratio])
        until_ns = end_ns
    return rows, until_ns


def _decode_busy(rows: object, until_ns: int) -> tuple[tuple[BusySample, ...], int]:
    busy = []
    for one in items(rows, _MAX_BUSY_SAMPLES):
        gap_ns, length_ns, ratio = row(one, 3)
        start_ns = until_ns + difference(gap_ns)
        end_ns = start_ns + whole(length_ns)
        try:
            busy.append(checked_busy_sample(start_ns, end_ns, number(ratio)))
        except InvalidSampleError as error:
            raise MalformedError(str(error)) from error
        until_ns = end_ns
    whole(max(0, until_ns))
    return tuple(busy), until_ns
