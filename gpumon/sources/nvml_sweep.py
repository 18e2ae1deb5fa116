"""One call on every GPU, made in one go into buffers that are kept: the hot part of a tick.

``map`` over a C function with columns of arguments runs without a line of
Python between two calls, which is most of what such a loop costs.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Iterable, Sequence
from itertools import repeat
from struct import Struct
from time import perf_counter_ns
from typing import Any, Final

from gpumon.sources.nvml_binding import INSUFFICIENT_SIZE, SUCCESS, NvmlLibrary
from gpumon.sources.nvml_clock import Entry

_UTILIZATION: Final = repeat(1)
"""NVML_GPU_UTILIZATION_SAMPLES, for as many GPUs as there are."""
_ENTRY_BYTES: Final = 16
_ENTRY_FORMATS: Final = {
    0: Struct("<Qd"),
    1: Struct("<QIxxxx"),
    2: Struct("<QQ"),
    3: Struct("<QQ"),
    4: Struct("<Qq"),
    5: Struct("<Qixxxx"),
    6: Struct("<QHxxxxxx"),
}
_UNKNOWN_FORMAT: Final = _ENTRY_FORMATS[1]
_FIRST_CAPACITY: Final = 128
_LARGEST_CAPACITY: Final = 1 << 16


class PowerSweep:
    """Board power of several GPUs.

    Attributes:
        codes: What each GPU answered last.
    """

    def __init__(self, library: NvmlLibrary, handles: Sequence[int]) -> None:
        self._handles = list(handles)
        milliwatts = (ctypes.c_uint * len(self._handles))()
        self._places = _addresses(milliwatts, ctypes.sizeof(ctypes.c_uint))
        self._milliwatts = memoryview(milliwatts).cast("B").cast("I")
        self._call = library.function("nvmlDeviceGetPowerUsage", ctypes.c_void_p, ctypes.c_void_p)
        self._stopwatch = library.stopwatch("nvmlDeviceGetPowerUsage")
        self.codes = [SUCCESS] * len(self._handles)

    def read(self) -> list[int]:
        """Milliwatts of each GPU; they mean something only where its code is 0."""
        started_ns = perf_counter_ns()
        self.codes = list(map(self._call, self._handles, self._places))
        self._stopwatch[0] += perf_counter_ns() - started_ns
        return self._milliwatts.tolist()


class RingSweep:
    """The driver's rings of utilisation samples, of several GPUs, one call each.

    Attributes:
        codes: What each GPU answered last. 6 NOT_FOUND (nothing new) is normal.
        counts: How many entries each brought.
    """

    def __init__(self, library: NvmlLibrary, handles: Sequence[int]) -> None:
        self._library = library
        self._handles = list(handles)
        self._value_types = (ctypes.c_int * len(self._handles))()
        rooms = (ctypes.c_uint * len(self._handles))()
        self._rooms_at = _addresses(rooms, ctypes.sizeof(ctypes.c_uint))
        self._rooms = memoryview(rooms).cast("B").cast("I")
        self._stopwatch = library.stopwatch("nvmlDeviceGetSamples")
        self._call = library.function(
            "nvmlDeviceGetSamples",
            ctypes.c_void_p,
            ctypes.c_int,
            ctypes.c_ulonglong,
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_void_p,
        )
        self.codes = [SUCCESS] * len(self._handles)
        self.counts = [0] * len(self._handles)
        self._make_room(_FIRST_CAPACITY)

    def _make_room(self, capacity: int) -> None:
        number = len(self._handles)
        self._capacity = capacity
        self._stride = capacity * _ENTRY_BYTES
        self._full = memoryview(array("I", [capacity] * number))
        self._buffer = (ctypes.c_char * (self._stride * number))()
        self._bytes = memoryview(self._buffer).cast("B")
        self._words = self._bytes.cast("Q")
        self._places = (
            _addresses(self._value_types, ctypes.sizeof(ctypes.c_int)),
            self._rooms_at,
            _addresses(self._buffer, self._stride),
        )

    def drain(self, last_seen_us: Sequence[int]) -> None:
        """Fetch what is newer than each GPU's stamp of ``last_seen_us``."""
        started_ns = perf_counter_ns()
        self._rooms[:] = self._full
        self.codes = list(map(self._call, self._handles, _UTILIZATION, last_seen_us, *self._places))
        self.counts = self._rooms.tolist()
        self._stopwatch[0] += perf_counter_ns() - started_ns
        if any(self.codes):
            self._discount_failures()
        if max(self.counts, default=0) >= self._capacity < _LARGEST_CAPACITY:
            # A buffer that came back full may have left something out: ask again, with room.
            self._make_room(2 * self._capacity)
            self.drain(last_seen_us)

    def _discount_failures(self) -> None:
        short = self._capacity if self._capacity < _LARGEST_CAPACITY else 0
        counts_of_failures = {
            code: short if code == INSUFFICIENT_SIZE else 0 for code in self.codes
        }
        self.counts = [
            count if code == SUCCESS else counts_of_failures[code]
            for code, count in zip(self.codes, self.counts, strict=True)
        ]

    def newest_us(self, place: int) -> int:
        """The stamp of that GPU's last entry; only where its count is not 0."""
        return self._words[(place * self._stride >> 3) + 2 * self.counts[place] - 2]

    def entries(self, place: int) -> Iterable[Entry]:
        """What that GPU's last drain brought, oldest first; read it before the next."""
        format_ = _ENTRY_FORMATS.get(self._value_types[place], _UNKNOWN_FORMAT)
        start = place * self._stride
        return format_.iter_unpack(self._bytes[start : start + _ENTRY_BYTES * self.counts[place]])

    def all_entries(self) -> list[Iterable[Entry]]:
        """The same of every GPU, each to be read once, and an empty one behind."""
        held, stride = self._bytes, self._stride
        rows: list[Iterable[Entry]] = []
        start = 0
        for kind, count in zip(self._value_types, self.counts, strict=True):
            format_ = _ENTRY_FORMATS.get(kind, _UNKNOWN_FORMAT)
            rows.append(format_.iter_unpack(held[start : start + _ENTRY_BYTES * count]))
            start += stride
        rows.append(())
        return rows


def _addresses(array: ctypes.Array[Any], step: int) -> list[int]:
    first = ctypes.addressof(array)
    return list(range(first, first + ctypes.sizeof(array), step))
