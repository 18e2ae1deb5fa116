"""Which GPUs and MIG instances there are. Identity is the UUID."""

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
from gpumon.sources.nvml.fields.reader import SourceContext
from gpumon.sources.nvml.gpu import NvmlGpu
from gpumon.sources.nvml.mig import ListedInstance, MigInstance, listed_instances


class NvmlInventory:
    """The GPUs and their MIG instances.

    A GPU is *lost* if it belongs to the machine and no call can be made for it: it stays, with the
    reason. It is *removed* if NVML no longer lists it while all listed GPUs can be read: it is
    dropped, as is a destroyed instance, and then *unlisted* for the pipeline.

    Attributes:
        gpus: The GPUs, in index order.
        instances: The compute instances of MIG-partitioned GPUs, in order.
    """

    def __init__(self, context: SourceContext) -> None:
        self._context = context
        self.gpus: list[NvmlGpu] = []
        self.instances: list[MigInstance] = []
        self._removed: dict[str, NvmlGpu] = {}
        self._count = 0
        self._unread: frozenset[int] = frozenset()
        self._failed: frozenset[str] = frozenset()

    @property
    def is_uncertain(self) -> bool:
        """Whether an instance has just stopped answering: it may have been destroyed."""
        return bool(self.instances) and any(instance.is_uncertain for instance in self.instances)

    @property
    def devices(self) -> list[NvmlGpu | MigInstance]:
        """All of them, each GPU before its instances."""
        everything: list[NvmlGpu | MigInstance] = [*self.gpus, *self.instances]
        return sorted(everything, key=lambda device: device.device.sort_key)

    def update(self, library: NvmlLibrary, gpm: Gpm | None) -> None:
        """Match the GPUs that NVML lists with the known ones.

        Raises:
            SourceUnavailableError: NVML does not count them.
        """
        known = {gpu.device.uuid: gpu for gpu in self.gpus}
        listed: list[NvmlGpu] = []
        unread: set[int] = set()
        self._count = library.device_count()
        for index in range(self._count):
            handle = library.handle_by_index(index)
            device = None if handle is None else _describe(library, handle, index, self._context)
            if handle is None or device is None:
                unread.add(index)  # lost: it may be one that is known, or come back
                continue
            gpu = known.pop(device.uuid, None) or self._removed.pop(device.uuid, None)
            if gpu is None:
                gpu = NvmlGpu(library, handle, device, self._context)
            elif gpu.lost_code or gpu.handle != handle or gpu.library is not library:
                gpu.attach(library, handle, device)
            if gpu.gpm is None and gpm is not None:
                gpu.use_gpm(gpm.track(handle))
            gpu.update_mig_mode()
            _rename(gpu, replace(device, mig_enabled=gpu.is_partitioned))
            listed.append(gpu)
        self._unread = frozenset(unread)
        kept = self._keep(list(known.values()), library, all_were_read=not unread)
        self.gpus = sorted([*listed, *kept], key=lambda gpu: gpu.device.sort_key)
        self._failed = self._failed_now()
        self._update_instances(library, gpm)

    def _keep(
        self, unlisted: list[NvmlGpu], library: NvmlLibrary, *, all_were_read: bool
    ) -> list[NvmlGpu]:
        """Return the unlisted GPUs that are lost, and not removed."""
        kept = []
        for gpu in unlisted:
            if all_were_read:
                gpu.use_gpm(None)
                gpu.lost_code = GPU_IS_LOST  # until it is listed again, with a new handle
                self._removed[gpu.device.uuid] = gpu
                continue
            if gpu.library is not library:  # its handle died when NVML was closed
                gpu.lost_code = library.refusals[0] if library.refusals else GPU_IS_LOST
            kept.append(gpu)
        return kept

    def _update_instances(self, library: NvmlLibrary, gpm: Gpm | None) -> None:
        known = {kept.listing: kept for kept in self.instances if kept.library is library}
        instances = []
        for gpu in self.gpus:
            if gpu.lost_code or not gpu.is_partitioned:
                continue
            listed = listed_instances(library, gpu.handle)
            for listing in self._instances_listed_before(gpu) if listed is None else listed:
                instance = known.pop(listing, None) or MigInstance(
                    library, listing, gpu, gpm, self._context
                )
                instance.is_uncertain = False
                _rename(instance, replace(instance.device, index=gpu.device.index))
                instances.append(instance)
        for instance in self.instances:
            if instance not in instances:
                instance.end()
        self.instances = instances

    def _instances_listed_before(self, gpu: NvmlGpu) -> tuple[ListedInstance, ...]:
        return tuple(
            instance.listing
            for instance in self.instances
            if instance.parent is gpu and instance.library is gpu.library
        )

    def troubles(self, library: NvmlLibrary) -> Iterator[str]:
        """Yield a sentence on each GPU without samples that the user should know about."""
        for gpu in self.gpus:
            if gpu.trouble is not None:
                yield f"GPU {gpu.device.index}: {gpu.trouble}"
        for index, code in library.refused.items():
            if code != NO_PERMISSION:  # which is how a container is kept from the GPUs of others
                yield f"GPU {index}: {gpu_trouble(code)}"

    def has_other_instances(self, library: NvmlLibrary, gpu: NvmlGpu) -> bool:
        if gpu.update_mig_mode():
            return True
        if not gpu.is_partitioned:
            return False
        listed = listed_instances(library, gpu.handle)
        return listed is not None and listed != self._instances_listed_before(gpu)

    def is_outdated(self, library: NvmlLibrary) -> bool:
        """Whether NVML's count or numbers of GPUs have changed, or another GPU fails.

        GPUs that could not be read are checked by their index alone: a container may be refused
        the GPUs of others all its life.
        """
        if self._failed_now() != self._failed:
            return True
        well = [gpu for gpu in self.gpus if not gpu.failure]
        if any(gpu.current_index() != gpu.device.index for gpu in well):
            return True
        with suppress(SourceUnavailableError):  # then it is counted later
            return library.device_count() != self._count or self._has_new_gpu(library)
        return False

    def _failed_now(self) -> frozenset[str]:
        return frozenset(gpu.device.uuid for gpu in self.gpus if gpu.failure)

    def _has_new_gpu(self, library: NvmlLibrary) -> bool:
        """Whether another GPU is at an index where none could be read, or one fails."""
        expected: dict[int, str | None]
        expected = {gpu.device.index: gpu.device.uuid for gpu in self.gpus if gpu.failure}
        expected.update(dict.fromkeys(self._unread))
        found = {index: library.uuid_at(index) for index in expected}
        return any(uuid not in (None, expected[index]) for index, uuid in found.items())


def _rename(gpu: NvmlGpu | MigInstance, device: Device) -> None:
    """Replace the device only if it changed."""
    if gpu.device != device:
        gpu.device = device


def _describe(
    library: NvmlLibrary, handle: int, index: int, context: SourceContext
) -> Device | None:
    uuid = library.text("nvmlDeviceGetUUID", handle)
    if uuid is None:
        return None
    return Device(
        uuid=uuid,
        index=index,
        name=library.text("nvmlDeviceGetName", handle),
        pci_bus_id=library.pci_bus_id(handle),
        driver_version=library.driver_version,
        memory_capacity_bytes=capacity_bytes(library, handle, context.options, context.refuse),
    )
