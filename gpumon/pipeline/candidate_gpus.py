"""Which GPUs a training run may count for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from gpumon.core.attribution.visible_devices import GpuName, cuda_devices
from gpumon.core.ring_format.events import RingReading
from gpumon.core.sample import Device, GpuSample, ProcessSample
from gpumon.pipeline.gpu_bindings import is_process_of, names_run


class CandidateGpus:
    """GPUs and their processes, ready to be looked up for many runs, while they are the same.

    A MIG-partitioned GPU counts for no run: its instances do the work.
    """

    def __init__(self, gpus: Sequence[GpuSample], *, simulated: bool) -> None:
        """Index the GPUs.

        Args:
            gpus: The GPUs of the newest frame.
            simulated: Simulated GPUs are joined by name only: no process runs on them.
        """
        self.is_simulated = simulated
        self._samples = gpus
        working = [gpu for gpu in gpus if not gpu.device.mig_enabled]
        self._all = frozenset([gpu.device.uuid for gpu in working])
        self._has_processes = any(gpu.processes is not None for gpu in working)
        self._processes_of_pid: dict[int, list[tuple[str, ProcessSample]]] = {}
        for gpu in working:
            for process in gpu.processes or ():
                found = self._processes_of_pid.setdefault(process.pid, [])
                found.append((gpu.device.uuid, process))
        self._has_mig = len(working) < len(gpus)
        self._without_processes = frozenset(
            [
                gpu.device.uuid
                for gpu in (working if self._has_mig else ())
                if gpu.processes is None and gpu.device.parent_uuid is not None
            ]
        )

    def are_of(self, gpus: Sequence[GpuSample]) -> bool:
        """Whether these are the same GPUs with processes of the same users."""
        return len(gpus) == len(self._samples) and all(
            known.device == gpu.device and _owners(known.processes) == _owners(gpu.processes)
            for known, gpu in zip(self._samples, gpus, strict=True)
        )

    @cached_property
    def _names(self) -> list[GpuName]:
        return [GpuName(gpu.device.label, gpu.device.uuid) for gpu in self._samples]

    @cached_property
    def _devices(self) -> list[Device]:
        """Each GPU, then its MIG instances."""
        return sorted((gpu.device for gpu in self._samples), key=lambda device: device.sort_key)

    def gpus_of(self, reading: RingReading) -> frozenset[str]:
        """Return the UUIDs that a run names, else where NVML lists it, else those it may use.

        For a run whose framework computes on the CPU, only those where NVML lists it: idle time of
        a GPU that it does not use is not its loss.
        """
        facts = reading.facts
        if facts.on_cpu and not self.is_simulated:
            return self.seen_on(reading)
        if facts.gpus is not None:
            return self._at_work(self._named(facts.gpus), reading)
        if self.is_simulated:
            return frozenset()
        if self._has_processes:
            seen = self.seen_on(reading)
            if seen or not self._without_processes:
                return seen
        allowed = self._allowed(facts.visible_devices)
        return allowed & self._without_processes if self._has_processes else allowed

    def seen_on(self, reading: RingReading) -> frozenset[str]:
        """Return the UUIDs of the GPUs on which the driver lists the run's own process."""
        found = self._processes_of_pid.get(reading.host_pid, ())
        return frozenset([uuid for uuid, process in found if is_process_of(reading, process)])

    def names(self, uuid: str, reading: RingReading) -> bool:
        """Whether the driver lists the run's process there, or one of the same user."""
        listed = next((gpu.processes for gpu in self._samples if gpu.device.uuid == uuid), None)
        return names_run(listed or (), reading)

    def _allowed(self, visible_devices: str | None) -> frozenset[str]:
        """GPUs that CUDA shows a process with this ``$CUDA_VISIBLE_DEVICES``."""
        if visible_devices is None and not self._has_mig:
            return self._all
        return frozenset(device.uuid for device in cuda_devices(visible_devices, self._devices))

    def _named(self, names: Iterable[str]) -> frozenset[str]:
        """Return GPUs named by index or by the beginning of a UUID."""
        wanted = [name.strip() for name in names if name.strip()]
        return frozenset(gpu.uuid for gpu in self._names if any(map(gpu.is_meant_by, wanted)))

    def _at_work(self, named: frozenset[str], reading: RingReading) -> frozenset[str]:
        """Replace a MIG-partitioned GPU by the instance with the process, else by its first.

        CUDA uses the first instance, too.
        """
        uuids = set(named & self._all)
        for parent in named - uuids:
            instances = [device.uuid for device in self._devices if device.parent_uuid == parent]
            uuids |= self.seen_on(reading).intersection(instances) or set(instances[:1])
        return frozenset(uuids)

    def shares_of(self, reading: RingReading) -> dict[str, float]:
        """Return the share of each batch of each watched GPU, by UUID; empty: not recorded.

        A name of no GPU here, or of several, is left out.
        """
        shares: dict[str, float] = {}
        for name, share in reading.facts.shares.items():
            named = self._at_work(self._named((name,)), reading)
            if len(named) == 1:
                (uuid,) = named
                shares[uuid] = shares.get(uuid, 0.0) + share
        return shares


def _owners(
    processes: Iterable[ProcessSample] | None,
) -> list[tuple[int, int | None, bool]] | None:
    """What decides whether a run's process is among them; what they use does not."""
    if processes is None:
        return None
    return [(process.pid, process.uid, process.is_hidden) for process in processes]
