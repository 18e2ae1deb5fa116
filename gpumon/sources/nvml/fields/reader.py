"""Reads one GPU's fields every few seconds, and validates each answer.

A slow field is read less often; a value expires after three of its periods; and a field whose
calls fail is reported as failing until one of them succeeds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, Final, TypeAlias

from gpumon.core.clock import NS_PER_S
from gpumon.core.sample import FieldFault, GpuDetails, ProcessSample
from gpumon.sources.nvml.binding import FieldCalls, NvmlLibrary
from gpumon.sources.nvml.codes import code_name
from gpumon.sources.nvml.fields.calls import BoardNumber
from gpumon.sources.nvml.fields.gpm import GpmTrack
from gpumon.sources.nvml.fields.links import LinkRates
from gpumon.sources.nvml.fields.power_now import PowerNow
from gpumon.sources.nvml.fields.processes import process_field
from gpumon.sources.nvml.fields.table import (
    ENERGY,
    GPM_PERIOD_S,
    NVML_FIELDS,
    SLOW_PERIOD_S,
    NvmlField,
    NvmlOptions,
)

Read: TypeAlias = Callable[[int], Mapping[str, Any]]
"""Reads from the driver, at a time of CLOCK_MONOTONIC; returns values by name."""

PROCESSES: Final = "processes"
_IN_DETAILS: Final = frozenset(GpuDetails._fields)

_RESTED_TIMES: Final = 50
"""A field rests for this many times its reading's duration: it gets at most 2 % of the time."""

_LONGEST_REST_NS: Final = 60 * NS_PER_S

_HANGS_AFTER_NS: Final = 3 * NS_PER_S
"""A call that takes this long is reported, because other calls wait for it."""

_VALID_PERIODS: Final = 3
_VALID_AT_LEAST_NS: Final = 3 * NS_PER_S
_FOREVER_NS: Final = 1 << 62


def valid_for_ns(period_ns: int) -> int:
    """Return how long a value is valid that is read once in ``period_ns``.

    >>> valid_for_ns(500_000_000), valid_for_ns(5_000_000_000)
    (3000000000, 15000000000)
    """
    return max(_VALID_PERIODS * period_ns, _VALID_AT_LEAST_NS)


class LatestValues:
    """The newest values of one device, each until it expires.

    One thread may put values while another reads them.

    Attributes:
        has_news: Whether a value was put since ``at`` was called.
        holds_until_ns: When the next of the values from ``at`` expires.
    """

    def __init__(self) -> None:
        self.has_news = True
        self.holds_until_ns = _FOREVER_NS
        self._values: dict[str, tuple[int, Mapping[str, Any]]] = {}

    def put(self, field: str, values: Mapping[str, Any], until_ns: int) -> None:
        """Replace the values of a field, by name, which expire at ``until_ns``."""
        self._values = {**self._values, field: (until_ns, values)}
        self.has_news = True  # last: the values must be there before

    def at(self, now_ns: int) -> dict[str, Any]:
        """Return the values that are valid now, by name."""
        self.has_news = False  # first: a value that is put meanwhile is news
        values: dict[str, Any] = {}
        holds_until_ns = _FOREVER_NS
        for until_ns, known in self._values.values():
            if now_ns < until_ns:
                values.update(known)
                holds_until_ns = min(holds_until_ns, until_ns)
        self.holds_until_ns = holds_until_ns
        return values


@dataclass(frozen=True, slots=True)
class SourceContext:
    """What the devices of one source have in common.

    Attributes:
        period_ns: Time between two ticks.
        slow_period_ns: Time between two readings of slow fields.
        drain_every_ns: How often rings are drained at least; ``None``: as ``DrainSchedule`` says.
        after_reading: Runs something when no slow reading is running: now, or on the thread that
            reads.
        refuse: Counts an invalid value, on any thread.
    """

    options: NvmlOptions
    monotonic_ns: Callable[[], int]
    period_ns: int
    slow_period_ns: int
    after_reading: Callable[[Callable[[], None]], None]
    refuse: Callable[[], None]
    drain_every_ns: int | None = None


class FieldFaults:
    """Which fields of one device fail now.

    Attributes:
        failing: These fields, in the order in which they began to fail.
    """

    def __init__(self) -> None:
        self.failing: tuple[FieldFault, ...] = ()
        self._hanging: str | None = None

    def note(self, field: str, function: str, code: int, now_ns: int) -> None:
        self.begin(field, f"{function} answers {code_name(code)}", now_ns)

    def begin(self, field: str, reason: str, now_ns: int) -> None:
        """Record that a field fails; the time at which it began is kept."""
        for fault in self.failing:
            if fault.field == field:
                return
        self.failing = (*self.failing, FieldFault(field, reason, now_ns))

    def hang(self, field: str | None, now_ns: int) -> None:
        """Record whose call hangs; ``None``: no call does."""
        if self._hanging is not None and self._hanging != field:
            self.end(self._hanging)
        self._hanging = field
        if field is not None:
            self.begin(field, "the call has not returned", now_ns)

    def end(self, field: str) -> None:
        if self.failing:
            self.failing = tuple([fault for fault in self.failing if fault.field != field])


@dataclass(slots=True)
class _Scheduled:
    """One field, how often it is read, and from when on it may be read again."""

    field: str
    calls: FieldCalls
    read: Read
    period_ns: int
    due_at_ns: int = 0


class FieldSchedule:
    """The fields of one device that are read every few seconds, in their order.

    One thread reads; another may look at the values and at the call that is running.

    Attributes:
        latest: Their newest values.
        faults: Which of them fail.
    """

    def __init__(self, context: SourceContext) -> None:
        self.latest = LatestValues()
        self.faults = FieldFaults()
        self._slow_period_ns = context.slow_period_ns
        self._period_ns = max(context.slow_period_ns, context.period_ns)
        self._monotonic_ns = context.monotonic_ns
        self._scheduled: list[_Scheduled] = []
        self._under_way: tuple[str, int] | None = None

    def add(self, field: str, calls: FieldCalls, read: Read, periods: float = 1.0) -> None:
        """Add a field that is read once in so many slow periods."""
        period_ns = max(self._period_ns, int(self._slow_period_ns * periods))
        self._scheduled.append(_Scheduled(field, calls, read, period_ns))

    def read_due(self) -> None:
        for scheduled in self._scheduled:
            if self._monotonic_ns() >= scheduled.due_at_ns:
                self._read_one(scheduled)

    def read_processes(self) -> None:
        """List the processes now."""
        for scheduled in self._scheduled:
            if scheduled.field == PROCESSES:
                self._read_one(scheduled)

    def _read_one(self, scheduled: _Scheduled) -> None:
        now_ns, started_ns = self._monotonic_ns(), perf_counter_ns()
        values = self._read(scheduled, now_ns)
        period_ns = scheduled.period_ns
        rest_ns = min(_RESTED_TIMES * (perf_counter_ns() - started_ns), _LONGEST_REST_NS)
        # A reading of the schedule may come early: by half a period, and much more after an event.
        early_ns = self._period_ns * (9 if period_ns == self._period_ns else 5) // 10
        scheduled.due_at_ns = now_ns + max(rest_ns, period_ns - early_ns)
        # A field that rests is read later, and expires later.
        later_ns = max(0, rest_ns - period_ns)
        self._put(scheduled.field, values, later_ns + valid_for_ns(period_ns))

    def read_now(self, field: str, calls: FieldCalls, read: Read, period_ns: int) -> None:
        """Read a field that the caller schedules."""
        period_ns = max(period_ns, self._period_ns)
        values = self._read(_Scheduled(field, calls, read, period_ns), self._monotonic_ns())
        self._put(field, values, valid_for_ns(period_ns))

    def _read(self, scheduled: _Scheduled, now_ns: int) -> Mapping[str, Any]:
        calls = scheduled.calls
        calls.begin()
        self._under_way = scheduled.field, now_ns
        values = scheduled.read(now_ns)
        self._under_way = None
        if calls.error is not None:
            self.faults.note(scheduled.field, *calls.error, now_ns)
        elif calls.answered:
            self.faults.end(scheduled.field)
        return values

    def _put(self, field: str, values: Mapping[str, Any], for_ns: int) -> None:
        self.latest.put(field, values, self._monotonic_ns() + for_ns)

    def hanging(self, now_ns: int) -> str | None:
        """Return the field whose call has not returned for seconds; ``None``: there is none."""
        under_way = self._under_way
        if under_way is None or now_ns - under_way[1] < _HANGS_AFTER_NS:
            return None
        return under_way[0]


_MAX_WATTS: Final = 20_000
"""No board draws as much: a counter that ran faster was set."""

_SLACK_MILLIJOULES: Final = 20_000_000
"""Boards update their counter in steps: a short time may have a large one."""


class EnergyCounter:
    """The energy that one GPU has used: the increases of the board's counter, added up.

    The board's counter restarts when the driver is reloaded or the GPU is reset. The sum stays
    then and continues from there: the energy between the last reading and the restart is missing,
    never estimated. If the counter ran on while it could not be read, all of that counts.
    """

    def __init__(self, refuse: Callable[[], None]) -> None:
        """Start without a reading; ``refuse`` counts an invalid one."""
        self._refuse = refuse
        self._sum_millijoules = 0
        self._last_millijoules: int | None = None
        self._last_at_ns = 0

    def update(self, millijoules: int | None, now_ns: int) -> float | None:
        """Add a reading of the board's counter; return the sum in joules, which never falls."""
        if millijoules is None:
            return None
        last = self._last_millijoules
        if last is None:
            self._sum_millijoules = millijoules
        elif millijoules >= last:
            used, elapsed_ns = millijoules - last, max(0, now_ns - self._last_at_ns)
            if used > _MAX_WATTS * elapsed_ns * 1000 // NS_PER_S + _SLACK_MILLIJOULES:
                self._refuse()
            else:
                self._sum_millijoules += used
        self._last_millijoules, self._last_at_ns = millijoules, now_ns
        return self._sum_millijoules / 1000


def read_numbers(
    field: NvmlField, calls: FieldCalls, handle: int, refuse: Callable[[], None]
) -> Read:
    """Return what reads a field that consists of numbers of the table."""
    numbers = {
        number.attribute: BoardNumber(number, calls, handle, refuse) for number in field.numbers
    }
    is_of_details = not _IN_DETAILS.isdisjoint(numbers)

    def read(at_ns: int) -> Mapping[str, Any]:
        values = {attribute: number.read() for attribute, number in numbers.items()}
        return {"read_at_ns": at_ns, **values} if is_of_details else values

    return read


def read_processes(
    processes: Callable[[int], tuple[ProcessSample, ...] | None],
) -> Read:
    """Return what reads the processes, given what lists them at a time."""
    return lambda at_ns: {"processes": processes(at_ns), "processes_at_ns": at_ns}


class FieldReader:
    """The slow fields of one GPU that are switched on.

    A field that hangs or fails does not affect the others. Values have their names in
    ``GpuSample`` and ``GpuDetails``. A new handle gets a new object, so that a hanging call cannot
    report what it was made for.

    Attributes:
        measure_at_ns: When ``measure_links`` is due again; 0 before the first.
        whole_since_ns: No activity from before this time is reported.
    """

    def __init__(
        self,
        library: NvmlLibrary,
        handle: int,
        context: SourceContext,
        energy: EnergyCounter,
    ) -> None:
        """Choose the fields; ``energy`` continues with what that GPU has used until now."""
        self.schedule = FieldSchedule(context)
        self.measure_at_ns = self.whole_since_ns = 0
        self.gpm: GpmTrack | None = None
        wanted, refuse = context.options, context.refuse
        for field in NVML_FIELDS:
            if field.name in wanted and field.period_s and not field.own_parts:
                calls = FieldCalls(library)
                read = read_numbers(field, calls, handle, refuse)
                if field.numbers == (ENERGY,):
                    read = _joules(energy, BoardNumber(ENERGY, calls, handle, refuse))
                self.schedule.add(field.name, calls, read, field.period_s / SLOW_PERIOD_S)
        if "power" in wanted and "energy" in wanted:
            calls = FieldCalls(library)
            self.schedule.add("present power", calls, PowerNow(calls, handle, refuse).read)
        self._link_calls = FieldCalls(library)
        self._links = LinkRates(wanted, self._link_calls, handle, context.monotonic_ns, refuse)
        counted = sorted(wanted & {"pcie", "nvlink"})
        if counted:
            name = f"{' and '.join(counted)} counters"
            self.schedule.add(name, self._link_calls, _noted(self._links.read_counters))
        if "processes" in wanted:
            calls = FieldCalls(library)
            processes = process_field(library, handle, context.options, calls=calls, refuse=refuse)
            self.schedule.add(PROCESSES, calls, read_processes(processes.read))
        if "activity" in wanted:
            calls = FieldCalls(library)
            periods = GPM_PERIOD_S / SLOW_PERIOD_S
            self.schedule.add("activity", calls, self._activity(calls), periods)

    @property
    def wants_measuring(self) -> bool:
        """Whether only ``measure_links`` returns PCIe rates."""
        return self._links.wants_window

    def measure_links(self, round_ns: int) -> None:
        """Let the driver measure PCIe for about 40 ms: one GPU a tick, so all in ``round_ns``."""
        measure = _noted(self._links.measure)
        self.schedule.read_now("pcie", self._link_calls, measure, round_ns)

    def _activity(self, calls: FieldCalls) -> Read:
        def read(_at_ns: int) -> Mapping[str, Any]:
            gpm = self.gpm
            if gpm is None:
                return {}
            activity = gpm.read(self.whole_since_ns)
            calls.note("GPM", gpm.code)
            return {"activity": activity}

        return read


def _joules(counter: EnergyCounter, energy: BoardNumber) -> Read:
    return lambda at_ns: {ENERGY.attribute: counter.update(energy.valid(), at_ns)}


def _noted(read: Callable[[], Mapping[str, Any]]) -> Read:
    """Add the time of the reading to the values."""
    return lambda at_ns: {"read_at_ns": at_ns, **read()}
