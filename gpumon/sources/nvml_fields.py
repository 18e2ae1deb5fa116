"""What one GPU can be asked, each answer in a buffer of its own that is kept.

Every call adds its time to the library's stopwatch of that function: a
sampler that holds the driver's lock too long causes the stalls it looks for,
so it has to say what it costs.
"""

from __future__ import annotations

import ctypes
from functools import partial
from time import perf_counter_ns
from typing import Final

import pynvml

from gpumon.sources.nvml_binding import NvmlCalls
from gpumon.sources.nvml_codes import (
    FUNCTION_NOT_FOUND,
    INSUFFICIENT_SIZE,
    NO_ERROR,
    PERMANENT,
    SUCCESS,
)
from gpumon.sources.nvml_newer import TEMPERATURE_V1, TemperatureV1

_NOT_IN_THIS_DRIVER: Final = frozenset({FUNCTION_NOT_FOUND, 25, 26})


class Field:
    """One call on one GPU. An answer of "not supported" is remembered, not asked for again.

    Attributes:
        code: What the call answered last.
        supported: Whether it is worth asking.
        no_error: Codes that are no failure of the driver.
    """

    no_error = NO_ERROR

    def __init__(self, library: NvmlCalls, name: str, *arguments: tuple[object, object]) -> None:
        """Bind the call.

        Args:
            library: NVML, opened.
            name: The C function.
            arguments: A ctypes type and a value for each of its arguments.
        """
        call = library.function(name, *(kind for kind, _ in arguments))
        self._call = partial(call, *(value for _, value in arguments))
        self._name, self._library = name, library
        self.code = SUCCESS
        self.supported = True

    def ask(self) -> bool:
        """Make the call; say whether it answered."""
        if not self.supported:
            return False
        started_ns = perf_counter_ns()
        code = self.code = self._call()
        spent_ns = perf_counter_ns() - started_ns
        self._library.took(self._name, spent_ns, SUCCESS if code in self.no_error else code)
        if code == SUCCESS:
            return True
        self.supported = code not in PERMANENT
        return False

    @property
    def is_missing(self) -> bool:
        """Whether it is the driver that has no such call, so that an older one may do."""
        return self.code in _NOT_IN_THIS_DRIVER


class ListField(Field):
    """A call that is made again with more room where its answer did not fit."""

    no_error = NO_ERROR | {INSUFFICIENT_SIZE}


class NumberField(Field):
    """A call whose answer is one number."""

    def __init__(
        self,
        library: NvmlCalls,
        name: str,
        handle: int,
        *,
        kind: int | tuple[int, ...] = (),
        number: ctypes.c_uint | ctypes.c_ulonglong | None = None,
    ) -> None:
        """Bind the call.

        Args:
            library: NVML, opened.
            name: The C function.
            handle: Which GPU.
            kind: The enumerators between handle and answer, or the only one.
            number: Room for the answer, 32 bits unless given.
        """
        self._number = ctypes.c_uint() if number is None else number
        address = (ctypes.c_void_p, ctypes.addressof(self._number))
        kinds = (kind,) if isinstance(kind, int) else kind
        which = ((ctypes.c_int, one) for one in kinds)
        super().__init__(library, name, (ctypes.c_void_p, handle), *which, address)

    def read(self) -> int | None:
        """The number; ``None`` where there is no answer."""
        return self._number.value if self.ask() else None


def number(calls: NvmlCalls, handle: int, name: str, *kinds: int) -> NumberField:
    """``nvmlDeviceGet<name>`` of a GPU, whose answer has 32 bits."""
    return NumberField(calls, f"nvmlDeviceGet{name}", handle, kind=kinds)


def long_number(calls: NvmlCalls, handle: int, name: str, *kinds: int) -> NumberField:
    """``nvmlDeviceGet<name>`` of a GPU, whose answer has 64 bits."""
    room = ctypes.c_ulonglong()
    return NumberField(calls, f"nvmlDeviceGet{name}", handle, kind=kinds, number=room)


class PairField(Field):
    """A call whose answer is two numbers, of which the first counts."""

    def __init__(self, library: NvmlCalls, name: str, handle: int, *, apart: bool) -> None:
        self._numbers = (ctypes.c_uint * 2)()
        first = ctypes.addressof(self._numbers)
        places = (first, first + ctypes.sizeof(ctypes.c_uint)) if apart else (first,)
        super().__init__(
            library,
            name,
            (ctypes.c_void_p, handle),
            *((ctypes.c_void_p, place) for place in places),
        )

    def read(self) -> int | None:
        """The first number; ``None`` where there is no answer."""
        return self._numbers[0] if self.ask() else None


class TemperatureField(Field):
    """The core's temperature in degrees, as newer drivers give it: signed, in a structure."""

    def __init__(self, library: NvmlCalls, handle: int) -> None:
        self._room = TemperatureV1()
        self._room.version = TEMPERATURE_V1
        self._room.sensorType = pynvml.NVML_TEMPERATURE_GPU
        where = (ctypes.c_void_p, ctypes.addressof(self._room))
        super().__init__(library, "nvmlDeviceGetTemperatureV", (ctypes.c_void_p, handle), where)

    def read(self) -> int | None:
        """The degrees; ``None`` where there is no answer."""
        return int(self._room.temperature) if self.ask() else None


class NewestField:
    """Several functions that tell the same: the first that the driver has is the one asked."""

    def __init__(self, *fields: NumberField | TemperatureField) -> None:
        """Take the fields, the newest first."""
        self._fields = list(fields)

    def read(self) -> int | None:
        """The answer; ``None`` where there is none."""
        while self._fields:
            answer = self._fields[0].read()
            if answer is not None or self._fields[0].supported:
                return answer
            del self._fields[0]
        return None


class MemoryField:
    """Device memory: version 2, or version 1 on drivers that lack it."""

    def __init__(self, library: NvmlCalls, handle: int) -> None:
        self._newer = pynvml.c_nvmlMemory_v2_t()
        self._newer.version = pynvml.nvmlMemory_v2
        self._older = pynvml.c_nvmlMemory_t()
        self._fields = [
            (self._field(library, "nvmlDeviceGetMemoryInfo_v2", handle, self._newer), self._newer),
            (self._field(library, "nvmlDeviceGetMemoryInfo", handle, self._older), self._older),
        ]

    @staticmethod
    def _field(library: NvmlCalls, name: str, handle: int, room: ctypes.Structure) -> Field:
        return Field(
            library, name, (ctypes.c_void_p, handle), (ctypes.c_void_p, ctypes.addressof(room))
        )

    def read(self) -> tuple[int, int] | None:
        """Used and total bytes. Version 1 counts what the driver reserves as used."""
        for field, room in self._fields:
            if field.ask():
                return room.used, room.total
            if field.supported:
                return None
        return None
