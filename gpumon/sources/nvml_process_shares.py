"""What part of the time each process kept a GPU's multiprocessors busy."""

from __future__ import annotations

import ctypes
from typing import Any, Final, Protocol

import pynvml

from gpumon.sources.nvml_binding import NvmlCalls
from gpumon.sources.nvml_codes import INSUFFICIENT_SIZE, NOT_FOUND, SUCCESS
from gpumon.sources.nvml_fields import ListField
from gpumon.sources.nvml_newer import (
    PROCESSES_UTILIZATION_V1,
    ProcessesUtilizationInfoV1,
    ProcessUtilizationInfoV1,
)

_FIRST_ROOM, _MOST_ROOM = 128, 4096
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
        call = self._call or self._make_room(_FIRST_ROOM)
        code = _answer(call, self._seen_us)
        said, room = call.records()
        if code == INSUFFICIENT_SIZE and len(room) < _MOST_ROOM:
            # What the driver says then is how many it has room for, not how many there are.
            call = self._make_room(min(max(said, 2 * len(room)), _MOST_ROOM))
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
