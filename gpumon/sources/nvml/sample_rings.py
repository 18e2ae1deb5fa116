"""Drains the driver's sample rings of all GPUs in one go, into reused buffers.

``map`` over a C function with columns of arguments runs no Python between two calls, which is
most of what such a loop costs. Handles and addresses do not change, so they are converted once:
``from_param`` is what ctypes would do with each of them in each call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from time import perf_counter_ns
from typing import Any, Final

from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.codes import INSUFFICIENT_SIZE, NO_ERROR, SUCCESS
from gpumon.sources.nvml.fields.table import SAMPLES
from gpumon.sources.nvml.stamp_clock import Entry

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
"""What the driver keeps samples of; the position is NVML's number."""

POWER_SAMPLES: Final = SAMPLE_KINDS.index("power")
UTILIZATION_SAMPLES: Final = SAMPLE_KINDS.index("gpu_utilization")

_SAMPLES: Final = SAMPLES.function
_ENTRY_BYTES: Final = 16
_VALUE_TYPES: Final = (
    ("double", Struct("<Qd")),
    ("unsigned int", Struct("<QIxxxx")),
    ("unsigned long", Struct("<QQ")),
    ("unsigned long long", Struct("<QQ")),
    ("signed long long", Struct("<Qq")),
    ("signed int", Struct("<Qixxxx")),
    ("unsigned short", Struct("<QHxxxxxx")),
)
"""The types of values, by NVML's number: the name in C, and an entry's layout."""

_UNSIGNED_INT: Final = 1
_FIRST_CAPACITY: Final = 128
_LARGEST_CAPACITY: Final = 1 << 16


class SampleRings:
    """The driver's sample rings of one kind, for several GPUs, one call each.

    Attributes:
        codes: Each GPU's last code. 6 NOT_FOUND (nothing new) is normal.
    """

    def __init__(
        self, library: NvmlLibrary, handles: Sequence[int], kind: int = UTILIZATION_SAMPLES
    ) -> None:
        number = len(handles)
        self._handles = _pointers(handles)
        self._kind = [ctypes.c_int.from_param(kind)] * number
        self._kinds_in_c = (ctypes.c_int * number)()
        self._counts_in_c = (ctypes.c_uint * number)()
        self._positions = [ctypes.c_ulonglong() for _ in handles]
        self._accounts = library.accounts
        self._call = library.function(_SAMPLES)
        self.codes = [SUCCESS] * number
        self._make_room(_FIRST_CAPACITY)

    def _make_room(self, capacity: int) -> None:
        number = len(self._handles)
        self._capacity = capacity
        self._stride = capacity * _ENTRY_BYTES
        self._buffer = (ctypes.c_char * (self._stride * number))()
        self._bytes = memoryview(self._buffer).cast("B")
        self._columns = (
            self._handles,
            self._kind,
            self._positions,
            _pointers_into(self._kinds_in_c, ctypes.sizeof(ctypes.c_int)),
            _pointers_into(self._counts_in_c, ctypes.sizeof(ctypes.c_uint)),
            _pointers_into(self._buffer, self._stride),
        )

    @property
    def value_types(self) -> list[str]:
        types = dict(enumerate(name for name, _ in _VALUE_TYPES))
        return [types.get(kind, f"type {kind}") for kind in self._kinds_in_c]

    def drain(self, last_seen_us: Mapping[int, int]) -> dict[int, list[Entry]]:
        """Drain some of the rings, given the newest stamp that is known of each.

        Args:
            last_seen_us: By the number of the GPU among ``handles``.

        Returns:
            Each GPU's newer entries, oldest first, by the same numbers. ``codes`` of the other
            GPUs are 0.
        """
        started_ns = perf_counter_ns()
        capacity, numbers = self._capacity, list(last_seen_us)
        for number, seen_us in last_seen_us.items():
            self._positions[number].value = seen_us
            self._counts_in_c[number] = capacity
        columns = ([column[number] for number in numbers] for column in self._columns)
        answers = list(map(self._call, *columns))
        self._accounts.count_call(_SAMPLES, perf_counter_ns() - started_ns, calls=len(numbers))
        codes = self.codes = [SUCCESS] * len(self._positions)
        counts = {}
        for number, code in zip(numbers, answers, strict=True):
            codes[number] = code
            counts[number] = capacity * (code == INSUFFICIENT_SIZE)
            if code == SUCCESS:
                counts[number] = min(self._counts_in_c[number], capacity)
        if any(answers):
            self._count_errors()
        if capacity in counts.values() and capacity < _LARGEST_CAPACITY:
            # A full buffer may have left entries out: repeat with a larger one.
            self._make_room(2 * capacity)
            return self.drain(last_seen_us)
        return {
            number: self._entries(number, count if codes[number] == SUCCESS else 0)
            for number, count in counts.items()
        }

    def _entries(self, index: int, count: int) -> list[Entry]:
        """Decode entries of the type that the driver names with each answer."""
        kind = self._kinds_in_c[index]
        _, layout = _VALUE_TYPES[kind if 0 <= kind < len(_VALUE_TYPES) else _UNSIGNED_INT]
        start = index * self._stride
        return list(layout.iter_unpack(self._bytes[start : start + _ENTRY_BYTES * count]))

    def _count_errors(self) -> None:
        fixable = {INSUFFICIENT_SIZE} if self._capacity < _LARGEST_CAPACITY else set()
        for code in self.codes:
            if code not in NO_ERROR and code not in fixable:
                self._accounts.count_error(_SAMPLES, code)


def _pointers(addresses: Iterable[int]) -> list[Any]:
    return [ctypes.c_void_p.from_param(address) for address in addresses]


def _pointers_into(array: ctypes.Array[Any], step: int) -> list[Any]:
    first = ctypes.addressof(array)
    return _pointers(range(first, first + ctypes.sizeof(array), step))
