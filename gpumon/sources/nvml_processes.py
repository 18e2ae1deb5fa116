"""Who computes on a GPU: pid, memory, share of its multiprocessors, and names where asked for.

Only compute processes: on a real board one call for the graphics processes
was seen to take 4.5 ms, and they say nothing about a training.
"""

from __future__ import annotations

import ctypes
from typing import Final

import pynvml

from gpumon.core.sample import ProcessSample
from gpumon.core.units import nanoseconds
from gpumon.sources.nvml_binding import FieldCalls, NvmlCalls, NvmlLibrary
from gpumon.sources.nvml_catalog import PROCESS_PERIOD_S, NvmlOptions
from gpumon.sources.nvml_codes import INSUFFICIENT_SIZE, SUCCESS
from gpumon.sources.nvml_fields import ListField
from gpumon.sources.nvml_process_shares import ProcessShares
from gpumon.sources.process_names import ProcessNames
from gpumon.sources.process_owners import ProcessOwners

_NO_VALUE: Final = 0xFFFF_FFFF_FFFF_FFFF
_FIRST_ROOM, _MOST_ROOM = 64, 4096
_SHARES_DUE_NS: Final = nanoseconds(PROCESS_PERIOD_S) * 9 // 10
"""A reading that comes a little early is the one that is due."""


class _OldestRecord(ctypes.Structure):
    """A process as drivers before MIG list it."""

    _fields_ = (("pid", ctypes.c_uint), ("usedGpuMemory", ctypes.c_ulonglong))


_LISTS: Final = (
    ("nvmlDeviceGetComputeRunningProcesses_v3", pynvml.c_nvmlProcessInfo_v2_t),
    ("nvmlDeviceGetComputeRunningProcesses_v2", pynvml.c_nvmlProcessInfo_v2_t),
    ("nvmlDeviceGetComputeRunningProcesses", _OldestRecord),
)
"""The newest first. The third's records are shorter than the others."""


class ProcessField:
    """The compute processes of one GPU or MIG instance, in buffers that are kept.

    The list is read whenever it is asked for: by it a job is seen to end. The
    shares take a second call of the driver, made every ``PROCESS_PERIOD_S``;
    in between they are repeated.

    Attributes:
        code: What the list answered last.
    """

    def __init__(
        self,
        library: NvmlCalls,
        handle: int,
        *,
        names: ProcessNames | None = None,
        owners: ProcessOwners | None = None,
        gpu_instance: int | None = None,
    ) -> None:
        """Bind the calls.

        Args:
            library: NVML, opened.
            handle: Which GPU, or MIG instance.
            names: Knows names and users; ``None``: nobody asked for them.
            owners: Knows whose a process is; ``None``: as the kernel of this machine tells.
            gpu_instance: Keep only processes of this GPU instance, where the
                handle is that of the whole GPU.
        """
        self._library, self._handle = library, handle
        self._names, self._gpu_instance = names, gpu_instance
        self._owners = owners or ProcessOwners()
        self._count = ctypes.c_uint()
        self.code = SUCCESS
        self.forget()

    def forget(self) -> None:
        """Ask for everything again: the GPU may answer now what it could not before."""
        self._lists = usable_lists(self._library)
        self._field: ListField | None = None
        self._shares = ProcessShares(self._library, self._handle)
        self._ratios: dict[int, float | None] = {}
        self._shares_at_ns: int | None = None

    def read(self, now_ns: int) -> tuple[ProcessSample, ...] | None:
        """The processes; ``None`` where the list is not to be had.

        Args:
            now_ns: CLOCK_MONOTONIC.
        """
        found = self._list()
        if found is None:
            return None
        if found and self._shares_are_due(now_ns):
            shares, self._shares_at_ns = self._shares.read(), now_ns
            # Who comes later was not there to be busy, or not: of them nothing is known.
            self._ratios = {} if shares is None else {pid: shares.get(pid, 0.0) for pid, _ in found}
        ratios, names, uid_of = self._ratios, self._names, self._owners.uid
        if names is not None:
            names.keep_only({pid for pid, _ in found})
        return tuple(
            ProcessSample(
                pid,
                memory_bytes,
                ratios.get(pid),
                None if names is None else names.name(pid),
                None if names is None else names.user(pid),
                uid_of(pid),
            )
            for pid, memory_bytes in found
        )

    def _shares_are_due(self, now_ns: int) -> bool:
        if not self._shares.supported:
            return False
        return self._shares_at_ns is None or now_ns - self._shares_at_ns >= _SHARES_DUE_NS

    def _list(self) -> list[tuple[int, int | None]] | None:
        """Pid and memory of each, from the newest of the driver's lists that works here."""
        while self._lists:
            field = self._field or self._make_room(_FIRST_ROOM)
            self._count.value = len(self._records)
            answered = field.ask()
            if field.code == INSUFFICIENT_SIZE and len(self._records) < _MOST_ROOM:
                field = self._make_room(min(2 * self._count.value + 1, _MOST_ROOM))
                self._count.value = len(self._records)
                answered = field.ask()
            self.code = field.code
            if answered:
                return self._entries()
            if not field.is_missing:
                return None
            self._field = None
            del self._lists[0]
        return None

    def _make_room(self, capacity: int) -> ListField:
        name, record = self._lists[0]
        self._records = (record * capacity)()
        self._field = ListField(
            self._library,
            name,
            (ctypes.c_void_p, self._handle),
            (ctypes.c_void_p, ctypes.addressof(self._count)),
            (ctypes.c_void_p, ctypes.addressof(self._records)),
        )
        return self._field

    def _entries(self) -> list[tuple[int, int | None]]:
        records = self._records[: min(self._count.value, len(self._records))]
        wanted = self._gpu_instance
        return [
            (record.pid, None if record.usedGpuMemory == _NO_VALUE else record.usedGpuMemory)
            for record in records
            if wanted is None or getattr(record, "gpuInstanceId", wanted) == wanted
        ]


def process_field(
    library: NvmlLibrary,
    handle: int,
    options: NvmlOptions,
    *,
    calls: FieldCalls | None = None,
    gpu_instance: int | None = None,
) -> ProcessField | None:
    """The processes of that GPU as the user wants them told; ``None``: not at all."""
    if "processes" not in options.fields:
        return None
    names = ProcessNames(library.process_name) if "process_names" in options.fields else None
    return ProcessField(calls or library, handle, names=names, gpu_instance=gpu_instance)


def usable_lists(library: NvmlCalls) -> list[tuple[str, type[ctypes.Structure]]]:
    """The lists of that driver whose records are as they should be, with their records.

    A few drivers (535 before 535.98) put a number more into the records of
    the newest. They know how much memory is protected, and not yet the list
    of details that took the number over.
    """
    longer_records = library.has("nvmlDeviceGetConfComputeMemSizeInfo") and not library.has(
        "nvmlDeviceGetRunningProcessDetailList"
    )
    lists = _LISTS[1:] if longer_records else _LISTS
    return [(name, record) for name, record in lists if library.has(name)]
