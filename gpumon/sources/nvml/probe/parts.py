"""What is noted of each call, and what takes more than one: GPM, and the waiting for events."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from time import perf_counter_ns
from typing import Final

import pynvml

from gpumon.core.clock import Clock
from gpumon.core.sample import ActivitySample
from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.codes import FUNCTION_NOT_FOUND, NOT_FOUND, SUCCESS, code_name, meaning_of
from gpumon.sources.nvml.gpm import Gpm, GpmTrack
from gpumon.sources.nvml.probe.answers import ProbedCall

NOT_SUPPORTED: Final = 3

GPM_APART_S: Final = 0.12
"""GPM wants its two samples more than 100 ms apart."""

_SAMPLE_GET: Final = "nvmlGpmSampleGet"
_METRICS_GET: Final = "nvmlGpmMetricsGet"

_EVENT_NAMES: Final = {
    0x1: "single-bit ECC error",
    0x2: "double-bit ECC error",
    0x4: "P-state",
    0x8: "XID",
    0x10: "clock",
    0x80: "power source",
    0x100: "MIG configuration",
    0x200: "ECC storm",
    0x400: "DRAM retirement",
    0x800: "DRAM retirement failure",
    0x1000: "non-fatal poison",
    0x2000: "fatal poison",
    0x4000: "GPU unavailable",
    0x8000: "recovery action",
}


class CallLog:
    """What each function answered, and how long its calls took.

    Attributes:
        durations_us: By function, in the order of calls.
        codes: The last answer of each function.
        values: What each said last, for people.
    """

    def __init__(self, beat: Callable[[str], None]) -> None:
        self._beat = beat
        self.durations_us: dict[str, list[float]] = {}
        self.codes: dict[str, int] = {}
        self.values: dict[str, str] = {}

    def timed(self, function: str, ask: Callable[[], int]) -> int:
        """Make a call, note what it answered and what it took."""
        self._beat(function)
        started_ns = perf_counter_ns()
        code = ask()
        self.note(function, code, (perf_counter_ns() - started_ns) / 1000)
        return code

    def note(self, function: str, code: int, took_us: float | None = None) -> None:
        """Note an answer, and what it took where a call was made for it."""
        self.codes[function] = code
        taken = self.durations_us.setdefault(function, [])
        if took_us is not None:
            taken.append(took_us)

    def call(self, function: str) -> ProbedCall:
        """All that is known of a function; of one that was not asked, only its name."""
        code = self.codes.get(function)
        return ProbedCall(
            function=function,
            code=code,
            answer="" if code is None else code_name(code),
            meaning="" if code is None else meaning_of(code),
            durations_us=tuple(self.durations_us.get(function, ())),
            value=self.values.get(function),
        )


def event_types(library: NvmlLibrary, handle: int) -> tuple[str, ...] | None:
    """The events that a GPU can report, by name; ``None`` where it does not say."""
    bits = _event_bits(library, handle)
    if bits is None:
        return None
    return tuple(_EVENT_NAMES.get(bit, f"{bit:#x}") for bit in _bits_of(bits))


def _event_bits(library: NvmlLibrary, handle: int) -> int | None:
    bits = ctypes.c_ulonglong()
    call = library.function("nvmlDeviceGetSupportedEventTypes", ctypes.c_void_p, ctypes.c_void_p)
    return bits.value if call(handle, ctypes.addressof(bits)) == SUCCESS else None


def _bits_of(bits: int) -> Iterator[int]:
    return (1 << at for at in range(bits.bit_length()) if bits >> at & 1)


def ask_for_events(library: NvmlLibrary, handle: int, log: CallLog, times: int) -> None:
    """Register for what the GPU can report, wait ``times`` times for no time, and let go."""
    wanted = _event_bits(library, handle) or 0
    pointer = ctypes.c_void_p
    events = pointer()
    create = library.function("nvmlEventSetCreate", pointer)
    register = library.function("nvmlDeviceRegisterEvents", pointer, ctypes.c_ulonglong, pointer)
    wait = library.function("nvmlEventSetWait_v2", pointer, pointer, ctypes.c_uint)
    code = create(ctypes.addressof(events))
    if code != SUCCESS:
        log.timed("nvmlDeviceRegisterEvents", lambda: code)
        return
    try:
        log.timed("nvmlDeviceRegisterEvents", lambda: register(handle, wanted, events.value))
        data = pynvml.c_nvmlEventData_t()
        for _ in range(times):
            log.timed("nvmlEventSetWait_v2", lambda: wait(events.value, ctypes.addressof(data), 0))
    finally:
        library.function("nvmlEventSetFree", pointer)(events.value)


def ask_for_activity(
    library: NvmlLibrary, clock: Clock, handle: int, log: CallLog, times: int
) -> None:
    """A sample of GPM, then ``times`` more, and what lies between the last two."""
    gpm = Gpm(library, clock.monotonic_ns)
    if not gpm.supports(handle):
        # A board without GPM answers that question well; only then it refuses the sample.
        knows = library.has("nvmlGpmQueryDeviceSupport")
        log.note(_SAMPLE_GET, NOT_SUPPORTED if knows else FUNCTION_NOT_FOUND)
        return
    track = gpm.track(handle)
    try:
        _read(library, track, log)
        if track.code != SUCCESS:
            return
        for _ in range(times):
            clock.sleep_until_ns(clock.monotonic_ns() + round(GPM_APART_S * 1e9))
            activity = _read(library, track, log)
            if activity is not None:
                log.values[_METRICS_GET] = _said(activity)
    finally:
        gpm.close()


def _read(library: NvmlLibrary, track: GpmTrack, log: CallLog) -> ActivitySample | None:
    """One reading; the library's own stopwatches tell how long each of its calls took."""
    before = [library.stopwatch(name)[0] for name in (_SAMPLE_GET, _METRICS_GET)]
    activity = track.read()
    after = [library.stopwatch(name)[0] for name in (_SAMPLE_GET, _METRICS_GET)]
    log.note(_SAMPLE_GET, track.code, (after[0] - before[0]) / 1000)
    if after[1] > before[1]:
        log.note(_METRICS_GET, SUCCESS if activity else NOT_FOUND, (after[1] - before[1]) / 1000)
    return activity


def _said(activity: ActivitySample) -> str:
    ratios = {
        "SM": activity.sm_active_ratio,
        "occupancy": activity.sm_occupancy_ratio,
        "tensor": activity.tensor_active_ratio,
        "DRAM": activity.memory_bandwidth_ratio,
    }
    return ", ".join(
        f"{name} {100 * ratio:.0f} %" for name, ratio in ratios.items() if ratio is not None
    )
