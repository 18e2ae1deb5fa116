"""What one GPU can be asked, each answer in a buffer of its own that is kept.

Every call adds its time to the library's stopwatch of that function: a
sampler that holds the driver's lock too long causes the stalls it looks for,
so it has to say what it costs.

Every field that NVML is asked for: its functions, how often, and whether by default.

One table, from which the source takes what to ask, ``--nvml-off`` and
``--nvml-on`` what can be said, and ``gpumon doctor`` what to look at.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from time import perf_counter_ns
from typing import Final

import pynvml

from gpumon.errors import UsageError
from gpumon.sources.nvml.binding import TEMPERATURE_V1, NvmlCalls, TemperatureV1
from gpumon.sources.nvml.codes import (
    FUNCTION_NOT_FOUND,
    INSUFFICIENT_SIZE,
    NO_ERROR,
    PERMANENT,
    SUCCESS,
)

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


SLOW_PERIOD_S: Final = 5.0
PROCESS_PERIOD_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlField:
    """One thing that a board can be asked.

    Attributes:
        name: What users call it.
        functions: The driver's functions it takes, the newest first.
        period_s: How often it is read, in seconds; 0: in each tick; ``None``:
            a thread waits for it.
        opt_in: Whether it is read only where ``--nvml-on`` names it, because
            it costs too much for everybody.
        text: What it is, in a few words.
    """

    name: str
    functions: tuple[str, ...]
    period_s: float | None
    opt_in: bool = False
    text: str


def _field(
    name: str, text: str, period_s: float | None, *functions: str, opt_in: bool = False
) -> NvmlField:
    return NvmlField(name=name, functions=functions, period_s=period_s, opt_in=opt_in, text=text)


NVML_FIELDS: Final = (
    _field("utilization", "share of time a kernel ran", 0.0,
           "nvmlDeviceGetSamples", "nvmlDeviceGetUtilizationRates"),
    _field("power", "board power draw", 0.0, "nvmlDeviceGetPowerUsage"),
    _field("memory", "device memory in use", SLOW_PERIOD_S,
           "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo"),
    _field("temperature", "core temperature", SLOW_PERIOD_S,
           "nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"),
    _field("clocks", "SM and memory clock, and the highest", SLOW_PERIOD_S,
           "nvmlDeviceGetClockInfo", "nvmlDeviceGetMaxClockInfo"),
    _field("throttle_reasons", "why clocks are held down", SLOW_PERIOD_S,
           "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"),
    _field("energy", "joules used", SLOW_PERIOD_S, "nvmlDeviceGetTotalEnergyConsumption"),
    _field("power_limit", "power limit in force", SLOW_PERIOD_S,
           "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit"),
    _field("performance_state", "P-state", SLOW_PERIOD_S, "nvmlDeviceGetPerformanceState"),
    _field("ecc", "memory errors", SLOW_PERIOD_S, "nvmlDeviceGetTotalEccErrors"),
    _field("persistence_mode", "whether the driver stays loaded", SLOW_PERIOD_S,
           "nvmlDeviceGetPersistenceMode"),
    _field("activity", "SM, tensor and DRAM activity (GPM, Hopper on)", SLOW_PERIOD_S,
           "nvmlGpmSampleGet", "nvmlGpmMetricsGet"),
    _field("processes", "who computes, with memory; their SM shares every 10 s", SLOW_PERIOD_S,
           "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2",
           "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetProcessesUtilizationInfo",
           "nvmlDeviceGetProcessUtilization"),
    _field("events", "XID and ECC errors as they happen", None,
           "nvmlEventSetWait_v2", "nvmlDeviceRegisterEvents"),
    _field("process_names", "names and users of processes", SLOW_PERIOD_S,
           "nvmlSystemGetProcessName", opt_in=True),
    _field("pcie", "PCIe rates; drivers that do not count them block 40 ms a GPU", SLOW_PERIOD_S,
           "nvmlDeviceGetFieldValues", "nvmlDeviceGetPcieThroughput", opt_in=True),
    _field("nvlink", "NVLink rates", SLOW_PERIOD_S, "nvmlDeviceGetFieldValues", opt_in=True),
    _field("fan", "fan speed", SLOW_PERIOD_S, "nvmlDeviceGetFanSpeed", opt_in=True),
    _field("encoder", "video encoder and decoder", SLOW_PERIOD_S,
           "nvmlDeviceGetEncoderUtilization", "nvmlDeviceGetDecoderUtilization", opt_in=True),
)  # fmt: skip
"""All fields, in the order in which ``gpumon doctor`` shows them."""

ALWAYS_ON: Final = "utilization"
"""The field that cannot be switched off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlOptions:
    """What the user wants asked of the driver.

    Attributes:
        fields: Names of the fields that are read.
    """

    fields: frozenset[str] = frozenset(field.name for field in NVML_FIELDS if not field.opt_in)


DEFAULT_OPTIONS: Final = NvmlOptions()


def nvml_options(*, off: Iterable[str] = (), on: Iterable[str] = ()) -> NvmlOptions:
    """The default fields without some, and with some more.

    Raises:
        UsageError: A name is none, or is said both ways, or is
            ``utilization``, without which there is nothing to tell.

    >>> sorted(nvml_options(off=["processes"], on=["fan"]).fields ^ DEFAULT_OPTIONS.fields)
    ['fan', 'processes']
    """
    without, more = frozenset(off), frozenset(on)
    names = [field.name for field in NVML_FIELDS]
    for word in sorted(without | more):
        if word not in names:
            raise UsageError(f"no NVML field called {word!r}: choose from {', '.join(names)}")
    if ALWAYS_ON in without:
        raise UsageError(f"{ALWAYS_ON} cannot be switched off: every figure is made of it")
    both = sorted(without & more)
    if both:
        raise UsageError(f"{both[0]} is switched both on and off: say one of the two")
    return NvmlOptions(fields=(DEFAULT_OPTIONS.fields | more) - without)
