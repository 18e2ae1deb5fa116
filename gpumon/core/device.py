"""A GPU as an identity: what stays the same while it is measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One GPU, or one MIG instance of a GPU, known by its UUID.

    Attributes:
        uuid: NVML UUID such as ``"GPU-8f1c2a"``. Survives a reboot and a
            change of order; the index does not.
        index: NVML index at the time of the inventory; of a MIG instance, its parent's.
        name: Product name such as ``"NVIDIA H200"``.
        pci_bus_id: Such as ``"00000000:3B:00.0"``.
        driver_version: Such as ``"580.95.05"``.
        memory_capacity_bytes: Device memory, in bytes.
        mig_enabled: Whether the GPU is cut into MIG instances: then it is they
            that work, and the GPU itself has no utilisation.
        parent_uuid: UUID of the GPU that this MIG instance is a part of;
            ``None`` for a GPU.
        mig_index: Which of its parent's instances, counted from 0; ``None``
            for a GPU.
        gpu_instance: Number of the GPU instance that a MIG instance lies in.
        compute_instance: Its number in that: ``MIG-<uuid of the GPU>/<gpu
            instance>/<compute instance>`` is how older drivers call it.
    """

    uuid: str
    index: int
    name: str | None = None
    pci_bus_id: str | None = None
    driver_version: str | None = None
    memory_capacity_bytes: int | None = None
    mig_enabled: bool = False
    parent_uuid: str | None = None
    mig_index: int | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None

    @property
    def label(self) -> str:
        """How people and tools number it: ``"0"``, and ``"0:1"`` for a MIG instance."""
        return str(self.index) if self.mig_index is None else f"{self.index}:{self.mig_index}"

    @property
    def place(self) -> tuple[int, int]:
        """Sorts GPUs by index, each before its MIG instances."""
        return self.index, -1 if self.mig_index is None else self.mig_index
