"""What a driver answered while the sampler ran for some seconds: pure data, with what it costs."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gpumon.sources.nvml.codes import (
    FUNCTION_NOT_FOUND,
    NOT_FOUND,
    NOTHING_HAPPENED,
    SUCCESS,
    code_name,
    meaning_of,
)
from gpumon.sources.nvml.fields.table import NvmlCall, NvmlField

_WORKS: Final = frozenset({SUCCESS, NOT_FOUND, NOTHING_HAPPENED})
"""Codes of a function that works, even if it has nothing to report now."""
_TICK_S: Final = 1.0


@dataclass(slots=True)
class CallRecord:
    """The calls of one function for one GPU: NVML's code of the last one, and their durations."""

    code: int = SUCCESS
    durations_us: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class FieldAnswer:
    """One field of one GPU.

    Attributes:
        field: Which.
        wanted: Whether the options have it read.
        calls: Its functions that were called.
        drain_s: Time between two drains of the rings; 0: each tick.
        value: What the newest sample has of it, in words; ``None``: nothing.
    """

    field: NvmlField
    wanted: bool
    calls: Mapping[str, CallRecord]
    drain_s: float = 0.0
    value: str | None = None

    def _used(self) -> Iterator[tuple[NvmlCall, CallRecord]]:
        """The usual one of the functions that work, for each part of the answer."""
        for part in self.field.parts:
            working = [
                (call, self.calls[call.function])
                for call in part
                if call.function in self.calls and self.calls[call.function].code in _WORKS
            ]
            if working:
                yield max(working, key=lambda pair: len(pair[1].durations_us))

    @property
    def works(self) -> bool:
        if self.field.counters and self.value is None:
            return False  # the call answers for all counters together
        return any(True for _ in self._used())

    @property
    def reading_us(self) -> float | None:
        """What one reading takes inside the driver: the medians of its calls, in microseconds."""
        medians = [
            (median_us(record) or 0.0) * call.calls_a_reading for call, record in self._used()
        ]
        return sum(medians) if medians else None

    @property
    def seconds_per_second(self) -> float | None:
        """Seconds inside the driver for each second at the usual period, ticks at 1 Hz.

        ``None`` where the field cannot be read, or is waited for.
        """
        if self.reading_us is None or self.period_s is None:
            return None
        return self.reading_us / 1e6 / (self.period_s or _TICK_S)

    @property
    def period_s(self) -> float | None:
        """How often it is read, in seconds; 0: each tick; ``None``: a thread waits for it."""
        return self.drain_s if self.field.period_s == 0.0 else self.field.period_s

    def seconds_by_call(self) -> dict[str, float]:
        """The same as ``seconds_per_second``, by function; empty where that is ``None``."""
        if self.period_s is None:
            return {}
        every_s = self.period_s or _TICK_S
        return {
            call.function: (median_us(record) or 0.0) * call.calls_a_reading / 1e6 / every_s
            for call, record in self._used()
        }

    @property
    def refusal(self) -> tuple[str, int] | None:
        """The function and the code that say why it cannot be read.

        Of several functions, one that the driver has and refused: that may have a remedy.
        """
        refused = [(name, one.code) for name, one in self.calls.items() if one.code not in _WORKS]
        if self.works or not refused:
            return None
        return next((pair for pair in refused if pair[1] != FUNCTION_NOT_FOUND), refused[0])


@dataclass(frozen=True, slots=True)
class SampleRing:
    """One kind of sample that the driver keeps of a GPU; ``None``: unknown.

    Attributes:
        kind: NVML's number of it.
        answer: The driver's code by name; empty for success.
        cadence_s: The median distance of two stamps.
        span_s: From the first stamp to the last.
        value_type: The C type of its values, such as ``"unsigned int"``.
        newest_age_s: Age of the newest entry.
        call_us: How long the call took, in microseconds.
    """

    kind: int
    name: str
    code: int
    answer: str
    count: int
    cadence_s: float | None
    span_s: float | None
    value_type: str | None
    newest_age_s: float | None
    call_us: float | None


@dataclass(frozen=True, slots=True)
class GpuAnswers:
    """What one GPU answered; ``None``: no answer.

    Attributes:
        lost: Why it could not be read at all, with what to do after its colon; ``None``: it could.
        lost_code: NVML's code of that.
        fields: One for each field of the table.
        rings: One for each kind of sample.
        mig_instances: How many MIG instances it has.
        event_types: The events that it can report, by name.
    """

    index: int
    uuid: str | None = None
    name: str | None = None
    pci_bus_id: str | None = None
    lost: str | None = None
    lost_code: int = SUCCESS
    fields: tuple[FieldAnswer, ...] = ()
    rings: tuple[SampleRing, ...] = ()
    has_gpm: bool | None = None
    mig_enabled: bool | None = None
    mig_instances: int = 0
    persistence_mode: bool | None = None
    event_types: tuple[str, ...] | None = None

    @property
    def seconds_per_second(self) -> float:
        """Seconds inside the driver for each second, at the usual periods, ticks at 1 Hz."""
        return sum(field.seconds_per_second or 0.0 for field in self.fields)

    def field(self, name: str) -> FieldAnswer:
        return next(answer for answer in self.fields if answer.field.name == name)


@dataclass(frozen=True, slots=True)
class DriverAnswers:
    """The driver, and every GPU that it lists.

    Attributes:
        cuda_version: The newest CUDA it can run, such as ``"13.0"``.
        stamp_clock: Which clock the samples' stamps count: ``"realtime"``, ``"monotonic"``,
            ``"boottime"`` or ``"estimated"``; ``None`` without a sample.
        init_s: How long it took to open the library, in seconds.
        gpus: In the driver's order.
    """

    driver_version: str | None
    nvml_version: str | None
    cuda_version: str | None
    stamp_clock: str | None
    init_s: float
    gpus: tuple[GpuAnswers, ...] = ()

    def document(self) -> dict[str, Any]:
        return {**_members(self), "gpus": [_gpu_document(gpu) for gpu in self.gpus]}


def median_us(record: CallRecord) -> float | None:
    """The median duration, in microseconds; ``None`` of a call that was only waited for."""
    return statistics.median(record.durations_us) if record.durations_us else None


# -- for scripts -------------------------------------------------------------------


def _members(answers: DriverAnswers | GpuAnswers | SampleRing) -> dict[str, Any]:
    return {name: getattr(answers, name) for name in answers.__slots__}


def _gpu_document(gpu: GpuAnswers) -> dict[str, Any]:
    fields = [
        {
            "name": answer.field.name,
            "wanted": answer.wanted,
            "works": answer.works,
            "period_seconds": answer.period_s,
            "reading_microseconds": answer.reading_us,
            "seconds_per_second": answer.seconds_per_second,
            "calls": [_call_document(*call, answer.value) for call in answer.calls.items()],
        }
        for answer in gpu.fields
    ]
    return {**_members(gpu), "fields": fields, "rings": list(map(_members, gpu.rings))}


def _call_document(function: str, record: CallRecord, value: str | None) -> dict[str, Any]:
    return {
        "function": function,
        "code": record.code,
        "answer": code_name(record.code),
        "meaning": meaning_of(record.code),
        "value": value if record.code == SUCCESS else None,
        "calls": len(record.durations_us),
        "median_microseconds": median_us(record),
        "worst_microseconds": max(record.durations_us, default=None),
    }
