"""One call on every GPU, made in one go into buffers that are kept: the hot part of a tick.

``map`` over a C function with columns of arguments runs without a line of
Python between two calls, which is most of what such a loop costs. Handles and
places stay, so they are converted once: ``from_param`` is what ctypes would
do with each of them in each call.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from struct import Struct
from time import perf_counter_ns
from typing import Any, Final

from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.clock import Entry
from gpumon.sources.nvml.codes import INSUFFICIENT_SIZE, SUCCESS

SAMPLES: Final = "nvmlDeviceGetSamples"
POWER_USAGE: Final = "nvmlDeviceGetPowerUsage"

POWER_SAMPLES: Final = 0
UTILIZATION_SAMPLES: Final = 1
"""Kinds of samples, as ``nvmlSamplingType_t`` numbers them."""

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
    """Board power of several GPUs: what is called, with what, and where the answers lie.

    ``list(map(call, *columns))`` asks them all; whoever runs a tick does that
    in place, for a function more costs it more than the call of a GPU.

    Attributes:
        call: The driver's function.
        columns: Its arguments, a column each.
        milliwatts: What each GPU answered; it means something where its code is 0.
        codes: The codes of the last calls.
        accounts: Where errors are counted.
        stopwatch: The two numbers in which the time of all calls, in nanoseconds, and
            their number add up.
    """

    def __init__(self, library: NvmlLibrary, handles: Sequence[int]) -> None:
        milliwatts = (ctypes.c_uint * len(handles))()
        self.call = library.function(POWER_USAGE)
        self.columns = (_pointers(handles), _places_in(milliwatts, ctypes.sizeof(ctypes.c_uint)))
        self.milliwatts = memoryview(milliwatts).cast("B").cast("I")
        self.codes = [SUCCESS] * len(handles)
        self.accounts = library.accounts
        self.stopwatch = library.stopwatch(POWER_USAGE)


class RingSweep:
    """The driver's rings of samples of one kind, of several GPUs, one call each.

    Attributes:
        codes: What each GPU answered last. 6 NOT_FOUND (nothing new) is normal.
        counts: How many entries each brought.
    """

    def __init__(
        self, library: NvmlLibrary, handles: Sequence[int], kind: int = UTILIZATION_SAMPLES
    ) -> None:
        number = len(handles)
        self._handles = _pointers(handles)
        self._kind = repeat(ctypes.c_int.from_param(kind))
        self._kinds_in_c = (ctypes.c_int * number)()
        self._kinds = memoryview(self._kinds_in_c).cast("B").cast("i")
        self._known_kinds: list[int] = []
        self._unpackers: list[Callable[[memoryview], Iterator[Entry]]] = []
        self._rooms_in_c = (ctypes.c_uint * number)()
        self._rooms = memoryview(self._rooms_in_c).cast("B").cast("I")
        self._positions = [ctypes.c_ulonglong() for _ in handles]
        self._accounts = library.accounts
        self._stopwatch = library.stopwatch(SAMPLES)
        self._call = library.function(SAMPLES)
        self.codes = [SUCCESS] * number
        self.counts = [0] * number
        self._make_room(_FIRST_CAPACITY)

    def _make_room(self, capacity: int) -> None:
        number = len(self._handles)
        self._capacity = capacity
        self._stride = capacity * _ENTRY_BYTES
        self._full = memoryview(array("I", [capacity] * number))
        self._buffer = (ctypes.c_char * (self._stride * number))()
        self._bytes = memoryview(self._buffer).cast("B")
        self._words = self._bytes.cast("Q")
        self._columns = (
            self._handles,
            self._kind,
            self._positions,
            _places_in(self._kinds_in_c, ctypes.sizeof(ctypes.c_int)),
            _places_in(self._rooms_in_c, ctypes.sizeof(ctypes.c_uint)),
            _places_in(self._buffer, self._stride),
        )

    def drain(self, last_seen_us: Sequence[int]) -> list[Iterator[Entry]]:
        """Fetch what is newer than each GPU's stamp of ``last_seen_us``.

        Returns:
            What each brought, oldest first, to be read once and before the next drain.
        """
        started_ns = perf_counter_ns()
        self._rooms[:] = self._full
        for position, seen_us in zip(self._positions, last_seen_us, strict=True):
            position.value = seen_us
        self.codes = list(map(self._call, *self._columns))
        counts = self.counts = self._rooms.tolist()
        self._stopwatch[0] += perf_counter_ns() - started_ns
        self._stopwatch[1] += len(counts)
        if any(self.codes):
            counts = self._discount_failures()
            self._accounts.failed_of(SAMPLES, self._failures())
        if self._capacity in counts and self._capacity < _LARGEST_CAPACITY:
            # A buffer that came back full may have left something out: ask again, with room.
            self._make_room(2 * self._capacity)
            return self.drain(last_seen_us)
        if self._kinds.tolist() != self._known_kinds:
            self._choose_formats()
        held, start, rows = self._bytes, 0, []
        for unpack, count in zip(self._unpackers, counts, strict=True):
            rows.append(unpack(held[start : start + _ENTRY_BYTES * count]))
            start += self._stride
        return rows

    def _choose_formats(self) -> None:
        """Values come in the type that the driver names with each answer."""
        self._known_kinds = self._kinds.tolist()
        formats = [_ENTRY_FORMATS.get(kind, _UNKNOWN_FORMAT) for kind in self._known_kinds]
        self._unpackers = [format_.iter_unpack for format_ in formats]

    def _failures(self) -> list[int]:
        """Codes that no larger buffer mends."""
        mends = self._capacity < _LARGEST_CAPACITY
        return [code for code in self.codes if not (mends and code == INSUFFICIENT_SIZE)]

    def _discount_failures(self) -> list[int]:
        short = self._capacity if self._capacity < _LARGEST_CAPACITY else 0
        counts_of_failures = {
            code: short if code == INSUFFICIENT_SIZE else 0 for code in self.codes
        }
        self.counts = [
            count if code == SUCCESS else counts_of_failures[code]
            for code, count in zip(self.codes, self.counts, strict=True)
        ]
        return self.counts

    def newest_us(self, place: int) -> int:
        """The stamp of that GPU's last entry; only where its count is not 0."""
        return self._words[(place * self._stride >> 3) + 2 * self.counts[place] - 2]

    def entries(self, place: int) -> Iterator[Entry]:
        """What that GPU's last drain brought, once more."""
        start = place * self._stride
        return self._unpackers[place](
            self._bytes[start : start + _ENTRY_BYTES * self.counts[place]]
        )


def _pointers(addresses: Iterable[int]) -> list[Any]:
    return [ctypes.c_void_p.from_param(address) for address in addresses]


def _places_in(array: ctypes.Array[Any], step: int) -> list[Any]:
    first = ctypes.addressof(array)
    return _pointers(range(first, first + ctypes.sizeof(array), step))
