"""A GPU as an identity: what stays the same while it is measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One physical GPU, known by its UUID.

    Attributes:
        uuid: NVML UUID such as ``"GPU-8f1c2a"``. Survives a reboot and a
            change of order; the index does not.
        index: NVML index at the time of the inventory.
        name: Product name such as ``"NVIDIA H200"``.
        pci_bus_id: Such as ``"00000000:3B:00.0"``.
        driver_version: Such as ``"580.95.05"``.
        memory_capacity_bytes: Device memory, in bytes.
    """

    uuid: str
    index: int
    name: str | None = None
    pci_bus_id: str | None = None
    driver_version: str | None = None
    memory_capacity_bytes: int | None = None
