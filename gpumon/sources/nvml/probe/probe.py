"""Asks a driver everything that gpumon could ever ask it, a few times, and notes what it cost.

One thread, one GPU after the other, within a budget of time: what is slow is
asked once. It changes nothing on the board.

How each function of the catalogue is asked once, and what it answers in words.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, Final, NamedTuple

import pynvml

from gpumon.core.board.throttling import throttle_reasons
from gpumon.core.clock import Clock, seconds
from gpumon.sources.nvml.binding import (
    PCIE_COUNT_RX_BYTES,
    PCIE_COUNT_TX_BYTES,
    PROCESSES_UTILIZATION_V1,
    TEMPERATURE_V1,
    NvmlLibrary,
    ProcessesUtilizationInfoV1,
    ProcessUtilizationInfoV1,
    TemperatureV1,
)
from gpumon.sources.nvml.clock import US, StampClock
from gpumon.sources.nvml.codes import GPU_IS_LOST, PERMANENT, SUCCESS, gpu_trouble
from gpumon.sources.nvml.details.fields import DEFAULT_OPTIONS, NVML_FIELDS, NvmlField, NvmlOptions
from gpumon.sources.nvml.gpm import Gpm
from gpumon.sources.nvml.probe.answers import (
    ProbedDriver,
    ProbedField,
    ProbedGpu,
    ProbedRing,
)
from gpumon.sources.nvml.probe.parts import CallLog, ask_for_activity, ask_for_events, event_types
from gpumon.sources.nvml.probe.rings import (
    SAMPLE_KINDS,
    RingTap,
    answer_of,
    cadence_s,
    value_type_name,
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
    than one call.
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


_UTILIZATION: Final = 1
_DEAR: Final = frozenset({"nvmlDeviceGetPcieThroughput"})
Beat = Callable[[str], None]
"""Is told, before each call, what is asked now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeLimits:
    """How often a function is asked of each GPU.

    Attributes:
        times: Usually.
        longest_us: When its calls have taken so long, it is not asked again:
            it holds a lock that trainings want, too.
        gpm_times: How often GPM is read; each time takes 0.12 s.
        budget_s: After so many seconds each function is asked once only.
        dear_too: Whether functions that block for long are asked where others give the same.
    """

    times: int = 5
    longest_us: float = 1_000.0
    gpm_times: int = 1
    budget_s: float = 5.0
    dear_too: bool = False


_DEFAULT_LIMITS: Final = ProbeLimits()


class NvmlProbe:
    """NVML, opened to be asked everything.

    Raises:
        SourceUnavailableError: The library is missing, or refuses to start.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        options: NvmlOptions = DEFAULT_OPTIONS,
        limits: ProbeLimits = _DEFAULT_LIMITS,
        beat: Beat = lambda what: None,
    ) -> None:
        """Open the library.

        Args:
            clock: The monotonic clock, against which stamps are held.
            options: Which fields are asked.
            limits: How often, and for how long.
            beat: Told what is asked next.
        """
        self._clock, self._options, self._limits, self._beat = clock, options, limits, beat
        self._stamps = StampClock(clock)
        beat("nvmlInit")
        started_ns = perf_counter_ns()
        self.library = NvmlLibrary()
        self._init_s = seconds(perf_counter_ns() - started_ns)
        self._until_ns = clock.monotonic_ns() + round(limits.budget_s * 1e9)

    def close(self) -> None:
        """Let go of the driver. Safe to call twice."""
        self.library.close()

    def ask_all(self) -> ProbedDriver:
        """Ask everything of every GPU.

        Raises:
            SourceUnavailableError: The driver does not even say how many there are.
        """
        library = self.library
        gpus = tuple(self.ask_gpu(index) for index in range(library.device_count()))
        domain = self._stamps.domain
        return ProbedDriver(
            driver_version=library.driver_version,
            nvml_version=library.text("nvmlSystemGetNVMLVersion"),
            cuda_version=self._cuda_version(),
            stamp_clock=None if domain is None else domain.value,
            init_s=self._init_s,
            gpus=gpus,
        )

    def _cuda_version(self) -> str | None:
        number = ctypes.c_int()
        for name in ("nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion"):
            call = self.library.function(name, ctypes.c_void_p)
            if call(ctypes.addressof(number)) == SUCCESS:
                return f"{number.value // 1000}.{number.value % 1000 // 10}"
        return None

    def ask_gpu(self, index: int) -> ProbedGpu:
        """Ask everything of one GPU, by NVML's number of it."""
        library = self.library
        self._beat(f"GPU {index}")
        handle = library.handle_by_index(index)
        if handle is None:
            code = library.refused.get(index, 999)
            return ProbedGpu(index, lost=gpu_trouble(code), lost_code=code)
        is_cut = library.is_cut(handle)
        rings = self._ask_rings(index, handle)
        return ProbedGpu(
            index=index,
            uuid=library.text("nvmlDeviceGetUUID", handle),
            name=library.text("nvmlDeviceGetName", handle),
            pci_bus_id=library.pci_bus_id(handle),
            lost=self._why_lost(handle),
            fields=tuple(self._ask_field(index, handle, field, rings) for field in NVML_FIELDS),
            rings=rings,
            has_gpm=Gpm(library, self._clock.monotonic_ns).supports(handle),
            mig_enabled=self._mig_enabled(handle, is_cut=is_cut),
            mig_instances=len(library.mig_parts(handle)) if is_cut else 0,
            persistence_mode=self._persistence_mode(handle),
            event_types=event_types(library, handle),
        )

    def _why_lost(self, handle: int) -> str | None:
        number = ctypes.c_uint()
        call = self.library.function("nvmlDeviceGetIndex", *[ctypes.c_void_p] * 2)
        code = call(handle, ctypes.addressof(number))
        return gpu_trouble(code) if code == GPU_IS_LOST else None

    def _mig_enabled(self, handle: int, *, is_cut: bool) -> bool | None:
        mode = (ctypes.c_uint * 2)()
        where = ctypes.addressof(mode)
        call = self.library.function("nvmlDeviceGetMigMode", *[ctypes.c_void_p] * 3)
        return is_cut if call(handle, where, where + 4) == SUCCESS else None

    def _persistence_mode(self, handle: int) -> bool | None:
        mode = self.library.number("nvmlDeviceGetPersistenceMode", handle)
        return None if mode is None else bool(mode)

    # -- a field ---------------------------------------------------------------

    def _ask_field(
        self, index: int, handle: int, field: NvmlField, rings: Sequence[ProbedRing]
    ) -> ProbedField:
        wanted = field.name in self._options.fields
        if not wanted:
            return ProbedField(field, wanted=False)
        limits = self._limits
        log = CallLog(lambda function: self._beat(f"GPU {index}: {function}"))
        if field.name == "activity":
            ask_for_activity(self.library, self._clock, handle, log, limits.gpm_times)
        elif field.name == "events":
            ask_for_events(self.library, handle, log, limits.times)
        else:
            for function in field.functions:
                if not self._is_needless(function, log):
                    self._ask_function(handle, field.name, function, log, rings)
        return ProbedField(field, wanted, tuple(log.call(name) for name in field.functions))

    def _is_needless(self, function: str, log: CallLog) -> bool:
        """A function that blocks for long is not tried where another gives the same."""
        return function in _DEAR and not self._limits.dear_too and SUCCESS in log.codes.values()

    def _ask_function(
        self, handle: int, field: str, function: str, log: CallLog, rings: Sequence[ProbedRing]
    ) -> None:
        if function == "nvmlDeviceGetSamples":
            tap = RingTap(self.library, handle, _UTILIZATION)
            newest_us = max((entry.stamp_us for entry in tap.drain().entries), default=0)
            self._repeat(log, function, lambda: tap.drain(newest_us).code)
            ring = rings[_UTILIZATION]
            if ring.cadence_s is not None:
                log.values[function] = f"{ring.count} samples of {ring.cadence_s * 1000:.0f} ms"
            return
        asked = question(self.library, handle, function, field)
        if asked is not None:
            self._repeat(log, function, asked.ask)
            if log.codes[function] == SUCCESS:
                log.values[function] = asked.say()

    def _repeat(self, log: CallLog, function: str, ask: Callable[[], int]) -> None:
        for _ in range(self._limits.times):
            code = log.timed(function, ask)
            slow = sum(log.durations_us[function]) > self._limits.longest_us
            if slow or code in PERMANENT or self._clock.monotonic_ns() > self._until_ns:
                return

    # -- the rings -------------------------------------------------------------

    def _ask_rings(self, index: int, handle: int) -> tuple[ProbedRing, ...]:
        return tuple(self._ask_ring(index, handle, kind) for kind in range(len(SAMPLE_KINDS)))

    def _ask_ring(self, index: int, handle: int, kind: int) -> ProbedRing:
        name = SAMPLE_KINDS[kind]
        self._beat(f"GPU {index}: samples of {name}")
        self._stamps.tick()
        drained = RingTap(self.library, handle, kind).drain()
        now_ns = self._clock.monotonic_ns()
        stamps_us = [entry.stamp_us for entry in drained.entries]
        if stamps_us:
            self._stamps.learn([stamps_us[-1]], now_ns)
        offset_ns = self._stamps.offset_ns
        has_age = bool(stamps_us) and offset_ns is not None
        age_s = seconds(now_ns - (stamps_us[-1] * US - (offset_ns or 0))) if has_age else None
        return ProbedRing(
            kind=kind,
            name=name,
            code=drained.code,
            answer=answer_of(drained.code),
            count=len(stamps_us),
            cadence_s=cadence_s(stamps_us),
            span_s=(stamps_us[-1] - stamps_us[0]) / 1e6 if len(stamps_us) > 1 else None,
            value_type=value_type_name(drained.value_type) if stamps_us else None,
            newest_age_s=age_s,
            call_us=drained.call_ns / 1000,
        )
