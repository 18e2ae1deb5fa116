"""A thin binding of the NVIDIA Management Library: one C call, one answer.

``pynvml`` opens the library and has its types; the calls of every tick go to the C functions
directly, with reused buffers. Answers that are normal for a device ("not supported", "nothing
new") are return codes here, never exceptions; a library that cannot be opened is a
``SourceUnavailableError`` that says what to do.

The costs and failures of calls are added up here. The end of the file declares structures that the
oldest supported nvidia-ml-py (12.535) lacks: they belong to the driver, which may be newer.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from time import perf_counter_ns
from typing import Any, Final, NamedTuple, TypeAlias

from gpumon.core.clock import seconds
from gpumon.core.wording import label_text
from gpumon.sources.nvml.codes import (
    FUNCTION_NOT_FOUND,
    NO_ERROR,
    NO_INSTANCE_THERE,
    NO_PERMISSION,
    PERMANENT,
    SUCCESS,
    unavailable,
)
from gpumon.sources.nvml.pynvml_module import pynvml


class CallTotals(NamedTuple):
    """The cumulative seconds, calls, and errors by code of each driver function."""

    seconds: tuple[tuple[str, float], ...] = ()
    counts: tuple[tuple[str, int], ...] = ()
    errors: tuple[tuple[str, int, int], ...] = ()


class CallAccounts:
    """The costs and failures of the driver's functions, over all openings of NVML.

    Two threads may call the driver at once, and a counter must not lose an addition.
    """

    def __init__(self) -> None:
        self._spent: dict[str, list[int]] = {}
        self._errors: dict[tuple[str, int], int] = {}
        self._adding = threading.Lock()

    def count_call(self, name: str, spent_ns: int, code: int = SUCCESS, *, calls: int = 1) -> None:
        """Count calls and their time, and an error unless ``code`` is ``SUCCESS``."""
        with self._adding:
            total = self._spent.setdefault(name, [0, 0])
            total[0] += spent_ns
            total[1] += calls
        if code != SUCCESS:
            self.count_error(name, code)

    def count_error(self, name: str, code: int) -> None:
        """Count an error of a call that is already counted."""
        with self._adding:
            self._errors[name, code] = self._errors.get((name, code), 0) + 1

    def totals(self) -> CallTotals:
        # Copied at once: another thread may add a function meanwhile.
        spent, errors = list(self._spent.items()), list(self._errors.items())
        return CallTotals(
            tuple([(name, seconds(ns)) for name, (ns, _) in spent]),
            tuple([(name, calls) for name, (_, calls) in spent]),
            tuple([(name, code, count) for (name, code), count in errors]),
        )


_MAX_INSTANCES: Final = 64
_MAX_GPUS: Final = 1024

_OF_OTHERS: Final = NO_ERROR | {NO_PERMISSION}
"""No permission is how a container is kept from the GPUs of others."""

CFunction = Callable[..., int]

CArgument: TypeAlias = "ctypes._SimpleCData[Any] | ctypes.Array[Any] | ctypes._CArgObject | bytes"
"""An argument with its C type: a bare number would be truncated to 32 bits."""


class NvmlLibrary:
    """NVML, opened. Two threads may call it: one for slow calls.

    Attributes:
        accounts: The costs and failures of its functions.
        driver_version: Such as ``"580.95.05"``.
        refused: The code with which a handle was refused, by index, since GPUs were last
            counted.

    Raises:
        SourceUnavailableError: The library is missing, or refuses to start.
    """

    def __init__(self, accounts: CallAccounts | None = None) -> None:
        """Open it; ``accounts`` continue those of an earlier opening."""
        self.accounts = CallAccounts() if accounts is None else accounts
        self.refused: dict[int, int] = {}
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            self.accounts.count_error("nvmlInitWithFlags", error.value)
            raise unavailable(error.value) from error
        # A separate object on the same handle: other code in this process may set argument types
        # on pynvml's functions.
        self._library = ctypes.CDLL(None, handle=pynvml.nvmlLib._handle)
        self._open = True
        self.driver_version = self.text("nvmlSystemGetDriverVersion")

    def close(self) -> None:
        """Close NVML. Safe to call twice."""
        if self._open:
            self._open = False
            with suppress(pynvml.NVMLError):  # already closed
                pynvml.nvmlShutdown()

    def function(self, name: str) -> CFunction:
        """The C function of that name; one that the driver lacks returns 13."""
        found: CFunction = getattr(self._library, name, _missing)
        return found

    def has(self, name: str) -> bool:
        return hasattr(self._library, name)

    def call(self, name: str, *arguments: CArgument, no_error: Collection[int] = NO_ERROR) -> int:
        """Call the C function of that name, add it to the accounts, and return NVML's code.

        Codes of ``no_error`` are no failure of the driver.
        """
        function = self.function(name)
        started_ns = perf_counter_ns()
        code = function(*arguments)
        spent_ns = perf_counter_ns() - started_ns
        self.count_call(name, spent_ns, SUCCESS if code in no_error else code)
        return code

    def count_call(self, name: str, spent_ns: int, code: int) -> None:
        self.accounts.count_call(name, spent_ns, code)

    @property
    def refusals(self) -> list[int]:
        return list(self.refused.values())

    def device_count(self) -> int:
        """Count the GPUs that NVML lists.

        Raises:
            SourceUnavailableError: NVML gives no count.
        """
        count = ctypes.c_uint()
        code = self.call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        if code != SUCCESS:
            raise unavailable(code)
        self.refused.clear()
        return min(count.value, _MAX_GPUS)

    def handle_by_index(self, index: int) -> int | None:
        """Return a GPU's handle; ``None`` for a lost GPU, for example."""
        handle, name = ctypes.c_void_p(), "nvmlDeviceGetHandleByIndex_v2"
        code = self.call(name, ctypes.c_uint(index), ctypes.byref(handle), no_error=_OF_OTHERS)
        if code == SUCCESS:
            return handle.value
        self.refused[index] = code
        return None

    def handle_by_uuid(self, uuid: str) -> int | None:
        handle, name = ctypes.c_void_p(), uuid.encode(errors="replace")
        code = self.call("nvmlDeviceGetHandleByUUID", name, ctypes.byref(handle))
        return handle.value if code == SUCCESS else None

    def uuid_at(self, index: int) -> str | None:
        handle = self.handle_by_index(index)
        return None if handle is None else self.text("nvmlDeviceGetUUID", handle)

    def memory_capacity_bytes(self, handle: int) -> int | None:
        sizes = (ctypes.c_ulonglong * 3)()  # total, free, used
        code = self.call("nvmlDeviceGetMemoryInfo", ctypes.c_void_p(handle), sizes)
        return int(sizes[0]) if code == SUCCESS else None

    def is_mig_enabled(self, handle: int) -> bool:
        """Whether the GPU is MIG-partitioned: then only its instances can be used."""
        now, later = ctypes.c_uint(), ctypes.c_uint()  # that is after a reset
        out_args = ctypes.byref(now), ctypes.byref(later)
        code = self.call("nvmlDeviceGetMigMode", ctypes.c_void_p(handle), *out_args)
        return code == SUCCESS and now.value == 1

    def mig_instances(self, handle: int) -> list[tuple[int, int]] | None:
        """Return index and handle of each compute instance; ``None``: a call failed.

        An index stays empty after its instance was destroyed.
        """
        whole, number, part = ctypes.c_void_p(handle), ctypes.c_uint(), ctypes.c_void_p()
        code = self.call("nvmlDeviceGetMaxMigDeviceCount", whole, ctypes.byref(number))
        if code != SUCCESS:
            return [] if code in PERMANENT else None
        name, parts = "nvmlDeviceGetMigDeviceHandleByIndex", []
        for index in range(min(number.value, _MAX_INSTANCES)):
            arguments = whole, ctypes.c_uint(index), ctypes.byref(part)
            code = self.call(name, *arguments, no_error=NO_INSTANCE_THERE)
            if code == SUCCESS and part.value is not None:
                parts.append((index, part.value))
            elif code not in NO_INSTANCE_THERE and code not in PERMANENT:
                return None
        return parts

    def number(self, name: str, handle: int) -> int | None:
        value = ctypes.c_uint()
        code = self.call(name, ctypes.c_void_p(handle), ctypes.byref(value))
        return value.value if code == SUCCESS else None

    def event_types(self, handle: int) -> tuple[int, int]:
        types = ctypes.c_ulonglong()
        name, gpu = "nvmlDeviceGetSupportedEventTypes", ctypes.c_void_p(handle)
        code = self.call(name, gpu, ctypes.byref(types))
        return code, types.value if code == SUCCESS else 0

    def process_name(self, pid: int) -> str | None:
        """Return NVML's name of a process, at most 128 printable characters; ``None``: no name."""
        name = self._text("nvmlSystemGetProcessName", 4096, ctypes.c_uint(pid))
        return None if name is None else name[:128]

    def text(self, name: str, handle: int | None = None) -> str | None:
        return self._text(name, 96, *([] if handle is None else [ctypes.c_void_p(handle)]))

    def _text(self, name: str, max_bytes: int, *arguments: CArgument) -> str | None:
        room = ctypes.create_string_buffer(max_bytes)
        code = self.call(name, *arguments, room, ctypes.c_uint(max_bytes))
        return _shown(room.value) if code == SUCCESS else None

    def pci_bus_id(self, handle: int) -> str | None:
        """Such as ``"00000000:3B:00.0"``."""
        # The bytes themselves: pynvml's structure decodes them, and raises on a bad one.
        room = ctypes.create_string_buffer(ctypes.sizeof(pynvml.nvmlPciInfo_t))
        if self.call("nvmlDeviceGetPciInfo_v3", ctypes.c_void_p(handle), room) != SUCCESS:
            return None
        at = pynvml.nvmlPciInfo_t.busId.offset
        return _shown(room.raw[at:].partition(b"\0")[0])


class FieldCalls:
    """The library for one field of one device: it keeps how its calls ended.

    Attributes:
        error: Function and code of the last call that failed since ``begin``; ``None``: none did.
        answered: Whether a call succeeded.
    """

    def __init__(self, library: NvmlLibrary) -> None:
        self._library = library
        self.function, self.has = library.function, library.has
        self.begin()

    def begin(self) -> None:
        self.error: tuple[str, int] | None = None
        self.answered = False

    def count_call(self, name: str, spent_ns: int, code: int) -> None:
        self._library.count_call(name, spent_ns, code)
        self.note(name, code)

    def count_error(self, name: str, code: int) -> None:
        """Count and keep an error within an answer."""
        self._library.accounts.count_error(name, code)
        self.note(name, code)

    def note(self, name: str, code: int) -> None:
        """Keep how a call ended that is already counted."""
        if code in NO_ERROR:
            self.answered = True
        elif code != NO_PERMISSION:  # such a call is not repeated, and so does not keep failing
            self.error = name, code


NvmlCalls: TypeAlias = NvmlLibrary | FieldCalls
"""What a field's calls go through."""


def _missing(*_arguments: object) -> int:
    return FUNCTION_NOT_FOUND


def _shown(raw: bytes) -> str:
    """The complete text; outlets shorten it."""
    return label_text(raw.decode("utf-8", errors="replace"), len(raw))


TEMPERATURE_V1: Final = 0x0100_000C
PROCESSES_UTILIZATION_V1: Final = 0x0100_0018
"""Version numbers of the structures below."""


class TemperatureV1(ctypes.Structure):
    """What ``nvmlDeviceGetTemperatureV`` fills; degrees Celsius."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("sensorType", ctypes.c_uint),
        ("temperature", ctypes.c_int),
    )


class ProcessUtilizationInfoV1(ctypes.Structure):
    """Use by one process, in percent; its stamp in microseconds."""

    _fields_ = (
        ("timeStamp", ctypes.c_ulonglong),
        ("pid", ctypes.c_uint),
        ("smUtil", ctypes.c_uint),
        ("memUtil", ctypes.c_uint),
        ("encUtil", ctypes.c_uint),
        ("decUtil", ctypes.c_uint),
        ("jpgUtil", ctypes.c_uint),
        ("ofaUtil", ctypes.c_uint),
    )


class ProcessesUtilizationInfoV1(ctypes.Structure):
    """Request and answer of ``nvmlDeviceGetProcessesUtilizationInfo``."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("processSamplesCount", ctypes.c_uint),
        ("lastSeenTimeStamp", ctypes.c_ulonglong),
        ("procUtilArray", ctypes.POINTER(ProcessUtilizationInfoV1)),
    )
