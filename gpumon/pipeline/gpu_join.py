"""Which GPUs a training run may count for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from gpumon.core.ring_events import RingReading
from gpumon.core.sample import GpuSample
from gpumon.core.visible_devices import Board, visible_choices

_Gpus = tuple[tuple[int, str], ...]  # index and UUID of each
_SEVERAL_RUNS = 1_024


class GpuJoin:
    """The GPUs of one tick, ready to be looked up for many runs."""

    def __init__(self, gpus: Sequence[GpuSample], *, simulated: bool) -> None:
        """Prepare the look-up.

        Args:
            gpus: The GPUs of the newest frame.
            simulated: Made-up GPUs are joined by name only: no process runs on them.
        """
        self._simulated = simulated
        self._gpus = tuple([(gpu.device.index, gpu.device.uuid) for gpu in gpus])
        self._all = frozenset([uuid for _, uuid in self._gpus])
        self._has_processes = any(gpu.processes is not None for gpu in gpus)
        self._uuids_of_pid: dict[int, set[str]] = {}
        for gpu in gpus:
            for process in gpu.processes or ():
                self._uuids_of_pid.setdefault(process.pid, set()).add(gpu.device.uuid)

    def gpus_of(self, reading: RingReading) -> frozenset[str]:
        """What the run says, else where NVML sees it, else what it may see.

        Args:
            reading: The run's ring.

        Returns:
            UUIDs. Empty where nothing points to a GPU.
        """
        facts = reading.facts
        if facts.gpus is not None:
            return _named(facts.gpus, self._gpus)
        if self._simulated:
            return frozenset()
        if self._has_processes:
            return frozenset(self._uuids_of_pid.get(reading.host_pid, ()))
        if facts.visible_devices is None:
            return self._all
        return _visible(facts.visible_devices, self._gpus)

    def shares_of(self, reading: RingReading) -> dict[str, float]:
        """The part of each batch that each watched GPU is given, by UUID; empty: not told.

        A name of no GPU here, or of several, is left out.
        """
        shares: dict[str, float] = {}
        for name, share in reading.facts.shares.items():
            named = _named((name,), self._gpus)
            if len(named) == 1:
                (uuid,) = named
                shares[uuid] = shares.get(uuid, 0.0) + share
        return shares


@lru_cache(maxsize=_SEVERAL_RUNS)
def _named(names: tuple[str, ...], gpus: _Gpus) -> frozenset[str]:
    """GPUs that the user named, by index or by the beginning of a UUID."""
    wanted = [name.strip() for name in names if name.strip()]
    return frozenset(
        uuid
        for index, uuid in gpus
        if any(
            name == str(index) or (not name.isdigit() and uuid.startswith(name)) for name in wanted
        )
    )


@lru_cache(maxsize=_SEVERAL_RUNS)
def _visible(visible_devices: str, gpus: _Gpus) -> frozenset[str]:
    """GPUs that CUDA shows a process with this ``$CUDA_VISIBLE_DEVICES``."""
    in_order = [uuid for _, uuid in sorted(gpus)]
    choices = visible_choices(visible_devices, [Board(uuid) for uuid in in_order])
    return frozenset(in_order[choice.board] for choice in choices)
