"""One driver call for one GPU, with a reused buffer for its answer.

Every call adds its time to the library's accounts: a sampler that holds the driver's lock too long
causes the stalls it looks for, so it must report what it costs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from time import perf_counter_ns
from typing import Any, Final, NamedTuple

from gpumon.sources.nvml.binding import TEMPERATURE_V1, CArgument, NvmlCalls, TemperatureV1
from gpumon.sources.nvml.codes import NO_ERROR, PERMANENT, SUCCESS
from gpumon.sources.nvml.fields.table import (
    MEMORY,
    MOST_BYTES,
    AnswerLayout,
    NvmlCall,
    NvmlNumber,
    NvmlOptions,
    Value,
)
from gpumon.sources.nvml.pynvml_module import pynvml


class DriverCall:
    """One call for one GPU. It is not repeated after "not supported".

    Attributes:
        code: Its last code.
        supported: Whether it is worth making.
        no_error: Codes that are no failure of the driver.
    """

    no_error = NO_ERROR

    def __init__(self, library: NvmlCalls, name: str, *arguments: CArgument) -> None:
        self._function = partial(library.function(name), *arguments)
        self.name, self._library = name, library
        self.code = SUCCESS
        self.supported = True

    def call(self) -> int:
        """Make the call, if it is supported; return its last code."""
        if self.supported:
            started_ns = perf_counter_ns()
            code = self.code = self._function()
            spent_ns = perf_counter_ns() - started_ns
            self._library.count_call(
                self.name, spent_ns, SUCCESS if code in self.no_error else code
            )
            self.supported = code not in PERMANENT
        return self.code


class _Buffer(NamedTuple):
    """Where an answer goes: the objects whose addresses the driver gets, and their numbers."""

    out_args: tuple[Any, ...]
    numbers: Callable[[], tuple[int, ...]]


def _plain(kind: type[ctypes.c_uint | ctypes.c_ulonglong], count: int = 1) -> _Buffer:
    numbers = tuple(kind() for _ in range(count))
    return _Buffer(numbers, lambda: tuple(number.value for number in numbers))


def _pair() -> _Buffer:
    pair = (ctypes.c_uint * 2)()
    return _Buffer((pair,), lambda: tuple(pair))


def _temperature() -> _Buffer:
    room = TemperatureV1(version=TEMPERATURE_V1, sensorType=pynvml.NVML_TEMPERATURE_GPU)
    return _Buffer((room,), lambda: (room.temperature,))


def _memory(room: ctypes.Structure) -> _Buffer:
    return _Buffer((room,), lambda: (room.used, room.total))


_BUFFERS: Final[dict[AnswerLayout, Callable[[], _Buffer]]] = {
    AnswerLayout.NUMBER: partial(_plain, ctypes.c_uint),
    AnswerLayout.LONG: partial(_plain, ctypes.c_ulonglong),
    AnswerLayout.TWO_NUMBERS: partial(_plain, ctypes.c_uint, 2),
    AnswerLayout.PAIR: _pair,
    AnswerLayout.TEMPERATURE: _temperature,
    AnswerLayout.MEMORY: lambda: _memory(pynvml.c_nvmlMemory_t()),
    AnswerLayout.MEMORY_V2: lambda: _memory(pynvml.c_nvmlMemory_v2_t(version=pynvml.nvmlMemory_v2)),
}


class NumberCall(DriverCall):
    """A call whose answer is a number, or a few numbers; the first is the value."""

    def __init__(self, library: NvmlCalls, handle: int, call: NvmlCall) -> None:
        self._buffer = _BUFFERS[call.answer]()
        super().__init__(
            library,
            call.function,
            ctypes.c_void_p(handle),
            *map(ctypes.c_int, call.arguments),
            *map(ctypes.byref, self._buffer.out_args),
        )

    @property
    def answered(self) -> tuple[int, ...]:
        """Its last answer; valid after code 0."""
        return self._buffer.numbers()

    def numbers(self) -> tuple[int, ...] | None:
        """Return all numbers; ``None``: no answer."""
        return self.answered if self.call() == SUCCESS else None

    def read(self) -> int | None:
        """Return the number; ``None``: no answer."""
        numbers = self.numbers()
        return None if numbers is None else numbers[0]


class BoardNumber:
    """One number of the table for one GPU, by the first of its functions that the driver has."""

    def __init__(
        self,
        number: NvmlNumber,
        library: NvmlCalls,
        handle: int,
        refuse: Callable[[], None] = lambda: None,
    ) -> None:
        """Bind its calls; ``refuse`` counts an invalid value."""
        self._number, self._refuse = number, refuse
        self._calls = [NumberCall(library, handle, call) for call in number.calls]
        self._known: Value = None

    @property
    def supported(self) -> bool:
        return any(call.supported for call in self._calls)

    def numbers(self) -> tuple[int, ...] | None:
        """Return the driver's raw answer; ``None``: no answer."""
        for call in self._calls:
            answer = call.numbers()
            if answer is not None or call.supported:
                return answer
        return None

    def valid(self) -> int | None:
        """Return the number in the driver's unit; ``None``: no valid answer."""
        answer, number = self.numbers(), self._number
        if answer is None or answer[0] == number.unknown:
            return None
        most = min(number.most, answer[1]) if number.is_part_of_next else number.most
        if number.least <= answer[0] <= most:
            return answer[0]
        self._refuse()
        return None

    def read(self) -> Value:
        """Return the value in base units; ``None``: no valid answer."""
        if self._known is not None:
            return self._known
        number = self.valid()
        value = None if number is None else self._number.unit.convert(number)
        if self._number.is_constant:
            self._known = value
        return value


def capacity_bytes(
    library: NvmlCalls, handle: int, options: NvmlOptions, refuse: Callable[[], None]
) -> int | None:
    """Return the memory of a GPU or MIG instance; ``None``: no answer, or switched off.

    ``refuse`` counts an invalid value.
    """
    memory = BoardNumber(MEMORY, library, handle).numbers() if "memory" in options else None
    if memory is None:
        return None
    if not 0 < memory[1] <= MOST_BYTES:
        refuse()
        return None
    return memory[1]
