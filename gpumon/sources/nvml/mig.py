"""The parts of a GPU that MIG has cut, each a device of its own.

A GPU that is cut has no utilisation, which is not idle; its power,
temperature and energy are still those of the board. What computes are its
compute instances. Each lies in a GPU instance, which is what GPM speaks of: so
where a GPU instance holds several compute instances, GPM says how busy they
were together, which is no more than an upper bound for each of them. Then
their utilisation is unknown, like that of an instance on a board without GPM
(before Hopper); only an instance that has its GPU instance to itself is known.

The driver gives a GPU instance that is made anew the number of one that was
destroyed. So an instance is known by its UUID alone, and a window of GPM ends
with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gpumon.core.sample import ActivitySample, BusySample, Device, GpuSample, ProcessSample
from gpumon.sources.nvml.binding import FieldCalls, NvmlLibrary
from gpumon.sources.nvml.busy import DrainInstant
from gpumon.sources.nvml.clock import Entry
from gpumon.sources.nvml.codes import PERMANENT, SUCCESS
from gpumon.sources.nvml.fields.calls import capacity_bytes
from gpumon.sources.nvml.fields.gpm import Gpm, GpmTrack
from gpumon.sources.nvml.fields.latest_values import holds_for_ns
from gpumon.sources.nvml.fields.processes import process_field
from gpumon.sources.nvml.fields.reader import (
    FieldFaults,
    FieldSchedule,
    Surroundings,
    read_numbers,
    read_processes,
)
from gpumon.sources.nvml.fields.table import field_called
from gpumon.sources.nvml.gpu import NvmlGpu


class MigPlace(NamedTuple):
    """Where one compute instance lies, as the driver lists it.

    Attributes:
        uuid: ``MIG-...``.
        gpu_instance: Number of its GPU instance; ``None`` if the driver does not say.
        is_alone: Whether its GPU instance holds no other.
    """

    uuid: str
    handle: int
    parent_handle: int
    mig_index: int
    gpu_instance: int | None
    compute_instance: int | None
    is_alone: bool


def places_in(library: NvmlLibrary, parent_handle: int) -> tuple[MigPlace, ...] | None:
    """The compute instances of a GPU that is cut, in the driver's order.

    Returns:
        ``None`` if the driver does not tell them all just now.
    """
    handles = library.mig_parts(parent_handle)
    if handles is None:
        return None
    found = []
    for mig_index, handle in handles:
        uuid = library.text("nvmlDeviceGetUUID", handle)
        if uuid is None:
            return None
        gpu_instance = library.number("nvmlDeviceGetGpuInstanceId", handle)
        compute_instance = library.number("nvmlDeviceGetComputeInstanceId", handle)
        found.append((uuid, handle, parent_handle, mig_index, gpu_instance, compute_instance))
    count_of = Counter(gpu_instance for *_, gpu_instance, _ in found)
    return tuple(MigPlace(*facts, is_alone=count_of[facts[4]] == 1) for facts in found)


class MigInstance:
    """What is known of one compute instance; in a round of NVML it stands beside the GPUs.

    Attributes:
        library: NVML as it was open when it was found.
        schedule: Its memory and its processes.
        refresh_at_ns: When the slow values are due again; 0 before the first.
        is_doubtful: Whether it ceased to answer: it may not be there any more.
    """

    def __init__(
        self,
        library: NvmlLibrary,
        place: MigPlace,
        parent: NvmlGpu,
        gpm: Gpm | None,
        around: Surroundings,
    ) -> None:
        self._around = around
        self._holds_ns = holds_for_ns(around.period_ns)
        self.library, self.place, self.parent = library, place, parent
        self._faults = FieldFaults()
        self.schedule = self._ask_anew()
        self.device = self._describe(library)
        self._gpm: GpmTrack | None = None
        if gpm is not None and place.is_alone and place.gpu_instance is not None:
            self._gpm = gpm.track(place.parent_handle, gpu_instance=place.gpu_instance)
        self._activity: ActivitySample | None = None
        self._utilization_ratio: float | None = None
        self._failed_at_ns = 0
        self.refresh_at_ns = 0
        self._answers = True
        self.is_doubtful = False

    def _ask_anew(self) -> FieldSchedule:
        """Its memory and its processes, as if for the first time."""
        library, wanted = self.library, self._around.options
        schedule = FieldSchedule(self._around)
        if "memory" in wanted:
            calls = FieldCalls(library)
            memory = field_called("memory")
            read = read_numbers(memory, calls, self.place.handle, self._around.refuse)
            schedule.add("memory", calls, read)
        if "processes" in wanted:
            calls = FieldCalls(library)
            read_one = _processes_of(library, self.place, self._around, calls)
            schedule.add("processes", calls, read_processes(read_one))
        return schedule

    def _describe(self, library: NvmlLibrary) -> Device:
        place, board = self.place, self.parent.device
        return Device(
            uuid=place.uuid,
            index=board.index,
            name=library.text("nvmlDeviceGetName", place.handle) or board.name,
            pci_bus_id=board.pci_bus_id,
            driver_version=board.driver_version,
            memory_capacity_bytes=capacity_bytes(
                library, place.handle, self._around.options, self._around.refuse
            ),
            parent_uuid=board.uuid,
            mig_index=place.mig_index,
            gpu_instance=place.gpu_instance,
            compute_instance=place.compute_instance,
        )

    @property
    def failure(self) -> int:
        """The code that made this tick's reading impossible: that of its GPU."""
        return self.parent.failure

    def release(self) -> None:
        """Free what it holds in the driver, and forget what it said, while it cannot be read."""
        if self._gpm is not None:
            self._gpm.close()
        self.schedule = self._ask_anew()

    def end(self) -> None:
        """It is there no more: whoever still reads it in this tick borrows nothing for it."""
        self.release()
        self._gpm = None

    # -- each tick -----------------------------------------------------------

    def busy(self, instant: DrainInstant, _entries: Sequence[Entry]) -> Sequence[BusySample]:
        """Its utilisation since the tick before, where GPM tells it."""
        gpm = self._gpm
        if gpm is None:
            return ()
        activity = gpm.read(max(instant.steady_since_ns, self._failed_at_ns))
        if gpm.code != SUCCESS:
            self._activity = self._utilization_ratio = None
            self.is_doubtful |= self._answers
            self._answers = False
            return ()
        self._answers = True
        if activity is None:
            return ()
        self._activity = activity
        ratio = self._utilization_ratio = activity.graphics_ratio
        return () if ratio is None else (BusySample(activity.start_ns, activity.end_ns, ratio),)

    def sample(
        self, busy: Sequence[BusySample], _milliwatts: float | None, now_ns: int
    ) -> GpuSample:
        """What it says in this tick."""
        activity = self._activity
        if activity is not None and now_ns - activity.end_ns >= self._holds_ns:
            activity = self._activity = self._utilization_ratio = None
        values = self.schedule.latest.at(now_ns)
        return GpuSample(
            device=self.device,
            busy=tuple(busy),
            utilization_ratio=self._utilization_ratio,
            memory_used_bytes=values.get("memory_used_bytes"),
            processes=values.get("processes"),
            activity=activity,
            faults=(*self._faults.failing, *self.schedule.faults.failing),
            processes_at_ns=values.get("processes_at_ns"),
        )

    def failed_sample(self, now_ns: int) -> GpuSample:
        """What is said of it in a tick in which its GPU could not be read."""
        self._failed_at_ns = now_ns
        self._activity = self._utilization_ratio = None
        return GpuSample(device=self.device, error=self.parent.failed_sample(now_ns).error)

    # -- now and then ----------------------------------------------------------

    def note_hanging(self, now_ns: int) -> None:
        """Tell of the field whose call has not come back for seconds, if there is one."""
        self._faults.hang(self.schedule.hanging(now_ns), now_ns)


def _processes_of(
    library: NvmlLibrary, place: MigPlace, around: Surroundings, calls: FieldCalls
) -> Callable[[int], tuple[ProcessSample, ...] | None]:
    """Who computes on an instance: as the driver lists them, else those of its GPU that are on it.

    Where its GPU instance holds others, the list of the GPU does not tell them apart.
    """
    number = place.gpu_instance
    options, refuse = around.options, around.refuse
    own = process_field(library, place.handle, options, calls=calls, refuse=refuse)
    of_gpu = process_field(
        library, place.parent_handle, options, calls=calls, gpu_instance=number, refuse=refuse
    )

    def read(now_ns: int) -> tuple[ProcessSample, ...] | None:
        found = own.read(now_ns)
        if found is None and own.code in PERMANENT and place.is_alone and number is not None:
            return of_gpu.read(now_ns)
        return found

    return read
