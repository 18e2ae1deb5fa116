"""What a driver answered when it was asked everything once: pure data, and what it would cost.

``probe`` asks; ``gpumon doctor`` and the capture on a board show it.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gpumon.sources.nvml.codes import FUNCTION_NOT_FOUND, NOT_FOUND, NOTHING_HAPPENED, SUCCESS
from gpumon.sources.nvml.fields.table import NvmlCall, NvmlField

_WORKS: Final = frozenset({SUCCESS, NOT_FOUND, NOTHING_HAPPENED})
"""Codes of a function that works, even if it has nothing to tell now."""

_TICK_S: Final = 1.0
"""The period that is reckoned with where a field is read in each tick."""


@dataclass(frozen=True, slots=True)
class ProbedCall:
    """One function, asked of one GPU.

    Attributes:
        function: The driver's name of it.
        code: What it answered last; ``None``: it was not asked.
        answer: That code by NVML's name, such as ``"Not Supported (3)"``.
        meaning: What that means here, in words; empty where it answered.
        durations_us: How long each call took, in microseconds, in the order of calls.
        value: What it said last, for people; ``None`` where it said nothing.
    """

    function: str
    code: int | None
    answer: str = ""
    meaning: str = ""
    durations_us: tuple[float, ...] = ()
    value: str | None = None

    @property
    def works(self) -> bool:
        """Whether it answers on this board, even if there is nothing to tell now."""
        return self.code in _WORKS

    @property
    def median_us(self) -> float | None:
        """The middle duration, in microseconds; ``None`` where it was not asked."""
        return statistics.median(self.durations_us) if self.durations_us else None

    @property
    def worst_us(self) -> float | None:
        """The longest, in microseconds."""
        return max(self.durations_us, default=None)


@dataclass(frozen=True, slots=True)
class ProbedField:
    """One field of the catalogue, asked of one GPU.

    Attributes:
        field: Which.
        wanted: Whether the options have it read; else it was not asked.
        calls: Its functions; none where it was not asked.
    """

    field: NvmlField
    wanted: bool
    calls: tuple[ProbedCall, ...] = ()

    def _of_each_part(self) -> Iterator[tuple[NvmlCall, ProbedCall]]:
        """What gives each part of the answer here: the newest of its functions that works."""
        by_name = {call.function: call for call in self.calls if call.works}
        for part in self.field.parts if self.calls else ():
            working = [(call, by_name[call.function]) for call in part if call.function in by_name]
            yield from working[:1]

    @property
    def used(self) -> tuple[ProbedCall, ...]:
        """The functions that a reading takes here; none where nothing answers."""
        return tuple(dict.fromkeys(probed for _, probed in self._of_each_part()))

    @property
    def works(self) -> bool:
        """Whether the field can be read on this board."""
        return bool(self.used)

    @property
    def value(self) -> str | None:
        """What it says, for people."""
        said = [call.value for call in self.used if call.value]
        return ", ".join(said) or None

    @property
    def reading_us(self) -> float | None:
        """What one reading costs: the medians of its calls, in microseconds."""
        medians = [
            (probed.median_us or 0.0) * call.calls_a_reading
            for call, probed in self._of_each_part()
        ]
        return sum(medians) if medians else None

    @property
    def seconds_per_second(self) -> float | None:
        """Seconds inside NVML for each second at the field's own cadence, ticks at 1 Hz.

        ``None`` where it cannot be read, or is waited for.
        """
        if self.reading_us is None or self.field.period_s is None:
            return None
        return self.reading_us / 1e6 / (self.field.period_s or _TICK_S)

    @property
    def trouble(self) -> ProbedCall | None:
        """The answer that says why it cannot be read; ``None`` where it can, or was not asked.

        Of several functions the one that was refused for another reason than
        that the driver lacks it, if there is one: that is what can be mended.
        """
        if self.works or not self.calls:
            return None
        return next((call for call in self.calls if call.code != FUNCTION_NOT_FOUND), self.calls[0])


@dataclass(frozen=True, slots=True)
class ProbedRing:
    """One kind of sample that the driver keeps of a GPU.

    Attributes:
        kind: NVML's number of it.
        name: Such as ``"gpu_utilization"``.
        code: What the driver answered.
        answer: That code by NVML's name.
        count: Entries in the ring when it was read whole.
        cadence_s: The median distance of two stamps; ``None`` of fewer than two.
        span_s: From the first stamp to the last; ``None`` of fewer than two.
        value_type: How values come, such as ``"unsigned int"``.
        newest_age_s: Age of the newest entry; ``None`` where the clock of
            the stamps is unknown.
        call_us: How long the call took, in microseconds.
    """

    kind: int
    name: str
    code: int
    answer: str
    count: int = 0
    cadence_s: float | None = None
    span_s: float | None = None
    value_type: str | None = None
    newest_age_s: float | None = None
    call_us: float | None = None


@dataclass(frozen=True, slots=True)
class ProbedGpu:
    """All that one GPU was asked.

    Attributes:
        index: NVML's number of it.
        uuid: Its UUID; ``None`` where it cannot be had.
        name: Product name.
        pci_bus_id: Such as ``"00000000:3B:00.0"``.
        lost: Why it could not be asked at all, as a sentence with what to do
            after its colon; ``None`` where it could.
        lost_code: NVML's code that says so.
        fields: One for each field of the catalogue.
        rings: One for each kind of sample.
        has_gpm: Whether the board has GPM; ``None``: it does not say.
        mig_enabled: Whether it is cut into MIG instances; ``None``: it does not say.
        mig_instances: How many there are.
        persistence_mode: Whether the driver stays loaded without a client; ``None``: no answer.
        event_types: The events that it can report, by name; ``None``: no answer.
    """

    index: int
    uuid: str | None = None
    name: str | None = None
    pci_bus_id: str | None = None
    lost: str | None = None
    lost_code: int = 0
    fields: tuple[ProbedField, ...] = ()
    rings: tuple[ProbedRing, ...] = ()
    has_gpm: bool | None = None
    mig_enabled: bool | None = None
    mig_instances: int = 0
    persistence_mode: bool | None = None
    event_types: tuple[str, ...] | None = None

    @property
    def seconds_per_second(self) -> float:
        """Seconds inside NVML for each second, with the fields that are wanted, ticks at 1 Hz."""
        return sum(one.seconds_per_second or 0.0 for one in self.fields if one.wanted)

    def field(self, name: str) -> ProbedField | None:
        """The field of that name, if it is one of the catalogue."""
        return next((one for one in self.fields if one.field.name == name), None)


@dataclass(frozen=True, slots=True)
class ProbedDriver:
    """The driver, and every GPU that it lists.

    Attributes:
        driver_version: Such as ``"580.95.05"``.
        nvml_version: Of the library.
        cuda_version: The newest CUDA it can run, such as ``"13.0"``.
        stamp_clock: Which clock the samples' stamps count: ``"realtime"``,
            ``"monotonic"``, ``"boottime"`` or ``"estimated"``; ``None``
            where no ring told.
        init_s: How long it took to open the library, in seconds.
        gpus: In the driver's order.
    """

    driver_version: str | None
    nvml_version: str | None
    cuda_version: str | None
    stamp_clock: str | None
    init_s: float
    gpus: tuple[ProbedGpu, ...] = ()
