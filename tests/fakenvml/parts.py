"""The MIG instances of the fake's GPUs, made and destroyed while it runs."""

from __future__ import annotations

from typing import Any

from tests.fakenvml.layout import MAX_PARTS, ControlAccess

SLICES = 7
"""How many slices of compute a GPU has."""


class Parts(ControlAccess):
    """MIG switched on and off, instances made and destroyed."""

    def cut(self, slot: int, parts: int) -> tuple[str, ...]:
        """Turn MIG on, with that many instances of one slice each; gives their UUIDs.

        All older handles of the GPU are void.
        """
        self.uncut(slot)
        gpu = self.gpu(slot)
        gpu.mig_enabled = gpu.mig_pending = 1
        return tuple(self.create_part(slot) for _ in range(parts))

    def uncut(self, slot: int) -> None:
        """Turn MIG off: the instances are gone, and all older handles are void."""
        gpu = self.gpu(slot)
        for part in gpu.parts:
            part.exists = 0
        gpu.mig_enabled = gpu.mig_pending = 0
        gpu.handle_epoch += 1

    def create_part(self, slot: int, *, slices: int = 1) -> str:
        """Make an instance at the first free index, busy as ``part_wave`` says; gives its UUID."""
        gpu = self.gpu(slot)
        at = next(at for at in range(MAX_PARTS) if not gpu.parts[at].exists)
        part = gpu.parts[at]
        part.serial += 1
        # Another instance at the same place is another device.
        uuid = f"MIG-c1{slot:02d}{at:02d}{part.serial - 1:02d}-0000-0000-0000-{at:012d}"
        part.uuid = uuid.encode()
        part.name = gpu.name + f" MIG {slices}g.{slices * 10}gb".encode()
        part.memory_total, part.memory_used = gpu.memory_total * slices // 8, 0
        part.gpu_instance, part.compute_instance = at + SLICES, 0
        part.gpu_slices = part.compute_slices = slices
        part.multiprocessors = 16 * slices
        for ratio, _ in part.activity._fields_:  # the record itself would keep the file open
            setattr(part.activity, ratio, getattr(gpu.activity, ratio))
        part.exists = 1
        self.part_wave(slot, at, period_s=1.0, busy_ratio=0.0)
        return uuid

    def destroy_part(self, slot: int, part: int) -> None:
        """The instance at this index is gone, and its handle void; the others keep theirs."""
        self.gpu(slot).parts[part].exists = 0

    def part(self, slot: int, part: int) -> Any:
        """The record of an instance (see ``fake.h``)."""
        return self.gpu(slot).parts[part]

    def part_wave(
        self, slot: int, part: int, *, period_s: float, busy_ratio: float, phase_s: float = 0.0
    ) -> None:
        """What an instance does: seen by GPM, and by nothing else."""
        wave = self.gpu(slot).parts[part].wave
        wave.period_ns = round(period_s * 1e9)
        wave.busy_ns = round(period_s * 1e9 * busy_ratio)
        wave.phase_ns = round(phase_s * 1e9)
