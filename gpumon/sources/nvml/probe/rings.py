"""The driver's rings of samples, one of each kind: how deep, how fast, stamped how."""

from __future__ import annotations

import ctypes
import statistics
from collections.abc import Sequence
from itertools import pairwise
from time import perf_counter_ns
from typing import Final, NamedTuple

import pynvml

from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.codes import INSUFFICIENT_SIZE, SUCCESS, code_name

SAMPLE_KINDS: Final = (
    "power",
    "gpu_utilization",
    "memory_utilization",
    "encoder_utilization",
    "decoder_utilization",
    "sm_clock",
    "memory_clock",
    "module_power",
    "jpeg_utilization",
    "ofa_utilization",
)
"""What the driver keeps samples of, each name in the place of NVML's number."""

VALUE_TYPES: Final = (
    ("double", "dVal"),
    ("unsigned int", "uiVal"),
    ("unsigned long", "ulVal"),
    ("unsigned long long", "ullVal"),
    ("signed long long", "sllVal"),
    ("signed int", "siVal"),
    ("unsigned short", "usVal"),
)
"""How values come, in the order of NVML's numbers, and where they lie in its union."""

_FIRST_CAPACITY: Final = 1 << 10
_LARGEST_CAPACITY: Final = 1 << 16


class RingEntry(NamedTuple):
    """One sample: the driver's stamp in microseconds, and its value."""

    stamp_us: int
    value: float


class RingDrain(NamedTuple):
    """What one drain brought.

    Attributes:
        code: The driver's answer.
        value_type: NVML's number of the type in which values came.
        entries: What is newer than was asked for, oldest first.
        call_ns: How long the call took.
    """

    code: int
    value_type: int
    entries: tuple[RingEntry, ...]
    call_ns: int


class RingTap:
    """One ring of one GPU, to be drained as often as one likes."""

    def __init__(self, library: NvmlLibrary, handle: int, kind: int) -> None:
        self._handle, self._kind = handle, kind
        self._call = library.function(
            "nvmlDeviceGetSamples",
            ctypes.c_void_p, ctypes.c_int, ctypes.c_ulonglong, *[ctypes.c_void_p] * 3,
        )  # fmt: skip
        self._type, self._count = ctypes.c_int(), ctypes.c_uint()
        self._make_room(_FIRST_CAPACITY)

    def _make_room(self, capacity: int) -> None:
        self._rooms = (pynvml.c_nvmlSample_t * capacity)()

    def drain(self, last_seen_us: int = 0) -> RingDrain:
        """All that is newer than that stamp."""
        while True:
            capacity = self._count.value = len(self._rooms)
            places = [ctypes.addressof(room) for room in (self._type, self._count, self._rooms)]
            started_ns = perf_counter_ns()
            code = self._call(self._handle, self._kind, last_seen_us, *places)
            call_ns = perf_counter_ns() - started_ns
            is_short = code == INSUFFICIENT_SIZE or self._count.value >= capacity
            if not is_short or capacity >= _LARGEST_CAPACITY or code not in _MAY_BE_SHORT:
                break
            self._make_room(2 * capacity)
        entries = self._entries(last_seen_us) if code == SUCCESS else ()
        return RingDrain(code, self._type.value, entries, call_ns)

    def _entries(self, last_seen_us: int) -> tuple[RingEntry, ...]:
        kind = self._type.value
        _, place = VALUE_TYPES[kind if 0 <= kind < len(VALUE_TYPES) else 1]
        found = self._rooms[: min(self._count.value, len(self._rooms))]
        return tuple(
            RingEntry(one.timeStamp, float(getattr(one.sampleValue, place)))
            for one in found
            if one.timeStamp > last_seen_us
        )


_MAY_BE_SHORT: Final = frozenset({SUCCESS, INSUFFICIENT_SIZE})


def value_type_name(number: int) -> str:
    """The type in which values come, by its C name."""
    return VALUE_TYPES[number][0] if 0 <= number < len(VALUE_TYPES) else f"type {number}"


def cadence_s(stamps_us: Sequence[int]) -> float | None:
    """The median distance of neighbouring stamps, in seconds; ``None`` of fewer than two."""
    steps = [(after - before) / 1e6 for before, after in pairwise(stamps_us)]
    return statistics.median(steps) if steps else None


def answer_of(code: int) -> str:
    """A code by NVML's name; empty for success."""
    return "" if code == SUCCESS else code_name(code)
