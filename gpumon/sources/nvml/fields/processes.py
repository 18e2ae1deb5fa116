"""Who computes on a GPU: pid, memory, share of its multiprocessors, and names where asked for.

Only compute processes: on a real board one call for the graphics processes
was seen to take 4.5 ms, and they say nothing about a training.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Final

from gpumon.core.clock import nanoseconds
from gpumon.core.sample import ProcessSample
from gpumon.sources.nvml.binding import (
    PROCESSES_UTILIZATION_V1,
    CArgument,
    FieldCalls,
    NvmlCalls,
    NvmlLibrary,
    ProcessesUtilizationInfoV1,
    ProcessUtilizationInfoV1,
)
from gpumon.sources.nvml.codes import (
    INSUFFICIENT_SIZE,
    NO_ERROR,
    NOT_FOUND,
    NOT_IN_THIS_DRIVER,
    SUCCESS,
)
from gpumon.sources.nvml.fields.calls import DriverCall
from gpumon.sources.nvml.fields.table import (
    MOST_BYTES,
    PROCESS_LISTS,
    PROCESS_PERIOD_S,
    PROCESS_SHARES,
    NvmlOptions,
)
from gpumon.sources.nvml.pynvml_module import pynvml
from gpumon.sources.process_owners import ProcessNames, ProcessOwners

_US_OF_A_RESTART: Final = 60_000_000
_SILENCES_OF_A_RESTART: Final = 6
_NO_VALUE: Final = 0xFFFF_FFFF_FFFF_FFFF
_SHARES_DUE_NS: Final = nanoseconds(PROCESS_PERIOD_S) * 9 // 10
"""A reading that comes a little early is the one that is due."""

_FIRST_ROOM, _MOST_ROOM = 64, 4096


class _OldestRecord(ctypes.Structure):
    """A process as drivers before MIG list it: shorter than the newer ones."""

    _fields_ = (("pid", ctypes.c_uint), ("usedGpuMemory", ctypes.c_ulonglong))


_NEWER_SHARES, _OLDER_SHARES = [call.function for call in PROCESS_SHARES]
_RECORDS: Final[dict[str, type[ctypes.Structure]]] = {
    _NEWER_SHARES: ProcessUtilizationInfoV1,
    _OLDER_SHARES: pynvml.c_nvmlProcessUtilizationSample_t,
    PROCESS_LISTS[-1].function: _OldestRecord,
}
"""What a function fills in, where that is not the record of the newer lists."""


class RecordsCall(DriverCall):
    """A function of ``PROCESS_LISTS`` or ``PROCESS_SHARES``, with room for so many processes."""

    no_error = NO_ERROR | {INSUFFICIENT_SIZE}  # it is made again then, with more room

    def __init__(self, library: NvmlCalls, handle: int, function: str, capacity: int) -> None:
        kind_of_record = _RECORDS.get(function, pynvml.c_nvmlProcessInfo_v2_t)
        self.room: ctypes.Array[Any] = (kind_of_record * capacity)()
        self._count, self._newer_than_us = ctypes.c_uint(), ctypes.c_ulonglong()
        places: tuple[CArgument, ...] = ctypes.byref(self._count), self.room
        if function == _OLDER_SHARES:
            places = self.room, ctypes.byref(self._count), self._newer_than_us
        if function == _NEWER_SHARES:  # one structure with everything in it
            kind = ProcessesUtilizationInfoV1
            request = kind(version=PROCESSES_UTILIZATION_V1, procUtilArray=self.room)
            self._count = ctypes.c_uint.from_buffer(request, kind.processSamplesCount.offset)
            stamp_at = kind.lastSeenTimeStamp.offset
            self._newer_than_us = ctypes.c_ulonglong.from_buffer(request, stamp_at)
            places = (ctypes.byref(request),)
        super().__init__(library, function, ctypes.c_void_p(handle), *places)

    @property
    def count(self) -> int:
        """How many records the driver says there are."""
        return self._count.value

    def ask_newer(self, seen_us: int = 0) -> int:
        """Ask for what is newer than a stamp, where the call knows stamps; gives NVML's code."""
        self._count.value, self._newer_than_us.value = len(self.room), seen_us
        return self.ask()

    def records(self) -> list[Any]:
        """What the driver filled in."""
        return self.room[: min(self.count, len(self.room))]


class NewestRecords:
    """The newest of several functions that the driver has, with room that grows to the answer."""

    def __init__(self, library: NvmlCalls, handle: int, functions: Sequence[str]) -> None:
        self._library, self._handle = library, handle
        self._functions = list(functions)
        self._bound: RecordsCall | None = None
        self.code = SUCCESS

    @property
    def supported(self) -> bool:
        """Whether it is worth asking."""
        return bool(self._functions) and (self._bound is None or self._bound.supported)

    def read(self, seen_us: int = 0) -> list[Any] | None:
        """The records, of what is newer than that stamp; ``None``: ``code`` says why."""
        while self._functions:
            bound = self._bound or self._with_room(_FIRST_ROOM)
            code = bound.ask_newer(seen_us)
            if code == INSUFFICIENT_SIZE and len(bound.room) < _MOST_ROOM:
                # Some say then how many they have room for, not how many there are.
                most = max(2 * bound.count + 1, 2 * len(bound.room))
                bound = self._with_room(min(most, _MOST_ROOM))
                code = bound.ask_newer(seen_us)
            self.code = code
            if code == SUCCESS:
                return bound.records()
            if code not in NOT_IN_THIS_DRIVER:
                return None
            self._bound = None
            del self._functions[0]
        return None

    def _with_room(self, capacity: int) -> RecordsCall:
        self._bound = RecordsCall(self._library, self._handle, self._functions[0], capacity)
        return self._bound


class ProcessShares:
    """Asks for the shares since the reading before.

    The driver keeps samples of each process. Asked for all of them, as a
    first call has to, it averages over load that is long over: so the first
    call only learns the newest stamp.
    """

    def __init__(self, library: NvmlCalls, handle: int) -> None:
        self._records = NewestRecords(library, handle, [call.function for call in PROCESS_SHARES])
        self._seen_us = self._silences = 0

    @property
    def supported(self) -> bool:
        """Whether it is worth asking."""
        return self._records.supported

    def read(self) -> dict[int, float | None] | None:
        """Shares, 0 to 1, by pid; who is not in it was not busy.

        Returns:
            ``None`` of a process whose share cannot be meant, and where there is no answer at all.
        """
        records = self._records.read(self._seen_us)
        if records is not None:
            return self._taken(records)
        if self._records.code != NOT_FOUND:
            return None
        # Nothing is newer than the position: the usual answer of an idle GPU. Where it comes again
        # and again, the stamps may have begun anew, and would stay behind the position for days.
        self._silences += 1
        if self._silences >= _SILENCES_OF_A_RESTART:
            self._seen_us = 0
        return {}

    def _taken(self, records: Sequence[Any]) -> dict[int, float | None] | None:
        """Sort out what the buffer holds of old samples, and of garbage above 100 %."""
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


class ProcessField:
    """The compute processes of one GPU or MIG instance, in buffers that are kept.

    The list is read whenever it is asked for: by it a job is seen to end. The
    shares take a second call of the driver, made every ``PROCESS_PERIOD_S``;
    in between they are repeated.
    """

    def __init__(
        self,
        library: NvmlCalls,
        handle: int,
        *,
        names: ProcessNames | None = None,
        owners: ProcessOwners | None = None,
        gpu_instance: int | None = None,
        refuse: Callable[[], None] = lambda: None,
    ) -> None:
        """Bind the calls; of a whole GPU with ``gpu_instance``, only those on that are told.

        ``names`` is for who asked for names and users; ``owners`` knows whose a process is.
        ``refuse`` counts a value that no process can have.
        """
        self._refuse = refuse
        self._names, self._gpu_instance = names, gpu_instance
        self._owners = owners or ProcessOwners()
        self._lists = NewestRecords(library, handle, usable_lists(library))
        self._shares = ProcessShares(library, handle)
        self._ratios: dict[int, float | None] = {}
        self._shares_at_ns: int | None = None

    @property
    def code(self) -> int:
        """What the list answered last."""
        return self._lists.code

    def read(self, now_ns: int) -> tuple[ProcessSample, ...] | None:
        """The processes; ``None`` where the list is not to be had."""
        found = self._list()
        if found is None:
            return None
        if found and self._shares_are_due(now_ns):
            shares, self._shares_at_ns = self._shares.read(), now_ns
            # Who comes later was not there to be busy, or not: of them nothing is known.
            self._ratios = {} if shares is None else {pid: shares.get(pid, 0.0) for pid, _ in found}
        if self._names is not None:
            self._names.keep_only({pid for pid, _ in found})
        return tuple(self._process(pid, memory_bytes) for pid, memory_bytes in found)

    def _process(self, pid: int, memory_bytes: int | None) -> ProcessSample:
        ratio, names = self._ratios.get(pid), self._names
        uid, is_hidden, serves_others = self._owners.owner(pid)
        name = user = None
        if names is not None:
            name, user = names.name(pid), names.user(uid)
        return ProcessSample(pid, memory_bytes, ratio, name, user, uid, is_hidden, serves_others)

    def _shares_are_due(self, now_ns: int) -> bool:
        if not self._shares.supported:
            return False
        return self._shares_at_ns is None or now_ns - self._shares_at_ns >= _SHARES_DUE_NS

    def _list(self) -> list[tuple[int, int | None]] | None:
        """Pid and memory of each."""
        records, wanted = self._lists.read(), self._gpu_instance
        if records is None:
            return None
        return [
            (record.pid, self._memory_bytes(record.usedGpuMemory))
            for record in records
            if wanted is None or getattr(record, "gpuInstanceId", wanted) == wanted
        ]

    def _memory_bytes(self, reported: int) -> int | None:
        if reported <= MOST_BYTES:
            return reported
        if reported != _NO_VALUE:
            self._refuse()
        return None


def process_field(
    library: NvmlLibrary,
    handle: int,
    options: NvmlOptions,
    *,
    calls: FieldCalls | None = None,
    gpu_instance: int | None = None,
    refuse: Callable[[], None] = lambda: None,
) -> ProcessField:
    """The processes of that GPU, with names where the user wants them."""
    names = ProcessNames(library.process_name) if "process_names" in options else None
    return ProcessField(
        calls or library, handle, names=names, gpu_instance=gpu_instance, refuse=refuse
    )


def usable_lists(library: NvmlCalls) -> list[str]:
    """The lists of that driver whose records are as they should be.

    A few drivers (535 before 535.98) put a number more into the records of
    the newest. They know how much memory is protected, and not yet the list
    of details that took the number over.
    """
    longer_records = library.has("nvmlDeviceGetConfComputeMemSizeInfo") and not library.has(
        "nvmlDeviceGetRunningProcessDetailList"
    )
    lists = PROCESS_LISTS[1:] if longer_records else PROCESS_LISTS
    return [call.function for call in lists if library.has(call.function)]
