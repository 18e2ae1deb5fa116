"""The GPUs this process may use, without any framework.

>>> from trainer_hooks import devices
>>> gpus = devices.gpu_count()
>>> names = [gpu.name for gpu in devices.visible_gpus()]

No framework is imported, no session and no CUDA context created: the driver is asked through NVML,
once a process, and ``$CUDA_VISIBLE_DEVICES`` is applied as CUDA would. So a script can choose its
batch size, or how many processes to start, before anything holds memory on a GPU.

Limits:

* Unless ``CUDA_DEVICE_ORDER=PCI_BUS_ID`` is set, CUDA numbers GPUs of different
  models by a rule of its own ("fastest first"), so a *number* may mean another
  GPU than here; ``Gpu.is_certain`` says so. The count does not depend on it.
  GPUs of one model are assumed to be in bus order, as everywhere seen.
* CUDA reads its variables when it is first used; a later change counts here only.
* A list that mixes numbers, UUIDs and MIG names is read up to its first change;
  CUDA does not document its behaviour.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpumon.core.attribution.visible_devices import cuda_devices
from gpumon.core.sample import Device

if TYPE_CHECKING:
    from gpumon.sources.nvml.binding import NvmlLibrary

__all__ = ["Gpu", "gpu_count", "refresh", "visible_gpus"]

PROC_GPUS: Final = Path("/proc/driver/nvidia/gpus")
"""Where the kernel module lists its GPUs, for machines without NVML."""

_MOST_GPUS: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU, or one MIG instance, that this process may use.

    Attributes:
        number: CUDA's number for it in this process: 0 is ``GPU:0``, ``cuda:0``.
        index: Its number on the machine, as ``nvidia-smi`` and gpumon show it; for a MIG
            instance that of the GPU.
        uuid: ``GPU-...`` or ``MIG-...``; ``None`` if the driver does not report it.
        name: Such as ``"NVIDIA H100 80GB HBM3"``; ``None`` if not reported.
        memory_bytes: All its memory, used or not, in bytes; ``None`` if not reported.
        parent_uuid: Of the GPU of a MIG instance; ``None`` for a GPU.
        is_certain: Whether CUDA means this GPU by ``number``.
    """

    number: int
    index: int
    uuid: str | None
    name: str | None = None
    memory_bytes: int | None = None
    parent_uuid: str | None = None
    is_certain: bool = True


def visible_gpus() -> tuple[Gpu, ...]:
    """Return the GPUs this process may use, in CUDA's numbering.

    The first call asks the driver; each call reads ``$CUDA_VISIBLE_DEVICES``.

    Returns:
        One entry each; empty without a driver or GPU, or where the variable hides them all.
        Never raises.
    """
    known = _known_devices()
    certain = _numbers_are_certain(known, os.environ)
    return tuple(
        Gpu(
            number=number,
            index=device.index,
            uuid=device.uuid or None,
            name=device.name,
            memory_bytes=device.memory_capacity_bytes,
            parent_uuid=device.parent_uuid or None,
            is_certain=certain,
        )
        for number, device in enumerate(cuda_devices(os.environ.get("CUDA_VISIBLE_DEVICES"), known))
    )


def gpu_count() -> int:
    """Return how many GPUs this process may use: 0 without a driver. Never raises."""
    return len(visible_gpus())


def refresh() -> None:
    """Ask the driver again at the next call: a GPU was added, lost, or repartitioned by MIG."""
    with _Cache.lock:
        _Cache.known = None


class _Cache:
    """The module's state: the machine's GPUs and MIG instances, asked for once."""

    known: tuple[Device, ...] | None = None
    lock = threading.Lock()


def _known_devices() -> tuple[Device, ...]:
    with _Cache.lock:
        if _Cache.known is None:
            _Cache.known = _ask()
        return _Cache.known


def _ask() -> tuple[Device, ...]:
    """Return NVML's answer; else the kernel module's; else none."""
    with contextlib.suppress(Exception):  # no library, no driver, no permission: then no GPU
        from gpumon.sources.nvml.binding import NvmlLibrary

        library = NvmlLibrary()
        try:
            return tuple(_devices(library))
        finally:
            library.close()
    with contextlib.suppress(Exception):
        return tuple(_devices_in_proc(PROC_GPUS))
    return ()


def _devices(library: NvmlLibrary) -> Iterator[Device]:
    """Yield the GPUs that NVML lets this process open, which CUDA numbers, and their instances."""
    for index in range(min(library.device_count(), _MOST_GPUS)):
        handle = library.handle_by_index(index)
        if handle is None:
            continue
        gpu = replace(_device(library, handle, index), mig_enabled=library.is_mig_enabled(handle))
        listed = library.mig_instances(handle) if gpu.mig_enabled else ()
        yield gpu
        for mig_index, part in listed or ():
            yield replace(
                _device(library, part, index),
                parent_uuid=gpu.uuid,
                mig_index=mig_index,
                gpu_instance=library.number("nvmlDeviceGetGpuInstanceId", part),
                compute_instance=library.number("nvmlDeviceGetComputeInstanceId", part),
            )


def _device(library: NvmlLibrary, handle: int, index: int) -> Device:
    return Device(
        uuid=library.text("nvmlDeviceGetUUID", handle) or "",
        index=index,
        name=library.text("nvmlDeviceGetName", handle),
        memory_capacity_bytes=library.memory_capacity_bytes(handle),
    )


def _devices_in_proc(folder: Path) -> Iterator[Device]:
    """Yield what the kernel module knows: no memory, no MIG, no UUID of a GPU never opened."""
    for index, path in enumerate(sorted(folder.glob("*/information"))[:_MOST_GPUS]):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        fields = {key.strip(): value.strip() for key, _, value in (s.partition(":") for s in lines)}
        uuid = fields.get("GPU UUID", "")
        if "?" in uuid:  # a GPU that was never opened
            uuid = ""
        yield Device(uuid=uuid, index=index, name=fields.get("Model"))


def _numbers_are_certain(known: Sequence[Device], environ: Mapping[str, str]) -> bool:
    """Whether CUDA numbers GPUs by bus, or names are used instead."""
    if environ.get("CUDA_VISIBLE_DEVICES", "").strip().startswith(("GPU-", "MIG-")):
        return True
    in_order = environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    return in_order or len({gpu.name for gpu in known if gpu.mig_index is None}) <= 1


def _new_lock_in_child() -> None:
    """A forked child must not wait for a lock that a thread of its parent held."""
    _Cache.lock = threading.Lock()


os.register_at_fork(after_in_child=_new_lock_in_child)
