"""Runs the sampler for some seconds and collects what the driver answered."""

from __future__ import annotations

import ctypes
import math
import os
import statistics
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import pairwise
from time import perf_counter_ns
from typing import Any, Final

from gpumon.cli.doctor.driver_answers import (
    CallRecord,
    DriverAnswers,
    FieldAnswer,
    GpuAnswers,
    SampleRing,
)
from gpumon.cli.doctor.field_values import value_of
from gpumon.core.clock import NS_PER_S, Clock, nanoseconds, seconds
from gpumon.core.sample import Frame, GpuSample
from gpumon.sources.nvml.binding import CallAccounts, CFunction, NvmlLibrary
from gpumon.sources.nvml.codes import (
    FUNCTION_NOT_FOUND,
    GPU_IS_LOST,
    NOT_SUPPORTED,
    SUCCESS,
    code_name,
    gpu_trouble,
)
from gpumon.sources.nvml.drain_schedule import DrainSchedule
from gpumon.sources.nvml.events import WAITS
from gpumon.sources.nvml.fields.calls import NumberCall
from gpumon.sources.nvml.fields.gpm import Gpm
from gpumon.sources.nvml.fields.table import (
    FIELD_VALUES,
    GPM_SAMPLE,
    NVML_FIELDS,
    SAMPLES,
    NvmlCall,
    NvmlField,
    NvmlOptions,
    ReadTimes,
)
from gpumon.sources.nvml.gpu import MIG_MODE
from gpumon.sources.nvml.power import has_mean_power
from gpumon.sources.nvml.sample_rings import (
    POWER_SAMPLES,
    SAMPLE_KINDS,
    UTILIZATION_SAMPLES,
    SampleRings,
)
from gpumon.sources.nvml.source import NvmlSource
from gpumon.sources.nvml.stamp_clock import US, StampClock

_SLOW_PERIOD_S: Final = 0.025
_SLOW_PATIENCE_S: Final = 1.0
_KIND_OF_SAMPLES: Final = {"utilization": UTILIZATION_SAMPLES, "power": POWER_SAMPLES}
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


BeforeCall = Callable[[str], None]
"""Receives the name of each call, and the GPU it is for, before it is made."""


class _JournalLibrary(NvmlLibrary):
    """NVML that records what each call answered and how long it took, for each GPU."""

    def __init__(self, accounts: CallAccounts, before_call: BeforeCall) -> None:
        self._records: dict[tuple[int | None, str], CallRecord] = {}
        self._index_of: dict[int, int] = {}
        self._before_call = before_call
        before_call("nvmlInit")
        started_ns = perf_counter_ns()
        super().__init__(accounts)
        self.init_s = seconds(perf_counter_ns() - started_ns)

    def handle_by_index(self, index: int) -> int | None:
        handle = super().handle_by_index(index)
        if handle is not None:
            self._index_of[handle] = index
        return handle

    def record(self, handle: int | None, function: str) -> CallRecord | None:
        """The calls for that GPU; of a function that is called for all at once, those for all."""
        return self._records.get((handle, function)) or self._records.get((None, function))

    def function(self, name: str) -> CFunction:
        call, is_wait = super().function(name), name in WAITS

        def recorded(*arguments: Any) -> int:  # noqa: ANN401 (what ctypes accepts)
            first = arguments[0] if arguments else None
            handle = first.value if isinstance(first, ctypes.c_void_p) else None
            index = self._index_of.get(handle or 0)
            if not is_wait:
                self._before_call(name if index is None else f"GPU {index}: {name}")
            started_ns = perf_counter_ns()
            code = call(*arguments)
            spent_us = (perf_counter_ns() - started_ns) / 1000
            record = self._records.setdefault((None if is_wait else handle, name), CallRecord())
            record.code = code
            if not is_wait:  # a waiting call holds no lock of the driver: its time is no cost
                record.durations_us.append(spent_us)
            if name == FIELD_VALUES.function and code == SUCCESS:
                _, count, values, *_ = arguments
                codes = [values[at].nvmlReturn for at in range(count.value)]
                record.code = next(filter(None, codes), SUCCESS)
            return code

        return recorded


def run_sampler(
    clock: Clock,
    options: NvmlOptions,
    before_call: BeforeCall = lambda what: None,
    *,
    readings: int,
    every_s: float,
) -> tuple[list[Frame], DriverAnswers]:
    """Run the sampler for some seconds; return its frames, and what the driver answered.

    Raises:
        SourceUnavailableError: No GPU can be read.
    """
    frames: list[Frame] = []
    with closing(_JournalSource(clock, options, every_s, before_call)) as source:
        for _ in range(readings):
            if frames:
                clock.sleep_until_ns(clock.monotonic_ns() + nanoseconds(every_s))
            frames.append(source.read())
        reader = _AnswerReader(source.journal, options, frames[-1], source.stamps, clock)
        return frames, reader.driver()


class _JournalSource(NvmlSource):
    """The sampler, with a record of all calls; every field is read in every reading."""

    def __init__(
        self, clock: Clock, options: NvmlOptions, every_s: float, before_call: BeforeCall
    ) -> None:
        self._before_call = before_call
        super().__init__(
            clock,
            options=options,
            times=ReadTimes(every_s, _SLOW_PERIOD_S),
            slow_patience_s=_SLOW_PATIENCE_S,
        )

    def open_library(self, accounts: CallAccounts) -> NvmlLibrary:
        self.journal = _JournalLibrary(accounts, self._before_call)
        return self.journal


class _AnswerReader:
    """Collects what a sampler's calls returned, and makes the few calls that it does not make."""

    def __init__(
        self,
        library: _JournalLibrary,
        options: NvmlOptions,
        frame: Frame,
        stamps: StampClock,
        clock: Clock,
    ) -> None:
        self._library, self._options, self._frame = library, options, frame
        self._stamps, self._clock = stamps, clock
        if "process_names" in options:
            library.process_name(os.getpid())
        sampled = library.record(None, SAMPLES.function) or CallRecord()
        self._sampled_us = list(sampled.durations_us)

    def driver(self) -> DriverAnswers:
        library, domain = self._library, self._stamps.domain
        return DriverAnswers(
            driver_version=library.driver_version,
            nvml_version=library.text("nvmlSystemGetNVMLVersion"),
            cuda_version=self._cuda_version(),
            stamp_clock=None if domain is None else domain.value,
            init_s=library.init_s,
            gpus=tuple(map(self._gpu, range(library.device_count()))),
        )

    def _cuda_version(self) -> str | None:
        number = ctypes.c_int()
        for name in ("nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion"):
            if self._library.call(name, ctypes.byref(number)) == SUCCESS:
                return f"{number.value // 1000}.{number.value % 1000 // 10}"
        return None

    def _gpu(self, index: int) -> GpuAnswers:
        library = self._library
        handle = library.handle_by_index(index)
        if handle is None:
            code = library.refused[index]
            return GpuAnswers(index, lost=gpu_trouble(code), lost_code=code)
        uuid = library.text("nvmlDeviceGetUUID", handle)
        mig_mode = NumberCall(library, handle, MIG_MODE).read()
        persistence = library.number("nvmlDeviceGetPersistenceMode", handle)
        place = NumberCall(library, handle, NvmlCall("nvmlDeviceGetIndex"))
        is_lost = place.call() == GPU_IS_LOST
        code, events = library.event_types(handle)
        has_gpm = Gpm(library, self._clock.monotonic_ns).supports(handle)
        rings = tuple(self._ring(handle, kind) for kind in range(len(SAMPLE_KINDS)))
        sample = next((gpu for gpu in self._frame.gpus if gpu.device.uuid == uuid), None)
        fields = [self._field(handle, field, sample, rings, has_gpm) for field in NVML_FIELDS]
        return GpuAnswers(
            index=index,
            uuid=uuid,
            name=library.text("nvmlDeviceGetName", handle),
            pci_bus_id=library.pci_bus_id(handle),
            lost=gpu_trouble(GPU_IS_LOST) if is_lost else None,
            lost_code=GPU_IS_LOST if is_lost else SUCCESS,
            fields=tuple(fields),
            rings=rings,
            has_gpm=has_gpm,
            mig_enabled=None if mig_mode is None else mig_mode == 1,
            mig_instances=sum(gpu.device.parent_uuid == uuid for gpu in self._frame.gpus),
            persistence_mode=None if persistence is None else bool(persistence),
            event_types=_event_names(events) if code == SUCCESS else None,
        )

    def _field(
        self,
        handle: int,
        field: NvmlField,
        sample: GpuSample | None,
        rings: Sequence[SampleRing],
        has_gpm: bool | None,
    ) -> FieldAnswer:
        if field.name not in self._options:
            return FieldAnswer(field, False, {})
        calls = {
            name: record
            for name in field.functions
            if (record := self._library.record(handle, name)) is not None
        }
        is_drained = field.name in _KIND_OF_SAMPLES
        if field.name == "power" and has_mean_power(self._library, handle):
            is_drained = False
        if is_drained:
            code = rings[_KIND_OF_SAMPLES[field.name]].code
            calls[SAMPLES.function] = CallRecord(code, self._sampled_us)
        if field.name == "activity" and has_gpm is False:
            has_function = self._library.has("nvmlGpmQueryDeviceSupport")
            code = NOT_SUPPORTED if has_function else FUNCTION_NOT_FOUND
            calls = {GPM_SAMPLE.function: CallRecord(code)}
        value = None if sample is None else value_of(field.name, sample)
        drain_s = _drain_s(rings[UTILIZATION_SAMPLES])
        return FieldAnswer(field, True, calls, drain_s, value)

    def _ring(self, handle: int, kind: int) -> SampleRing:
        self._stamps.tick()
        ring = SampleRings(self._library, [handle], kind)
        entries = ring.drain({0: 0})[0]
        now_ns = self._clock.monotonic_ns()
        stamps_us = [stamp_us for stamp_us, _ in entries]
        offset_ns = self._stamps.offset_ns
        has_age = bool(stamps_us) and offset_ns is not None
        steps_s = [(after - before) / 1e6 for before, after in pairwise(stamps_us)]
        record = self._library.record(handle, SAMPLES.function)
        return SampleRing(
            kind=kind,
            name=SAMPLE_KINDS[kind],
            code=ring.codes[0],
            answer="" if ring.codes[0] == SUCCESS else code_name(ring.codes[0]),
            count=len(stamps_us),
            cadence_s=statistics.median(steps_s) if steps_s else None,
            span_s=(stamps_us[-1] - stamps_us[0]) / 1e6 if steps_s else None,
            value_type=ring.value_types[0] if stamps_us else None,
            newest_age_s=(
                seconds(now_ns - (stamps_us[-1] * US - (offset_ns or 0))) if has_age else None
            ),
            call_us=None if record is None else record.durations_us[-1],
        )


def _drain_s(ring: SampleRing) -> float:
    """How often the daemon drains that ring, in ticks of a second; 0: each tick."""
    schedule = DrainSchedule(NS_PER_S)
    if ring.cadence_s is not None:
        schedule.learn(ring.count, nanoseconds(ring.cadence_s), 0)
    drain_s = math.floor(seconds(schedule.interval_ns) + 0.1)
    return float(drain_s) if drain_s > 1 else 0.0


def _event_names(bits: int) -> tuple[str, ...]:
    found = (1 << at for at in range(bits.bit_length()) if bits >> at & 1)
    return tuple(_EVENT_NAMES.get(bit, f"{bit:#x}") for bit in found)
