"""Which GPUs this process may use, and how many, without any framework.

>>> from trainer_hooks import devices
>>> gpus = devices.gpu_count()
>>> names = [gpu.name for gpu in devices.visible_gpus()]

No framework is imported, no session made, no CUDA context created: the driver
is asked through NVML, once a process, and ``$CUDA_VISIBLE_DEVICES`` is applied
to its answer as CUDA would. So a script can choose its batch size, or how many
processes to start, before anything holds memory on a GPU.

What cannot be known this way:

* Unless ``CUDA_DEVICE_ORDER=PCI_BUS_ID`` is set, CUDA numbers GPUs of different
  models by a rule of its own ("fastest first"), so a *number* may mean another
  board than here; ``Gpu.is_certain`` says so. How many there are does not depend on
  it. Boards of one model are taken to be in the order of their bus, as everywhere seen.
* CUDA reads its variables when it is first used; what is changed later counts
  here, and not there.
* A list that mixes numbers, UUIDs and MIG names is read up to its first change;
  CUDA does not document what it does.
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
"""Where the kernel module lists its GPUs, for when NVML is not installed."""

_MOST_GPUS: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU, or one MIG part of a GPU, that this process may use.

    Attributes:
        number: CUDA's number for it in this process: 0 is ``GPU:0``, ``cuda:0``.
        index: Its number on the machine, as ``nvidia-smi`` and gpumon show it;
            of the whole GPU where this is a part.
        uuid: ``GPU-...`` or ``MIG-...``; ``None`` if the driver does not say.
        name: Such as ``"NVIDIA H100 80GB HBM3"``; ``None`` if it does not say.
        memory_bytes: All its memory, used or not, in bytes; ``None`` if it does not say.
        parent_uuid: Of the GPU that this is a part of; ``None`` for a whole GPU.
        is_certain: Whether CUDA means this very board by ``number``.
    """

    number: int
    index: int
    uuid: str | None
    name: str | None = None
    memory_bytes: int | None = None
    parent_uuid: str | None = None
    is_certain: bool = True


def visible_gpus() -> tuple[Gpu, ...]:
    """The GPUs this process may use, in CUDA's numbering.

    The driver is asked by the first call; ``$CUDA_VISIBLE_DEVICES`` is read by each.

    Returns:
        One entry for each; empty without a driver or GPU, or where the
        variable hides them all. Never raises.
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
    """How many GPUs this process may use: 0 without a driver. Never raises."""
    return len(visible_gpus())


def refresh() -> None:
    """Ask the driver anew at the next call: a GPU was added, lost, or cut by MIG."""
    with _Cache.lock:
        _Cache.known = None


class _Cache:
    """What module-level state there is: the machine's GPUs and MIG instances, asked for once."""

    known: tuple[Device, ...] | None = None
    lock = threading.Lock()


def _known_devices() -> tuple[Device, ...]:
    with _Cache.lock:
        if _Cache.known is None:
            _Cache.known = _ask()
        return _Cache.known


def _ask() -> tuple[Device, ...]:
    """NVML's answer; else the kernel module's; else none."""
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
    """Every GPU that NVML lets this process open, for CUDA numbers no other, and its instances."""
    for index in range(min(library.device_count(), _MOST_GPUS)):
        handle = library.handle_by_index(index)
        if handle is None:
            continue
        gpu = replace(_device(library, handle, index), mig_enabled=library.is_cut(handle))
        listed = library.mig_parts(handle) if gpu.mig_enabled else ()
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
    """What the kernel module tells: no memory, no MIG, and a UUID only of a GPU in use before."""
    for index, path in enumerate(sorted(folder.glob("*/information"))[:_MOST_GPUS]):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        said = {key.strip(): value.strip() for key, _, value in (s.partition(":") for s in lines)}
        uuid = said.get("GPU UUID", "")
        if "?" in uuid:  # what it says of a GPU that nobody has opened yet
            uuid = ""
        yield Device(uuid=uuid, index=index, name=said.get("Model"))


def _numbers_are_certain(known: Sequence[Device], environ: Mapping[str, str]) -> bool:
    """Whether CUDA's numbers are those of the bus, or names are used instead."""
    if environ.get("CUDA_VISIBLE_DEVICES", "").strip().startswith(("GPU-", "MIG-")):
        return True
    in_order = environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    return in_order or len({one.name for one in known if one.mig_index is None}) <= 1


def _new_lock_in_child() -> None:
    """A forked child must not wait for a lock that a thread of its parent held."""
    _Cache.lock = threading.Lock()


os.register_at_fork(after_in_child=_new_lock_in_child)
