"""The MIG instances of a GPU, each a device of its own.

A MIG-partitioned GPU has no utilisation, which is not idle; its power, temperature and energy are
those of the board. Its compute instances do the work. Each lies in a GPU instance, and GPM
measures GPU instances: for several compute instances in one, GPM has only their sum, an upper
bound for each. Their utilisation is unknown then, like that of an instance on a board without GPM
(before Hopper); it is known only for an instance that is alone in its GPU instance.

The driver reuses the number of a destroyed GPU instance. So an instance is identified by its UUID
alone, and a GPM window ends with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gpumon.core.sample import ActivitySample, BusySample, Device, GpuSample, ProcessSample
from gpumon.sources.nvml.binding import FieldCalls, NvmlLibrary
from gpumon.sources.nvml.busy import DrainInstant
from gpumon.sources.nvml.codes import PERMANENT, SUCCESS
from gpumon.sources.nvml.fields.calls import capacity_bytes
from gpumon.sources.nvml.fields.gpm import Gpm, GpmTrack
from gpumon.sources.nvml.fields.processes import process_field
from gpumon.sources.nvml.fields.reader import (
    PROCESSES,
    FieldFaults,
    FieldSchedule,
    SourceContext,
    read_numbers,
    read_processes,
    valid_for_ns,
)
from gpumon.sources.nvml.fields.table import field_called
from gpumon.sources.nvml.gpu import NvmlGpu
from gpumon.sources.nvml.stamp_clock import Entry


class ListedInstance(NamedTuple):
    """The position of one compute instance, as the driver lists it.

    Attributes:
        uuid: ``MIG-...``.
        gpu_instance: Number of its GPU instance; ``None``: no answer.
        is_alone: Whether its GPU instance holds no other.
    """

    uuid: str
    handle: int
    parent_handle: int
    mig_index: int
    gpu_instance: int | None
    compute_instance: int | None
    is_alone: bool


def listed_instances(library: NvmlLibrary, parent_handle: int) -> tuple[ListedInstance, ...] | None:
    """Return the compute instances of a GPU, in the driver's order; ``None``: not all answered."""
    handles = library.mig_instances(parent_handle)
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
    return tuple(ListedInstance(*facts, is_alone=count_of[facts[4]] == 1) for facts in found)


class MigInstance:
    """One compute instance, with the methods of ``NvmlGpu`` that a tick calls.

    Attributes:
        library: NVML as it was open when the instance was found.
        schedule: Its memory and its processes.
        refresh_at_ns: When the slow values are due again; 0 before the first.
        is_uncertain: Whether it ceased to answer: it may not be there any more.
    """

    def __init__(
        self,
        library: NvmlLibrary,
        listing: ListedInstance,
        parent: NvmlGpu,
        gpm: Gpm | None,
        context: SourceContext,
    ) -> None:
        self._context = context
        self._valid_ns = valid_for_ns(context.period_ns)
        self.library, self.listing, self.parent = library, listing, parent
        self._faults = FieldFaults()
        self.schedule = self._new_schedule()
        self.device = self._describe(library)
        self._gpm: GpmTrack | None = None
        if gpm is not None and listing.is_alone and listing.gpu_instance is not None:
            self._gpm = gpm.track(listing.parent_handle, gpu_instance=listing.gpu_instance)
        self._activity: ActivitySample | None = None
        self._utilization_ratio: float | None = None
        self._failed_at_ns = 0
        self.refresh_at_ns = 0
        self._answers = True
        self.is_uncertain = False

    def _new_schedule(self) -> FieldSchedule:
        library, wanted = self.library, self._context.options
        schedule = FieldSchedule(self._context)
        if "memory" in wanted:
            calls = FieldCalls(library)
            memory = field_called("memory")
            read = read_numbers(memory, calls, self.listing.handle, self._context.refuse)
            schedule.add("memory", calls, read)
        if "processes" in wanted:
            calls = FieldCalls(library)
            read_one = _processes_of(library, self.listing, self._context, calls)
            schedule.add(PROCESSES, calls, read_processes(read_one))
        return schedule

    def _describe(self, library: NvmlLibrary) -> Device:
        listing, board = self.listing, self.parent.device
        return Device(
            uuid=listing.uuid,
            index=board.index,
            name=library.text("nvmlDeviceGetName", listing.handle) or board.name,
            pci_bus_id=board.pci_bus_id,
            driver_version=board.driver_version,
            memory_capacity_bytes=capacity_bytes(
                library, listing.handle, self._context.options, self._context.refuse
            ),
            parent_uuid=board.uuid,
            mig_index=listing.mig_index,
            gpu_instance=listing.gpu_instance,
            compute_instance=listing.compute_instance,
        )

    @property
    def failure(self) -> int:
        """The code of its GPU that made this tick's reading impossible."""
        return self.parent.failure

    def release(self) -> None:
        """Free its resources in the driver and drop its values while it cannot be read."""
        if self._gpm is not None:
            self._gpm.close()
        self.schedule = self._new_schedule()

    def end(self) -> None:
        self.release()
        self._gpm = None

    # -- each tick -----------------------------------------------------------

    def busy(self, instant: DrainInstant, _entries: Sequence[Entry]) -> Sequence[BusySample]:
        """Return its utilisation since the tick before, where GPM measures it."""
        gpm = self._gpm
        if gpm is None:
            return ()
        activity = gpm.read(max(instant.steady_since_ns, self._failed_at_ns))
        if gpm.code != SUCCESS:
            self._activity = self._utilization_ratio = None
            self.is_uncertain |= self._answers
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
        activity = self._activity
        if activity is not None and now_ns - activity.end_ns >= self._valid_ns:
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
        self._failed_at_ns = now_ns
        self._activity = self._utilization_ratio = None
        return GpuSample(device=self.device, error=self.parent.failed_sample(now_ns).error)

    # -- now and then ----------------------------------------------------------

    def note_hanging(self, now_ns: int) -> None:
        """Record the field whose call has not returned for seconds, if there is one."""
        self._faults.hang(self.schedule.hanging(now_ns), now_ns)


def _processes_of(
    library: NvmlLibrary, listing: ListedInstance, context: SourceContext, calls: FieldCalls
) -> Callable[[int], tuple[ProcessSample, ...] | None]:
    """Reads an instance's processes: its own list, else those of its GPU's list that are on it.

    The list of the GPU does not distinguish instances within one GPU instance.
    """
    number = listing.gpu_instance
    options, refuse = context.options, context.refuse
    own = process_field(library, listing.handle, options, calls=calls, refuse=refuse)
    of_gpu = process_field(
        library, listing.parent_handle, options, calls=calls, gpu_instance=number, refuse=refuse
    )

    def read(now_ns: int) -> tuple[ProcessSample, ...] | None:
        found = own.read(now_ns)
        if found is None and own.code in PERMANENT and listing.is_alone and number is not None:
            return of_gpu.read(now_ns)
        return found

    return read
