"""What one board says every few seconds, field by field, each answer looked at before believed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from gpumon.core.sample import GpuDetails, ProcessSample
from gpumon.sources.nvml.binding import FieldCalls, NvmlLibrary
from gpumon.sources.nvml.fields.calls import BoardNumber
from gpumon.sources.nvml.fields.links import LinkRates
from gpumon.sources.nvml.fields.power import EnergyCounter
from gpumon.sources.nvml.fields.processes import process_field
from gpumon.sources.nvml.fields.schedule import FieldSchedule, Read, Surroundings
from gpumon.sources.nvml.fields.table import ENERGY, NVML_FIELDS, NvmlField
from gpumon.sources.nvml.gpm import GpmTrack

_IN_DETAILS: Final = frozenset(GpuDetails._fields)


def read_numbers(
    field: NvmlField, calls: FieldCalls, handle: int, refuse: Callable[[], None]
) -> Read:
    """How a field is read that is all numbers of the table.

    Args:
        field: Which.
        calls: What it asks through.
        handle: Which GPU, or MIG instance.
        refuse: Counts a value that no board can mean.
    """
    numbers = {
        number.told_as: BoardNumber(number, calls, handle, refuse) for number in field.numbers
    }
    is_of_details = not _IN_DETAILS.isdisjoint(numbers)

    def read(at_ns: int) -> Mapping[str, Any]:
        values = {told_as: number.read() for told_as, number in numbers.items()}
        return {"read_at_ns": at_ns, **values} if is_of_details else values

    return read


def read_processes(
    processes: Callable[[int], tuple[ProcessSample, ...] | None],
) -> Read:
    """How the processes are read, given what lists them at an instant."""
    return lambda at_ns: {"processes": processes(at_ns), "processes_at_ns": at_ns}


class FieldReader:
    """Everything of one GPU that is read every few seconds, as far as it is wanted.

    A field that is not wanted is never asked for. One that hangs or fails
    costs itself: what the others say stays true. Values go by their names in
    ``GpuSample`` and ``GpuDetails``.

    Another object is made where the handle becomes another one, so that a call
    that hangs tells nobody any more what it was made for.

    Attributes:
        schedule: The fields, what they said and which of them fail.
        rejected: Values refused so far, because no board can have meant them.
        measure_at_ns: When ``measure_links`` is due again; 0 before the first.
        gpm: Tells the activity; ``None`` where nothing of it is to be known.
        whole_since_ns: Of the time before this instant no activity is told.
    """

    def __init__(
        self,
        library: NvmlLibrary,
        handle: int,
        around: Surroundings,
        before: FieldReader | None = None,
    ) -> None:
        """Choose the fields.

        Args:
            library: NVML, opened.
            handle: Which GPU.
            around: What the GPUs have in common.
            before: What was asked of that GPU until now: its energy goes on from there.
        """
        self._energy: EnergyCounter = EnergyCounter() if before is None else before._energy
        self.rejected: int = 0 if before is None else before.rejected
        self.schedule = FieldSchedule(around)
        self.measure_at_ns = self.whole_since_ns = 0
        self.gpm: GpmTrack | None = None
        wanted = around.options.fields
        for field in NVML_FIELDS:
            if field.name in wanted and field.period_s and not field.own_parts:
                calls = FieldCalls(library)
                read = read_numbers(field, calls, handle, self._refuse)
                if field.numbers == (ENERGY,):
                    read = self._joules(calls, handle)
                self.schedule.add(field.name, calls, read)
        self._link_calls = FieldCalls(library)
        self._links = LinkRates(wanted, self._link_calls, handle, around.monotonic_ns, self._refuse)
        counted = sorted(wanted & {"pcie", "nvlink"})
        if counted:
            name = f"{' and '.join(counted)} counters"
            self.schedule.add(name, self._link_calls, _noted(self._links.read_counters))
        if "processes" in wanted:
            calls = FieldCalls(library)
            processes = process_field(library, handle, around.options, calls=calls)
            self.schedule.add("processes", calls, read_processes(processes.read))
        if "activity" in wanted:
            calls = FieldCalls(library)
            self.schedule.add("activity", calls, self._activity(calls))

    def _refuse(self) -> None:
        self.rejected += 1

    @property
    def wants_measuring(self) -> bool:
        """Whether ``measure_links`` is the only way to PCIe's rates."""
        return self._links.wants_window

    def measure_links(self, round_ns: int) -> None:
        """Let the driver measure PCIe, about 40 ms: not on two GPUs in one tick.

        Args:
            round_ns: How long it takes until all GPUs had their turn.
        """
        measure = _noted(self._links.measure)
        self.schedule.read_now("pcie", self._link_calls, measure, round_ns)

    def _joules(self, calls: FieldCalls, handle: int) -> Read:
        counter, energy = self._energy, BoardNumber(ENERGY, calls, handle, self._refuse)

        def read(at_ns: int) -> Mapping[str, Any]:
            rejected = counter.rejected
            joules = counter.take(energy.believed(), at_ns)
            self.rejected += counter.rejected - rejected
            return {ENERGY.told_as: joules}

        return read

    def _activity(self, calls: FieldCalls) -> Read:
        def read(_at_ns: int) -> Mapping[str, Any]:
            gpm = self.gpm
            if gpm is None:
                return {}
            activity = gpm.read(self.whole_since_ns)
            calls.note("GPM", gpm.code)
            self.rejected += gpm.newly_rejected()
            return {"activity": activity}

        return read


def _noted(read: Callable[[], Mapping[str, Any]]) -> Read:
    """The same, with the instant of the reading among its values."""
    return lambda at_ns: {"read_at_ns": at_ns, **read()}
