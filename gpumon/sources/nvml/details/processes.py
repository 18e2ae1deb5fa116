"""Who computes on a GPU: pid, memory, share of its multiprocessors, and names where asked for.

Only compute processes: on a real board one call for the graphics processes
was seen to take 4.5 ms, and they say nothing about a training.

What part of the time each process kept a GPU's multiprocessors busy.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final, Protocol

import pynvml

from gpumon.core.clock import nanoseconds
from gpumon.core.sample import ProcessSample
from gpumon.sources.nvml.binding import (
    PROCESSES_UTILIZATION_V1,
    FieldCalls,
    NvmlCalls,
    NvmlLibrary,
    ProcessesUtilizationInfoV1,
    ProcessUtilizationInfoV1,
)
from gpumon.sources.nvml.codes import INSUFFICIENT_SIZE, NOT_FOUND, SUCCESS
from gpumon.sources.nvml.details.fields import PROCESS_PERIOD_S, ListField, NvmlOptions
from gpumon.sources.process_names import ProcessNames, ProcessOwners

_FIRST_ROOM_OF_SHARES, _MOST_ROOM_OF_SHARES = 128, 4096
_US_OF_A_RESTART: Final = 60_000_000
_SILENCES_OF_A_RESTART: Final = 6


class _Call(Protocol):
    """One generation of the driver's call, with room for its answer.

    Attributes:
        field: The call itself.
    """

    field: ListField

    def __init__(self, library: NvmlCalls, handle: int, capacity: int) -> None: ...

    def prepare(self, seen_us: int) -> None:
        """Ask for what is newer than this stamp."""
        ...

    def records(self) -> tuple[int, ctypes.Array[Any]]:
        """How many records the driver says there are, and the room for them."""
        ...


class _NewerCall:
    """``nvmlDeviceGetProcessesUtilizationInfo``: one structure with everything in it."""

    def __init__(self, library: NvmlCalls, handle: int, capacity: int) -> None:
        self._records = (ProcessUtilizationInfoV1 * capacity)()
        self._request = ProcessesUtilizationInfoV1()
        self._request.version = PROCESSES_UTILIZATION_V1
        self._request.procUtilArray = self._records
        self.field = ListField(
            library,
            "nvmlDeviceGetProcessesUtilizationInfo",
            (ctypes.c_void_p, handle),
            (ctypes.c_void_p, ctypes.addressof(self._request)),
        )

    def prepare(self, seen_us: int) -> None:
        self._request.processSamplesCount = len(self._records)
        self._request.lastSeenTimeStamp = seen_us

    def records(self) -> tuple[int, ctypes.Array[Any]]:
        return int(self._request.processSamplesCount), self._records


class _OlderCall:
    """``nvmlDeviceGetProcessUtilization``."""

    def __init__(self, library: NvmlCalls, handle: int, capacity: int) -> None:
        self._records = (pynvml.c_nvmlProcessUtilizationSample_t * capacity)()
        self._count, self._seen_us = ctypes.c_uint(), ctypes.c_ulonglong()
        self.field = ListField(
            library,
            "nvmlDeviceGetProcessUtilization",
            (ctypes.c_void_p, handle),
            (ctypes.c_void_p, ctypes.addressof(self._records)),
            (ctypes.c_void_p, ctypes.addressof(self._count)),
            (ctypes.c_ulonglong, self._seen_us),
        )

    def prepare(self, seen_us: int) -> None:
        self._count.value, self._seen_us.value = len(self._records), seen_us

    def records(self) -> tuple[int, ctypes.Array[Any]]:
        return self._count.value, self._records


class ProcessShares:
    """Asks for the shares since the reading before, in one call with a buffer that is kept.

    The driver keeps samples of each process. Asked for all of them, as a
    first call has to, it averages over load that is long over: so the first
    call only learns the newest stamp.
    """

    def __init__(self, library: NvmlCalls, handle: int) -> None:
        self._library, self._handle = library, handle
        self._seen_us = self._silences = 0
        self._kinds: list[type[_Call]] = [_NewerCall, _OlderCall]
        self._call: _Call | None = None

    @property
    def supported(self) -> bool:
        """Whether it is worth asking."""
        return bool(self._kinds)

    def read(self) -> dict[int, float | None] | None:
        """Shares, 0 to 1, by pid; who is not in it was not busy.

        Returns:
            ``None`` of a process whose share cannot be meant, and where there is no answer at all.
        """
        while self._kinds:
            call, code = self._ask()
            if code == NOT_FOUND:
                return self._nobody()
            if code == SUCCESS:
                return self._taken(call)
            if call.field.supported:
                return None
            self._call = None
            self._kinds = self._kinds[1:] if call.field.is_missing else []
        return None

    def _ask(self) -> tuple[_Call, int]:
        call = self._call or self._make_room(_FIRST_ROOM_OF_SHARES)
        code = _answer(call, self._seen_us)
        said, room = call.records()
        if code == INSUFFICIENT_SIZE and len(room) < _MOST_ROOM_OF_SHARES:
            # What the driver says then is how many it has room for, not how many there are.
            call = self._make_room(min(max(said, 2 * len(room)), _MOST_ROOM_OF_SHARES))
            code = _answer(call, self._seen_us)
        return call, code

    def _make_room(self, capacity: int) -> _Call:
        self._call = self._kinds[0](self._library, self._handle, capacity)
        return self._call

    def _nobody(self) -> dict[int, float | None]:
        """Nothing is newer than the position: the usual answer of an idle GPU.

        Where it comes again and again, the stamps may have begun anew, and
        would stay behind the position for days.
        """
        self._silences += 1
        if self._silences >= _SILENCES_OF_A_RESTART:
            self._seen_us = 0
        return {}

    def _taken(self, call: _Call) -> dict[int, float | None] | None:
        """Sort out what the buffer holds of old samples, and of garbage above 100 %."""
        said, room = call.records()
        records = room[: min(said, len(room))]
        entries = sorted(
            (record.timeStamp, record.pid, record.smUtil)
            for record in records
            if record.smUtil <= 100
        )
        shares: dict[int, float | None]
        shares = dict.fromkeys(record.pid for record in records if record.smUtil > 100)
        seen_us, self._silences = self._seen_us, 0
        if not entries:
            return shares if seen_us else None
        newest_us = entries[-1][0]
        if not seen_us or newest_us + _US_OF_A_RESTART < seen_us:
            # The first look, or the stamps began anew: only the position is learnt.
            self._seen_us = newest_us
            return None
        self._seen_us = max(seen_us, newest_us)
        shares.update((pid, percent / 100) for stamp, pid, percent in entries if stamp > seen_us)
        return shares


def _answer(call: _Call, seen_us: int) -> int:
    call.prepare(seen_us)
    call.field.ask()
    return call.field.code


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
