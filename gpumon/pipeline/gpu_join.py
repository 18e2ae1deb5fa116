"""Which GPUs a training run may count for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

from gpumon.core.join.visible_devices import Board, GpuName, MigPart, visible_choices
from gpumon.core.ring.events import RingReading
from gpumon.core.sample import Device, GpuSample, ProcessSample
from gpumon.pipeline.gpu_claims import ProcessList, is_process_of

_SEVERAL_RUNS = 1_024


class _Gpu(NamedTuple):
    """What is asked of a device here."""

    place: tuple[int, int]
    label: str
    uuid: str
    mig_enabled: bool
    parent_uuid: str | None
    numbers: tuple[int | None, int | None]  # of its GPU instance, and its own in that


_Gpus = tuple[_Gpu, ...]


class GpuJoin:
    """The GPUs of one tick, ready to be looked up for many runs.

    A GPU that MIG has cut counts for nobody: it is its instances that work.
    """

    def __init__(self, gpus: Sequence[GpuSample], *, simulated: bool) -> None:
        """Prepare the look-up.

        Args:
            gpus: The GPUs of the newest frame.
            simulated: Made-up GPUs are joined by name only: no process runs on them.
        """
        self._simulated = simulated
        self._samples = gpus
        working = [gpu for gpu in gpus if not gpu.device.mig_enabled]
        self._all = frozenset([gpu.device.uuid for gpu in working])
        self._has_processes = any(gpu.processes is not None for gpu in working)
        self._processes_of_pid: dict[int, list[tuple[str, ProcessSample]]] = {}
        for gpu in working:
            for process in gpu.processes or ():
                found = self._processes_of_pid.setdefault(process.pid, [])
                found.append((gpu.device.uuid, process))
        self._is_cut = len(working) < len(gpus)
        self._without_processes = frozenset(
            [
                gpu.device.uuid
                for gpu in (working if self._is_cut else ())
                if gpu.processes is None and gpu.device.parent_uuid is not None
            ]
        )

    @cached_property
    def _gpus(self) -> _Gpus:
        return tuple([_known(gpu.device) for gpu in self._samples])

    def gpus_of(self, reading: RingReading) -> frozenset[str]:
        """What the run says, else where NVML sees it, else what it may see.

        Args:
            reading: The run's ring.

        Returns:
            UUIDs. Empty where nothing points to a GPU.
        """
        facts = reading.facts
        if facts.gpus is not None:
            return self._at_work(_named(facts.gpus, self._gpus), reading)
        if self._simulated:
            return frozenset()
        if self._has_processes:
            seen = self.seen_on(reading)
            if seen or not self._without_processes:
                return seen
        allowed = self._allowed(facts.visible_devices)
        return allowed & self._without_processes if self._has_processes else allowed

    def seen_on(self, reading: RingReading) -> frozenset[str]:
        """UUIDs of the GPUs on which the driver lists the run's own process."""
        found = self._processes_of_pid.get(reading.host_pid, ())
        return frozenset([uuid for uuid, process in found if is_process_of(reading, process)])

    def names(self, uuid: str, reading: RingReading) -> bool:
        """Whether the driver lists the run's process there, or one of the same user."""
        listed = next((gpu.processes for gpu in self._samples if gpu.device.uuid == uuid), None)
        return ProcessList(listed, 0).names(reading)

    def _allowed(self, visible_devices: str | None) -> frozenset[str]:
        if visible_devices is None and not self._is_cut:
            return self._all
        return _visible(visible_devices, self._gpus)

    def _at_work(self, named: frozenset[str], reading: RingReading) -> frozenset[str]:
        """Those GPUs; for one that is cut, its instance on which the process is, else its first.

        CUDA, too, takes the first instance for the GPU.
        """
        if not self._is_cut or named <= self._all:
            return named
        uuids = set(named & self._all)
        for gpu in self._gpus:
            if gpu.uuid in named and gpu.mig_enabled:
                parts = _parts_of(gpu.uuid, self._gpus)
                here = self.seen_on(reading).intersection(part.uuid for part in parts)
                uuids |= here or {part.uuid for part in parts[:1]}
        return frozenset(uuids)

    def shares_of(self, reading: RingReading) -> dict[str, float]:
        """The part of each batch that each watched GPU is given, by UUID; empty: not told.

        A name of no GPU here, or of several, is left out.
        """
        shares: dict[str, float] = {}
        for name, share in reading.facts.shares.items():
            named = self._at_work(_named((name,), self._gpus), reading)
            if len(named) == 1:
                (uuid,) = named
                shares[uuid] = shares.get(uuid, 0.0) + share
        return shares


def _known(device: Device) -> _Gpu:
    numbers = device.gpu_instance, device.compute_instance
    return _Gpu(
        device.place, device.label, device.uuid, device.mig_enabled, device.parent_uuid, numbers
    )


@lru_cache(maxsize=_SEVERAL_RUNS)
def _named(names: tuple[str, ...], gpus: _Gpus) -> frozenset[str]:
    """GPUs that the user named, by index or by the beginning of a UUID."""
    wanted = [name.strip() for name in names if name.strip()]
    return frozenset(
        gpu.uuid
        for gpu in gpus
        if any(GpuName(gpu.label, gpu.uuid).is_meant_by(name) for name in wanted)
    )


@lru_cache(maxsize=_SEVERAL_RUNS)
def _visible(visible_devices: str | None, gpus: _Gpus) -> frozenset[str]:
    """GPUs that CUDA shows a process with this ``$CUDA_VISIBLE_DEVICES``."""
    in_order = sorted(gpu for gpu in gpus if gpu.parent_uuid is None)
    parts = [_parts_of(gpu.uuid, gpus) for gpu in in_order]
    boards = [
        Board(gpu.uuid, gpu.mig_enabled, tuple(MigPart(part.uuid, *part.numbers) for part in own))
        for gpu, own in zip(in_order, parts, strict=True)
    ]
    return frozenset(
        in_order[choice.board].uuid
        if choice.part is None
        else parts[choice.board][choice.part].uuid
        for choice in visible_choices(visible_devices, boards)
    )


def _parts_of(uuid: str, gpus: Iterable[_Gpu]) -> list[_Gpu]:
    """The instances of that GPU, in their order."""
    return sorted(gpu for gpu in gpus if gpu.parent_uuid == uuid)
