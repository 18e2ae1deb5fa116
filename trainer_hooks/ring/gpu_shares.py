"""Tells gpumon which part of each batch each GPU is given, where this training tags its phases."""

from __future__ import annotations

from collections.abc import Sequence

from trainer_hooks import devices as gpu_list
from trainer_hooks.ring.process_ring import ring_so_far


def tell_shares_of(devices: Sequence[str], shares: Sequence[float]) -> None:
    """Write the shares to this process' ring; nothing happens where it has none. Never raises.

    Args:
        devices: TensorFlow's names, such as ``"GPU:0"``.
        shares: The part of every batch that each is given, 0 to 1.
    """
    ring = ring_so_far()
    if ring is None or ring.writer is None:
        return
    names = gpu_names(devices, ring.writer.facts.gpus)
    if names is not None:
        ring.tell_shares(dict(zip(names, shares, strict=True)))


def gpu_names(devices: Sequence[str], told: Sequence[str] | None) -> tuple[str, ...] | None:
    """What gpumon calls these devices.

    Args:
        devices: TensorFlow's names.
        told: The GPUs that the user said the run trains on, if any: they are in the order of the
            devices, and the only way to name those of logical devices.

    Returns:
        UUIDs, or indices as text; ``None`` where nobody knows.

    >>> gpu_names(["CPU:1", "CPU:2"], ["0", "1"]), gpu_names(["CPU:1"], None)
    (('0', '1'), None)
    """
    if told is not None and len(told) == len(devices):
        return tuple(told)
    visible = {f"GPU:{gpu.number}": gpu for gpu in gpu_list.visible_gpus()}
    if any(device not in visible for device in devices):
        return None
    return tuple(visible[device].uuid or str(visible[device].index) for device in devices)
