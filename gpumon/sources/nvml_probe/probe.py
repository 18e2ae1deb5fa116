"""Asks a driver everything that gpumon could ever ask it, a few times, and notes what it cost.

One thread, one GPU after the other, within a budget of time: what is slow is
asked once. It changes nothing on the board.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Final

from gpumon.core.clock import Clock
from gpumon.core.units import seconds
from gpumon.sources.nvml_binding import NvmlLibrary
from gpumon.sources.nvml_catalog import DEFAULT_OPTIONS, NVML_FIELDS, NvmlField, NvmlOptions
from gpumon.sources.nvml_clock import US, StampClock
from gpumon.sources.nvml_codes import GPU_IS_LOST, PERMANENT, SUCCESS, gpu_trouble
from gpumon.sources.nvml_gpm import Gpm
from gpumon.sources.nvml_probe.answers import (
    ProbedDriver,
    ProbedField,
    ProbedGpu,
    ProbedRing,
)
from gpumon.sources.nvml_probe.parts import CallLog, ask_for_activity, ask_for_events, event_types
from gpumon.sources.nvml_probe.questions import question
from gpumon.sources.nvml_probe.rings import (
    SAMPLE_KINDS,
    RingTap,
    answer_of,
    cadence_s,
    value_type_name,
)

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
