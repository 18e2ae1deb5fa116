"""Asks a driver everything that gpumon could ever ask it, a few times, and notes what it cost.

It asks by the sampler's own calls, which are watched from below: of each
function it is noted what it answered and how long that took. One thread, one
GPU after the other, within a budget of time: what is slow is asked once. It
changes nothing on the board.
"""

from __future__ import annotations

import ctypes
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter_ns
from typing import Final, NamedTuple

from gpumon.core.clock import Clock, nanoseconds, seconds
from gpumon.core.sample import ActivitySample
from gpumon.sources.nvml.binding import CFunction, NvmlLibrary
from gpumon.sources.nvml.clock import US, StampClock
from gpumon.sources.nvml.codes import (
    FUNCTION_NOT_FOUND,
    GPU_IS_LOST,
    NOT_SUPPORTED,
    PERMANENT,
    SUCCESS,
    code_name,
    gpu_trouble,
    meaning_of,
)
from gpumon.sources.nvml.drain import SAMPLE_KINDS, UTILIZATION_SAMPLES, SampleRings
from gpumon.sources.nvml.fields.calls import NumberCall
from gpumon.sources.nvml.fields.gpm import Gpm
from gpumon.sources.nvml.fields.links import CounterCall
from gpumon.sources.nvml.fields.processes import RecordsCall
from gpumon.sources.nvml.fields.table import (
    DEFAULT_OPTIONS,
    EVENT_REGISTER,
    EVENT_WAIT,
    GPM_METRICS,
    GPM_SAMPLE,
    NVML_FIELDS,
    PROCESS_LISTS,
    PROCESS_NAME,
    PROCESS_SHARES,
    SAMPLES,
    NvmlField,
    NvmlNumber,
    NvmlOptions,
)
from gpumon.sources.nvml.gpu import MIG_MODE
from gpumon.sources.nvml.probe.probed import (
    ProbedCall,
    ProbedDriver,
    ProbedField,
    ProbedGpu,
    ProbedRing,
)
from gpumon.sources.nvml.pynvml_module import pynvml

GPM_APART_S: Final = 0.12
"""GPM wants its two samples more than 100 ms apart."""

_MAX_PROCESSES: Final = 256

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

Beat = Callable[[str], None]
"""Is told, before each call, what is asked now."""


class CallLog:
    """What each function answered last, for people too, and how long each of its calls took."""

    def __init__(self) -> None:
        self.durations_us: dict[str, list[float]] = {}
        self.codes: dict[str, int] = {}
        self.values: dict[str, str] = {}

    def note(self, function: str, code: int, took_us: float) -> None:
        """Note a call: what it answered, and how long it took."""
        self.codes[function] = code
        self.durations_us.setdefault(function, []).append(took_us)

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


class WatchedLibrary(NvmlLibrary):
    """NVML that tells of each call, and whose it is, before it is made, and logs it after."""

    def __init__(self, beat: Beat) -> None:
        self.log, self.whose, self._beat = CallLog(), "", beat
        super().__init__()

    def function(self, name: str) -> CFunction:
        """The C function of that name, watched."""
        call = super().function(name)

        def watched(*arguments: object) -> int:
            self._beat(f"{self.whose}{name}")
            started_ns = perf_counter_ns()
            code = call(*arguments)
            self.log.note(name, code, (perf_counter_ns() - started_ns) / 1000)
            return code

        return watched


class Question(NamedTuple):
    """A function that is ready to be asked.

    Attributes:
        ask: Asks it, and gives the driver's code.
        say: What it answered, for people; means something after code 0. ``None``: nothing.
    """

    function: str
    ask: Callable[[], int]
    say: Callable[[], str] | None = None


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
        """Open the library; ``beat`` is told what is asked next."""
        self._clock, self._options, self._limits, self._beat = clock, options, limits, beat
        self._stamps = StampClock(clock)
        beat("nvmlInit")
        started_ns = perf_counter_ns()
        self.library = WatchedLibrary(beat)
        self._init_s = seconds(perf_counter_ns() - started_ns)
        self._until_ns = clock.monotonic_ns() + nanoseconds(limits.budget_s)

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
            if self.library.ask(name, ctypes.byref(number)) == SUCCESS:
                return f"{number.value // 1000}.{number.value % 1000 // 10}"
        return None

    def ask_gpu(self, index: int) -> ProbedGpu:
        """Ask everything of one GPU, by NVML's number of it."""
        library = self.library
        library.whose = f"GPU {index}: "
        handle = library.handle_by_index(index)
        if handle is None:
            code = library.refused.get(index, 999)
            return ProbedGpu(index, lost=gpu_trouble(code), lost_code=code)
        mig_mode = NumberCall(library, handle, MIG_MODE).read()
        persistence = library.number("nvmlDeviceGetPersistenceMode", handle)
        rings = tuple(self._ask_ring(handle, kind) for kind in range(len(SAMPLE_KINDS)))
        library.number("nvmlDeviceGetIndex", handle)
        is_lost = library.log.codes["nvmlDeviceGetIndex"] == GPU_IS_LOST
        code, events = library.event_types(handle)
        return ProbedGpu(
            index=index,
            uuid=library.text("nvmlDeviceGetUUID", handle),
            name=library.text("nvmlDeviceGetName", handle),
            pci_bus_id=library.pci_bus_id(handle),
            lost=gpu_trouble(GPU_IS_LOST) if is_lost else None,
            fields=tuple(self._ask_field(handle, field, rings) for field in NVML_FIELDS),
            rings=rings,
            has_gpm=Gpm(library, self._clock.monotonic_ns).supports(handle),
            mig_enabled=None if mig_mode is None else mig_mode == 1,
            mig_instances=len(library.mig_parts(handle) or ()) if mig_mode == 1 else 0,
            persistence_mode=None if persistence is None else bool(persistence),
            event_types=_event_names(events) if code == SUCCESS else None,
        )

    # -- a field ---------------------------------------------------------------

    def _ask_field(self, handle: int, field: NvmlField, rings: Sequence[ProbedRing]) -> ProbedField:
        wanted = field.name in self._options
        if not wanted:
            return ProbedField(field, wanted=False)
        questions = {one.function: one for one in self._questions(handle, field)}
        log = self.library.log = CallLog()
        if field.name == "activity":
            self._ask_for_activity(handle, log)
        elif field.name == "events":
            self._ask_for_events(handle, log)
        for call in (call for part in field.parts for call in part):
            # One that blocks for long is not tried where another gives the same.
            is_needless = call.blocks and SUCCESS in log.codes.values()
            if call.function in questions and not (is_needless and not self._limits.dear_too):
                self._repeat(questions.pop(call.function), log)
        ring = rings[UTILIZATION_SAMPLES]
        if field.name == "utilization" and ring.cadence_s is not None:
            words = f"{ring.count} samples of {ring.cadence_s * 1000:.0f} ms"
            log.values[SAMPLES.function] = words
        return ProbedField(field, wanted, tuple(log.call(name) for name in field.functions))

    def _repeat(self, question: Question, log: CallLog) -> None:
        function = question.function
        for _ in range(self._limits.times):
            code = log.codes[function] = question.ask()
            slow = sum(log.durations_us.get(function, ())) > self._limits.longest_us
            if slow or code in PERMANENT or self._clock.monotonic_ns() > self._until_ns:
                break
        if log.codes[function] == SUCCESS and question.say is not None:
            log.values[function] = question.say()

    def _questions(self, handle: int, field: NvmlField) -> Iterator[Question]:
        """How the functions of that field are asked, but for those of GPM and of events."""
        library = self.library
        for number in field.numbers:
            if number.words is not None:
                for call in number.calls:
                    yield _of_number(NumberCall(library, handle, call), number)
        if field.counters:
            yield _of_counters(CounterCall(library, handle, field.counters))
        if field.name == "utilization":
            yield _of_samples(library, handle)
        if field.name == "processes":
            for call in PROCESS_LISTS:
                yield _of_processes(library, handle, call.function, "{} now")
            for call in PROCESS_SHARES:
                yield _of_processes(library, handle, call.function, "SM share of {}")
        if field.name == "process_names":
            yield Question(PROCESS_NAME.function, self._name_itself, lambda: "names")

    def _name_itself(self) -> int:
        self.library.process_name(os.getpid())
        return self.library.log.codes[PROCESS_NAME.function]

    def _ask_for_activity(self, handle: int, log: CallLog) -> None:
        """A sample of GPM, then some more, and what lies between the last two."""
        gpm = Gpm(self.library, self._clock.monotonic_ns)
        if not gpm.supports(handle):
            # A board without GPM answers that question well; only then it refuses the sample.
            knows = self.library.has("nvmlGpmQueryDeviceSupport")
            log.codes[GPM_SAMPLE.function] = NOT_SUPPORTED if knows else FUNCTION_NOT_FOUND
            return
        track = gpm.track(handle)
        try:
            track.read()
            for _ in range(self._limits.gpm_times if track.code == SUCCESS else 0):
                self._clock.sleep_until_ns(self._clock.monotonic_ns() + nanoseconds(GPM_APART_S))
                activity = track.read()
                if activity is not None:
                    log.values[GPM_METRICS.function] = _activity_words(activity)
        finally:
            gpm.close()

    def _ask_for_events(self, handle: int, log: CallLog) -> None:
        """Register for what the GPU can report, wait some times for no time, and let go."""
        ask, events, data = self.library.ask, ctypes.c_void_p(), pynvml.c_nvmlEventData_t()
        wanted = ctypes.c_ulonglong(self.library.event_types(handle)[1])
        code = ask("nvmlEventSetCreate", ctypes.byref(events))
        if code != SUCCESS:
            log.codes[EVENT_REGISTER.function] = code
            return
        ask(EVENT_REGISTER.function, ctypes.c_void_p(handle), wanted, events)
        for _ in range(self._limits.times):
            ask(EVENT_WAIT.function, events, ctypes.byref(data), ctypes.c_uint(0))
        ask("nvmlEventSetFree", events)

    # -- the rings -------------------------------------------------------------

    def _ask_ring(self, handle: int, kind: int) -> ProbedRing:
        name, library = SAMPLE_KINDS[kind], self.library
        self._beat(f"{library.whose}samples of {name}")
        self._stamps.tick()
        ring = SampleRings(library, [handle], kind)
        (entries,) = ring.drain([0])
        now_ns = self._clock.monotonic_ns()
        stamps_us = [stamp_us for stamp_us, _ in entries]
        if stamps_us:
            self._stamps.learn([stamps_us[-1]], now_ns)
        offset_ns = self._stamps.offset_ns
        has_age = bool(stamps_us) and offset_ns is not None
        age_s = seconds(now_ns - (stamps_us[-1] * US - (offset_ns or 0))) if has_age else None
        steps_s = [(after - before) / 1e6 for before, after in pairwise(stamps_us)]
        return ProbedRing(
            kind=kind,
            name=name,
            code=ring.codes[0],
            answer="" if ring.codes[0] == SUCCESS else code_name(ring.codes[0]),
            count=len(stamps_us),
            cadence_s=statistics.median(steps_s) if steps_s else None,
            span_s=(stamps_us[-1] - stamps_us[0]) / 1e6 if steps_s else None,
            value_type=ring.value_types[0] if stamps_us else None,
            newest_age_s=age_s,
            call_us=library.log.durations_us[SAMPLES.function][-1],
        )


def _of_number(asked: NumberCall, number: NvmlNumber) -> Question:
    def say() -> str:
        numbers = asked.answered if number.is_of_next else asked.answered[:1]
        return (number.words or "").format(number.unit.said(*numbers))

    return Question(asked.name, asked.ask, say)


def _of_samples(library: NvmlLibrary, handle: int) -> Question:
    """What a tick asks: what is newer than the newest."""
    ring = SampleRings(library, [handle])
    newest_us = max((stamp_us for stamp_us, _ in ring.drain([0])[0]), default=0)

    def ask() -> int:
        ring.drain([newest_us])
        return ring.codes[0]

    return Question(SAMPLES.function, ask)


def _of_counters(asked: CounterCall) -> Question:
    def ask() -> int:
        return asked.ask() or next(value.nvmlReturn for _, value in asked.answers())

    return Question(asked.name, ask, lambda: "counted")


def _of_processes(library: NvmlLibrary, handle: int, function: str, words: str) -> Question:
    records = RecordsCall(library, handle, function, _MAX_PROCESSES)
    return Question(function, records.ask_newer, lambda: words.format(records.said))


def _event_names(bits: int) -> tuple[str, ...]:
    found = (1 << at for at in range(bits.bit_length()) if bits >> at & 1)
    return tuple(_EVENT_NAMES.get(bit, f"{bit:#x}") for bit in found)


def _activity_words(activity: ActivitySample) -> str:
    ratios = {
        "SM": activity.sm_active_ratio,
        "occupancy": activity.sm_occupancy_ratio,
        "tensor": activity.tensor_active_ratio,
        "DRAM": activity.memory_bandwidth_ratio,
    }
    return ", ".join(
        f"{name} {100 * ratio:.0f} %" for name, ratio in ratios.items() if ratio is not None
    )
