"""How each function of the catalogue is asked once, and what it answers in words."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pynvml

from gpumon.core.throttle_reasons import throttle_reasons
from gpumon.sources.nvml_binding import NvmlLibrary
from gpumon.sources.nvml_newer import (
    PCIE_COUNT_RX_BYTES,
    PCIE_COUNT_TX_BYTES,
    PROCESSES_UTILIZATION_V1,
    TEMPERATURE_V1,
    ProcessesUtilizationInfoV1,
    ProcessUtilizationInfoV1,
    TemperatureV1,
)

_MOST_PROCESSES: Final = 256


class Question(NamedTuple):
    """A call that is ready to be made.

    Attributes:
        ask: Makes it, and gives the driver's code.
        say: What it answered, for people; means something after code 0.
    """

    ask: Callable[[], int]
    say: Callable[[], str]


def question(library: NvmlLibrary, handle: int, function: str, field: str = "") -> Question | None:
    """How that function is asked of that GPU; ``None`` where it is not known here.

    Args:
        library: NVML, opened.
        handle: The GPU.
        function: The driver's name of it.
        field: The field of the catalogue that it is asked for.

    Those of GPM, of events and of the samples' rings are not: they take more
    than one call (``nvml_probe``).
    """
    asker = _Asker(library, handle, function)
    if function in _NUMBERS:
        return asker.number(*_NUMBERS[function])
    if function in _KINDS:
        kinds, say = _KINDS[function]
        return asker.number_of_kind(kinds, say)
    if function == "nvmlDeviceGetFieldValues":
        return asker.byte_counters(*(_OF_PCIE if field == "pcie" else _OF_LINKS))
    make = _OTHERS.get(function)
    return None if make is None else make(asker)


def _watts(milliwatts: int) -> str:
    return f"{milliwatts / 1000:.1f} W"


def _reasons(bits: int) -> str:
    return ", ".join(throttle_reasons(bits)).replace("_", " ") or "none"


_Say = Callable[[int], str]
_Number = type[ctypes.c_uint | ctypes.c_ulonglong]
_Simple = ctypes.c_uint | ctypes.c_ulonglong
_INT: Final = ctypes.c_uint
_LONG: Final = ctypes.c_ulonglong

_NUMBERS: Final[dict[str, tuple[_Number, _Say]]] = {
    "nvmlDeviceGetPowerUsage": (_INT, _watts),
    "nvmlDeviceGetEnforcedPowerLimit": (_INT, _watts),
    "nvmlDeviceGetPowerManagementLimit": (_INT, _watts),
    "nvmlDeviceGetPerformanceState": (_INT, lambda state: f"P{state}"),
    "nvmlDeviceGetPersistenceMode": (_INT, lambda mode: "on" if mode else "off"),
    "nvmlDeviceGetFanSpeed": (_INT, lambda percent: f"{percent} %"),
    "nvmlDeviceGetCurrentClocksEventReasons": (_LONG, _reasons),
    "nvmlDeviceGetCurrentClocksThrottleReasons": (_LONG, _reasons),
    "nvmlDeviceGetTotalEnergyConsumption": (_LONG, lambda mj: f"{mj / 1e6:,.1f} kJ"),
}  # fmt: skip

_KINDS: Final[dict[str, tuple[int, _Say]]] = {
    "nvmlDeviceGetTemperature": (0, lambda celsius: f"{celsius} C"),
    "nvmlDeviceGetClockInfo": (1, lambda megahertz: f"{megahertz} MHz"),
    "nvmlDeviceGetMaxClockInfo": (1, lambda megahertz: f"at most {megahertz} MHz"),
    "nvmlDeviceGetPcieThroughput": (0, lambda kib: f"{kib / 1000:.1f} MB/s out"),
}


class _Asker:
    """Puts one function's arguments together. What it answers is kept alive by the closures."""

    def __init__(self, library: NvmlLibrary, handle: int, function: str) -> None:
        self._library, self._handle, self._function = library, handle, function

    def _bound(self, *arguments: tuple[object, Any]) -> Callable[[], int]:
        """The call with its handle and these; a room is handed over by its address, and kept."""
        types = (ctypes.c_void_p, *(kind for kind, _ in arguments))
        call = self._library.function(self._function, *types)
        handle = self._handle
        values = [
            ctypes.addressof(value) if kind is ctypes.c_void_p else value
            for kind, value in arguments
        ]

        def ask(_kept: object = arguments) -> int:
            return call(handle, *values)

        return ask

    def number(self, kind: _Number, say: _Say) -> Question:
        number = kind()
        ask = self._bound(_place(number))
        return Question(ask, lambda: say(number.value))

    def number_of_kind(self, kind: int, say: _Say) -> Question:
        number = ctypes.c_uint()
        ask = self._bound((ctypes.c_int, kind), _place(number))
        return Question(ask, lambda: say(number.value))

    def ecc_errors(self) -> Question:
        uncorrected, volatile = 1, 0
        number = ctypes.c_ulonglong()
        ask = self._bound((ctypes.c_int, uncorrected), (ctypes.c_int, volatile), _place(number))
        return Question(ask, lambda: f"{number.value} uncorrected")

    def rates(self) -> Question:
        rates = (ctypes.c_uint * 2)()
        return Question(self._bound(_place(rates)), lambda: f"{rates[0]} %")

    def two_numbers(self) -> Question:
        first, second = ctypes.c_uint(), ctypes.c_uint()
        ask = self._bound(_place(first), _place(second))
        return Question(ask, lambda: f"{first.value} %")

    def memory(self) -> Question:
        room = pynvml.c_nvmlMemory_t()
        return self._memory_in(room)

    def memory_v2(self) -> Question:
        room = pynvml.c_nvmlMemory_v2_t()
        room.version = pynvml.nvmlMemory_v2
        return self._memory_in(room)

    def _memory_in(self, room: ctypes.Structure) -> Question:
        def say() -> str:
            return f"{room.used / 2**30:.1f} of {room.total / 2**30:.1f} GiB"

        return Question(self._bound(_place(room)), say)

    def temperature_v(self) -> Question:
        room = TemperatureV1(version=TEMPERATURE_V1)
        return Question(self._bound(_place(room)), lambda: f"{room.temperature} C")

    def processes(self) -> Question:
        count = ctypes.c_uint()
        # Room enough for the structure of any generation.
        rooms = (pynvml.c_nvmlProcessInfo_v2_t * _MOST_PROCESSES)()
        call = self._bound(_place(count), _place(rooms))

        def ask() -> int:
            count.value = _MOST_PROCESSES
            return call()

        return Question(ask, lambda: f"{count.value} now")

    def process_use(self) -> Question:
        count = ctypes.c_uint()
        rooms = (pynvml.c_nvmlProcessUtilizationSample_t * _MOST_PROCESSES)()
        call = self._bound(_place(rooms), _place(count), (ctypes.c_ulonglong, 0))

        def ask() -> int:
            count.value = _MOST_PROCESSES
            return call()

        return Question(ask, lambda: f"SM share of {count.value}")

    def process_use_info(self) -> Question:
        records = (ProcessUtilizationInfoV1 * _MOST_PROCESSES)()
        request = ProcessesUtilizationInfoV1()
        request.version = PROCESSES_UTILIZATION_V1
        request.procUtilArray = records
        call = self._bound(_place(request))

        def ask() -> int:
            request.processSamplesCount = len(records)
            return call()

        return Question(ask, lambda: f"SM share of {request.processSamplesCount}")

    def process_name(self) -> Question:
        room = ctypes.create_string_buffer(1024)
        call = self._library.function(self._function, ctypes.c_uint, ctypes.c_char_p, ctypes.c_uint)
        pid = os.getpid()
        return Question(lambda: call(pid, room, ctypes.sizeof(room)), lambda: "names")

    def byte_counters(self, *numbers: int) -> Question:
        # One entry more than is asked for: drivers were seen to write one past the end.
        values = (pynvml.c_nvmlFieldValue_t * (len(numbers) + 1))()
        for value, number in zip(values, numbers, strict=False):
            value.fieldId, value.scopeId = number, _ALL_LINKS if number in _OF_LINKS else 0
        call = self._bound((ctypes.c_int, len(numbers)), _place(values))

        def ask() -> int:
            return call() or int(values[0].nvmlReturn)

        return Question(ask, lambda: "counted")


_OF_LINKS: Final = (
    pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
    pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX,
)
_OF_PCIE: Final = (
    PCIE_COUNT_TX_BYTES,
    PCIE_COUNT_RX_BYTES,
)
_ALL_LINKS: Final = 0xFFFF_FFFF


_OTHERS: Final[dict[str, Callable[[_Asker], Question]]] = {
    "nvmlDeviceGetUtilizationRates": _Asker.rates,
    "nvmlDeviceGetEncoderUtilization": _Asker.two_numbers,
    "nvmlDeviceGetDecoderUtilization": _Asker.two_numbers,
    "nvmlDeviceGetMemoryInfo": _Asker.memory,
    "nvmlDeviceGetMemoryInfo_v2": _Asker.memory_v2,
    "nvmlDeviceGetTemperatureV": _Asker.temperature_v,
    "nvmlDeviceGetTotalEccErrors": _Asker.ecc_errors,
    "nvmlDeviceGetComputeRunningProcesses_v2": _Asker.processes,
    "nvmlDeviceGetComputeRunningProcesses_v3": _Asker.processes,
    "nvmlDeviceGetComputeRunningProcesses": _Asker.processes,
    "nvmlDeviceGetProcessesUtilizationInfo": _Asker.process_use_info,
    "nvmlDeviceGetProcessUtilization": _Asker.process_use,
    "nvmlSystemGetProcessName": _Asker.process_name,
}


def _place(room: ctypes.Structure | ctypes.Array[Any] | _Simple) -> tuple[object, Any]:
    """An argument that says where the answer is to go."""
    return ctypes.c_void_p, room
