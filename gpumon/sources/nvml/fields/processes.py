"""A GPU's compute processes: pid, memory, share of its multiprocessors, and names on request.

No graphics processes: one call for them took 4.5 ms on a real board, and they have nothing to do
with training.
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
"""A reading that comes a little early counts as due."""

_FIRST_CAPACITY, _LARGEST_CAPACITY = 64, 4096


class _OldestRecord(ctypes.Structure):
    """A process record of drivers before MIG: shorter than the newer ones."""

    _fields_ = (("pid", ctypes.c_uint), ("usedGpuMemory", ctypes.c_ulonglong))


_NEWER_SHARES, _OLDER_SHARES = [call.function for call in PROCESS_SHARES]
_RECORDS: Final[dict[str, type[ctypes.Structure]]] = {
    _NEWER_SHARES: ProcessUtilizationInfoV1,
    _OLDER_SHARES: pynvml.c_nvmlProcessUtilizationSample_t,
    PROCESS_LISTS[-1].function: _OldestRecord,
}
"""The records of functions other than the newer lists."""


class RecordsCall(DriverCall):
    """A function of ``PROCESS_LISTS`` or ``PROCESS_SHARES``, for up to ``capacity`` processes."""

    no_error = NO_ERROR | {INSUFFICIENT_SIZE}  # it is repeated then, with a larger buffer

    def __init__(self, library: NvmlCalls, handle: int, function: str, capacity: int) -> None:
        kind_of_record = _RECORDS.get(function, pynvml.c_nvmlProcessInfo_v2_t)
        self.buffer: ctypes.Array[Any] = (kind_of_record * capacity)()
        self._count, self._newer_than_us = ctypes.c_uint(), ctypes.c_ulonglong()
        out_args: tuple[CArgument, ...] = ctypes.byref(self._count), self.buffer
        if function == _OLDER_SHARES:
            out_args = self.buffer, ctypes.byref(self._count), self._newer_than_us
        if function == _NEWER_SHARES:  # one structure with everything in it
            kind = ProcessesUtilizationInfoV1
            request = kind(version=PROCESSES_UTILIZATION_V1, procUtilArray=self.buffer)
            self._count = ctypes.c_uint.from_buffer(request, kind.processSamplesCount.offset)
            stamp_at = kind.lastSeenTimeStamp.offset
            self._newer_than_us = ctypes.c_ulonglong.from_buffer(request, stamp_at)
            out_args = (ctypes.byref(request),)
        super().__init__(library, function, ctypes.c_void_p(handle), *out_args)

    @property
    def count(self) -> int:
        return self._count.value

    def read_newer(self, seen_us: int = 0) -> int:
        """Read what is newer than a stamp, if the call has stamps; return NVML's code."""
        self._count.value, self._newer_than_us.value = len(self.buffer), seen_us
        return self.call()

    def records(self) -> list[Any]:
        return self.buffer[: min(self.count, len(self.buffer))]


class NewestRecords:
    """The newest of several functions that the driver has, with a buffer that grows."""

    def __init__(self, library: NvmlCalls, handle: int, functions: Sequence[str]) -> None:
        self._library, self._handle = library, handle
        self._functions = list(functions)
        self._bound: RecordsCall | None = None
        self.code = SUCCESS

    @property
    def supported(self) -> bool:
        return bool(self._functions) and (self._bound is None or self._bound.supported)

    def read(self, seen_us: int = 0) -> list[Any] | None:
        """Return the records newer than that stamp; ``None``: ``code`` has the reason."""
        while self._functions:
            bound = self._bound or self._with_capacity(_FIRST_CAPACITY)
            code = bound.read_newer(seen_us)
            if code == INSUFFICIENT_SIZE and len(bound.buffer) < _LARGEST_CAPACITY:
                # Some drivers then return the buffer's size, not the number of records.
                most = max(2 * bound.count + 1, 2 * len(bound.buffer))
                bound = self._with_capacity(min(most, _LARGEST_CAPACITY))
                code = bound.read_newer(seen_us)
            self.code = code
            if code == SUCCESS:
                return bound.records()
            if code not in NOT_IN_THIS_DRIVER:
                return None
            self._bound = None
            del self._functions[0]
        return None

    def _with_capacity(self, capacity: int) -> RecordsCall:
        self._bound = RecordsCall(self._library, self._handle, self._functions[0], capacity)
        return self._bound


class ProcessShares:
    """Reads the shares since the last reading.

    The driver keeps samples of each process, and the first call returns all of them, with load
    that ended long ago: so it is only used for the newest stamp.
    """

    def __init__(self, library: NvmlCalls, handle: int) -> None:
        self._records = NewestRecords(library, handle, [call.function for call in PROCESS_SHARES])
        self._seen_us = self._silences = 0

    @property
    def supported(self) -> bool:
        return self._records.supported

    def read(self) -> dict[int, float | None] | None:
        """Return shares, 0 to 1, by pid; a process that is missing was not busy.

        Returns:
            ``None`` for a process with an invalid share, and without an answer at all.
        """
        records = self._records.read(self._seen_us)
        if records is not None:
            return self._new_shares(records)
        if self._records.code != NOT_FOUND:
            return None
        # Nothing is newer than the position: the usual answer of an idle GPU. If it is repeated,
        # the stamps may have restarted, and would stay behind the position for days.
        self._silences += 1
        if self._silences >= _SILENCES_OF_A_RESTART:
            self._seen_us = 0
        return {}

    def _new_shares(self, records: Sequence[Any]) -> dict[int, float | None] | None:
        """Leave out old samples, and invalid ones above 100 %."""
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
            # The first reading, or the stamps restarted: only the position is learnt.
            self._seen_us = newest_us
            return None
        self._seen_us = max(seen_us, newest_us)
        shares.update((pid, percent / 100) for stamp, pid, percent in entries if stamp > seen_us)
        return shares


class ProcessField:
    """The compute processes of one GPU or MIG instance, in reused buffers.

    The list is read each time, because it shows when a job ends. The shares take a second call,
    made every ``PROCESS_PERIOD_S`` while there are several processes; in between they are repeated.
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
        """Bind the calls.

        With ``gpu_instance``, only its processes are reported; without ``names``, no names.
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
        return self._lists.code

    def read(self, now_ns: int) -> tuple[ProcessSample, ...] | None:
        """Return the processes; ``None``: there is no list."""
        found = self._list()
        if found is None:
            return None
        if len(found) > 1 and self._shares_are_due(now_ns):
            shares, self._shares_at_ns = self._shares.read(), now_ns
            # The share of a process that comes later is unknown.
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
    """Return what reads that GPU's processes, with names where the user wants them."""
    names = ProcessNames(library.process_name) if "process_names" in options else None
    return ProcessField(
        calls or library, handle, names=names, gpu_instance=gpu_instance, refuse=refuse
    )


def usable_lists(library: NvmlCalls) -> list[str]:
    """Return the driver's process lists with records of the documented size.

    A few drivers (535 before 535.98) have one more number in the records of the newest list. They
    are recognised by the functions that they have and lack.
    """
    longer_records = library.has("nvmlDeviceGetConfComputeMemSizeInfo") and not library.has(
        "nvmlDeviceGetRunningProcessDetailList"
    )
    lists = PROCESS_LISTS[1:] if longer_records else PROCESS_LISTS
    return [call.function for call in lists if library.has(call.function)]
