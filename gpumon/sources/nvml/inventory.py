"""Which GPUs and MIG instances there are, from look to look. Identity is the UUID."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from gpumon.core.sample import Device
from gpumon.errors import SourceUnavailableError
from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.codes import GPU_IS_LOST, NO_PERMISSION, gpu_trouble
from gpumon.sources.nvml.fields.calls import capacity_bytes
from gpumon.sources.nvml.fields.gpm import Gpm
from gpumon.sources.nvml.fields.reader import Surroundings
from gpumon.sources.nvml.gpu import NvmlGpu
from gpumon.sources.nvml.mig import MigInstance, MigPlace, places_in


class NvmlInventory:
    """The GPUs and their MIG instances.

    A GPU that is listed and cannot be read stays, and says why. One that is
    not listed any more, where all that is listed can be read, was taken out of
    the machine: it is not told of any more, and neither is an instance that
    was destroyed.

    Attributes:
        gpus: Whole GPUs, in index order.
        instances: The compute instances of those that are cut, in order.
    """

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self.gpus: list[NvmlGpu] = []
        self.instances: list[MigInstance] = []
        self._taken_out: dict[str, NvmlGpu] = {}
        self._count = 0
        self._unread: frozenset[int] = frozenset()
        self._failed: frozenset[str] = frozenset()

    @property
    def is_doubtful(self) -> bool:
        """Whether an instance has just ceased to answer: it may have been destroyed."""
        return bool(self.instances) and any(one.is_doubtful for one in self.instances)

    @property
    def devices(self) -> list[NvmlGpu | MigInstance]:
        """All of them, each GPU before its instances."""
        everything: list[NvmlGpu | MigInstance] = [*self.gpus, *self.instances]
        return sorted(everything, key=lambda one: one.device.place)

    def take(self, library: NvmlLibrary, gpm: Gpm | None) -> None:
        """Match what NVML lists with what is known; ``gpm`` is ``None`` where nobody wants it.

        Raises:
            SourceUnavailableError: NVML does not say how many there are.
        """
        known = {gpu.device.uuid: gpu for gpu in self.gpus}
        listed: list[NvmlGpu] = []
        unread: set[int] = set()
        self._count = library.device_count()
        for index in range(self._count):
            handle = library.handle_by_index(index)
            device = None if handle is None else _describe(library, handle, index, self._around)
            if handle is None or device is None:
                unread.add(index)  # lost: it may be one that is known, or come back
                continue
            gpu = known.pop(device.uuid, None) or self._taken_out.pop(device.uuid, None)
            if gpu is None:
                gpu = NvmlGpu(library, handle, device, self._around)
            elif gpu.gone or gpu.handle != handle or gpu.library is not library:
                gpu.attach(library, handle, device)
            if gpu.gpm is None and gpm is not None:
                gpu.use_gpm(gpm.track(handle))
            gpu.notice_parts()
            _rename(gpu, replace(device, mig_enabled=gpu.in_parts))
            listed.append(gpu)
        self._unread = frozenset(unread)
        kept = self._keep(list(known.values()), library, all_were_read=not unread)
        self.gpus = sorted([*listed, *kept], key=lambda gpu: gpu.device.place)
        self._failed = self._failed_now()
        self._take_instances(library, gpm)

    def _keep(
        self, unlisted: list[NvmlGpu], library: NvmlLibrary, *, all_were_read: bool
    ) -> list[NvmlGpu]:
        """Those of the unlisted that are still part of the machine."""
        kept = []
        for gpu in unlisted:
            if all_were_read:
                gpu.use_gpm(None)
                gpu.gone = GPU_IS_LOST  # until it has the handle that it is listed with again
                self._taken_out[gpu.device.uuid] = gpu
                continue
            if gpu.library is not library:  # its handle died with NVML as it was open before
                gpu.gone = library.refusals[0] if library.refusals else GPU_IS_LOST
            kept.append(gpu)
        return kept

    def _take_instances(self, library: NvmlLibrary, gpm: Gpm | None) -> None:
        known = {one.place: one for one in self.instances if one.library is library}
        instances = []
        for gpu in self.gpus:
            if gpu.gone or not gpu.in_parts:
                continue
            places = places_in(library, gpu.handle)
            for place in self._places(gpu) if places is None else places:
                one = known.pop(place, None) or MigInstance(library, place, gpu, gpm, self._around)
                one.is_doubtful = False
                _rename(one, replace(one.device, index=gpu.device.index))
                instances.append(one)
        for one in self.instances:
            if one not in instances:
                one.end()
        self.instances = instances

    def _places(self, gpu: NvmlGpu) -> tuple[MigPlace, ...]:
        return tuple(
            one.place for one in self.instances if one.parent is gpu and one.library is gpu.library
        )

    def troubles(self, library: NvmlLibrary) -> Iterator[str]:
        """What the user should know of GPUs that no sample tells of, a sentence each."""
        for gpu in self.gpus:
            if gpu.trouble is not None:
                yield f"GPU {gpu.device.index}: {gpu.trouble}"
        for index, code in library.refused.items():
            if code != NO_PERMISSION:  # which is how a container is kept from the GPUs of others
                yield f"GPU {index}: {gpu_trouble(code)}"

    def is_cut_otherwise(self, library: NvmlLibrary, gpu: NvmlGpu) -> bool:
        """Whether MIG was switched on that GPU, or its instances are not those that are known."""
        if gpu.notice_parts():
            return True
        if not gpu.in_parts:
            return False
        places = places_in(library, gpu.handle)
        return places is not None and places != self._places(gpu)

    def is_outdated(self, library: NvmlLibrary) -> bool:
        """Whether NVML counts or numbers the GPUs otherwise, or another one fails.

        What could not be read when they were taken is asked for by its index
        alone: a container may see the GPUs of others refused all its life.
        """
        if self._failed_now() != self._failed:
            return True
        well = [gpu for gpu in self.gpus if not gpu.failure]
        if any(gpu.current_index() != gpu.device.index for gpu in well):
            return True
        with suppress(SourceUnavailableError):  # then it is counted later
            return library.device_count() != self._count or self._is_somebody_new(library)
        return False

    def _failed_now(self) -> frozenset[str]:
        return frozenset(gpu.device.uuid for gpu in self.gpus if gpu.failure)

    def _is_somebody_new(self, library: NvmlLibrary) -> bool:
        """Whether a GPU is where none could be read, or where one is that fails."""
        expected: dict[int, str | None]
        expected = {gpu.device.index: gpu.device.uuid for gpu in self.gpus if gpu.failure}
        expected.update(dict.fromkeys(self._unread))
        found = {index: library.uuid_at(index) for index in expected}
        return any(uuid not in (None, expected[index]) for index, uuid in found.items())


def _rename(one: NvmlGpu | MigInstance, device: Device) -> None:
    """A device stays the same object until something about it changes."""
    if one.device != device:
        one.device = device


def _describe(library: NvmlLibrary, handle: int, index: int, around: Surroundings) -> Device | None:
    """Who that GPU is; ``None`` if it does not even say its UUID."""
    uuid = library.text("nvmlDeviceGetUUID", handle)
    if uuid is None:
        return None
    return Device(
        uuid=uuid,
        index=index,
        name=library.text("nvmlDeviceGetName", handle),
        pci_bus_id=library.pci_bus_id(handle),
        driver_version=library.driver_version,
        memory_capacity_bytes=capacity_bytes(library, handle, around.options, around.refuse),
    )
