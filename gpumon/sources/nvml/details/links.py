"""How much goes over PCIe and NVLink: rates, from the driver's byte counters where it has them.

Newer drivers count the bytes of PCIe; an older one only measures them, for
20 ms a direction *inside the call*, whatever it holds meanwhile. NVLink has
counters on every driver that knows it. Not yet seen on hardware; that the
measured rate is in KiB a second, NVML calling it KB, is assumed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Final, NamedTuple

import pynvml

from gpumon.core.clock import NS_PER_S
from gpumon.sources.nvml.binding import PCIE_COUNT_RX_BYTES, PCIE_COUNT_TX_BYTES, FieldCalls
from gpumon.sources.nvml.codes import NO_ERROR, PERMANENT, SUCCESS
from gpumon.sources.nvml.details.fields import Field, NumberField, NvmlOptions

_ALL_LINKS: Final = 0xFFFF_FFFF
_BYTES_PER_KIBIBYTE: Final = 1024
_MOST_BYTES_PER_SECOND: Final = 10**12
"""Of PCIe in one direction: version 7 with 16 lanes moves a quarter of it."""
_MOST_BYTES_PER_SECOND_OF_NVLINK: Final = 10**13
_UNSIGNED_INT: Final = 1
_OF_64_BITS: Final = frozenset({2, 3, 4})
_LARGEST_COUNT: Final = 1 << 63
_HOPELESS: Final = PERMANENT | {2}
"""An argument that is invalid now stays so: the driver does not know the field."""


class ByteCounter:
    """From a counter's readings to a rate. One that ran back tells nothing of the time between.

    Attributes:
        rejected: Rates refused, because no link is that fast.
        ran_back: Whether it was ever below its reading before.
    """

    def __init__(self, *, unit_bytes: int, most_bytes_per_second: float) -> None:
        self.rejected = 0
        self.ran_back = False
        self._unit_bytes, self._most = unit_bytes, most_bytes_per_second
        self._last: tuple[int, int] | None = None

    def rate(self, count: int, at_ns: int) -> float | None:
        """Bytes a second since the reading before.

        Args:
            count: What the counter says, in its unit.
            at_ns: CLOCK_MONOTONIC of the reading.

        Returns:
            ``None`` for the first reading, after the counter was reset or
            wrapped round, and where no link can be that fast.
        """
        last, self._last = self._last, (count, at_ns)
        if last is None or at_ns <= last[1]:
            return None
        if count < last[0]:
            self.ran_back = True
            return None
        rate = (count - last[0]) * self._unit_bytes * NS_PER_S / (at_ns - last[1])
        if rate > self._most:
            self.rejected += 1
            return None
        return rate


class _Counter(NamedTuple):
    """One counter among NVML's field values.

    Attributes:
        told_as: What it tells, by its name in ``GpuDetails``.
        field_id: NVML's number of it.
        scope_id: Of which links.
        bytes: Its readings.
    """

    told_as: str
    field_id: int
    scope_id: int
    bytes: ByteCounter

    def take(self, value: pynvml.c_nvmlFieldValue_t, at_ns: int) -> float | None:
        """The rate since the reading before; ``None`` where there is none."""
        if value.nvmlReturn != SUCCESS:
            return None
        if value.valueType in _OF_64_BITS:
            count = int(value.value.ullVal)
            return self.bytes.rate(count, at_ns) if count < _LARGEST_COUNT else None
        if value.valueType == _UNSIGNED_INT:
            return self.bytes.rate(int(value.value.uiVal), at_ns)
        return None


_TOLD_OF_PCIE: Final = (
    "pcie_transmitted_bytes_per_second",
    "pcie_received_bytes_per_second",
)
_TOLD_OF_NVLINK: Final = (
    "nvlink_transmitted_bytes_per_second",
    "nvlink_received_bytes_per_second",
)
_FIELDS_OF_PCIE: Final = (
    PCIE_COUNT_TX_BYTES,
    PCIE_COUNT_RX_BYTES,
)
_FIELDS_OF_NVLINK: Final = (
    pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
    pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX,
)


def _counters_of_pcie() -> list[_Counter]:
    return [
        _Counter(told_as, field_id, 0, _counter(1, _MOST_BYTES_PER_SECOND))
        for told_as, field_id in zip(_TOLD_OF_PCIE, _FIELDS_OF_PCIE, strict=True)
    ]


def _counters_of_nvlink() -> list[_Counter]:
    unit, most = _BYTES_PER_KIBIBYTE, _MOST_BYTES_PER_SECOND_OF_NVLINK
    return [
        _Counter(told_as, field_id, _ALL_LINKS, _counter(unit, most))
        for told_as, field_id in zip(_TOLD_OF_NVLINK, _FIELDS_OF_NVLINK, strict=True)
    ]


def _counter(unit_bytes: int, most_bytes_per_second: float) -> ByteCounter:
    return ByteCounter(unit_bytes=unit_bytes, most_bytes_per_second=most_bytes_per_second)


class LinkRates:
    """The rates of one GPU's links, as far as they are wanted.

    Attributes:
        rejected: Values refused so far, because no link can have meant them.
        wants_window: Whether PCIe has to be measured, because no counter of
            the driver tells it.
    """

    def __init__(self, options: NvmlOptions, monotonic_ns: Callable[[], int]) -> None:
        """Choose the links; ``bind`` comes next.

        Args:
            options: Which fields are read.
            monotonic_ns: Tells the time.
        """
        self.rejected = 0
        self.wants_window = False
        self._wanted, self._monotonic_ns = options.fields, monotonic_ns

    def bind(self, calls: FieldCalls, handle: int) -> None:
        """Ask this handle through these calls; no rate is known before the second reading.

        Args:
            calls: Of the driver.
            handle: Which GPU.
        """
        self.wants_window = False
        self._calls, self._handle = calls, handle
        self._counters = [
            *(_counters_of_pcie() if "pcie" in self._wanted else ()),
            *(_counters_of_nvlink() if "nvlink" in self._wanted else ()),
        ]
        self._windows = [
            NumberField(calls, "nvmlDeviceGetPcieThroughput", handle, kind=direction)
            for direction in (pynvml.NVML_PCIE_UTIL_TX_BYTES, pynvml.NVML_PCIE_UTIL_RX_BYTES)
        ]
        self._bind_counters()

    def _bind_counters(self) -> None:
        """One call for all counters, with room for one more: NVML was seen to touch it."""
        count = len(self._counters)
        self._values = (pynvml.c_nvmlFieldValue_t * (count + 1))()
        self._call = Field(
            self._calls,
            "nvmlDeviceGetFieldValues",
            (ctypes.c_void_p, self._handle),
            (ctypes.c_int, count),
            (ctypes.c_void_p, ctypes.addressof(self._values)),
        )

    def read_counters(self) -> dict[str, float | None]:
        """Ask for all counters in one call, which measures nothing and so waits for nothing.

        Returns:
            Bytes a second since the reading before, by their names in ``GpuDetails``.
        """
        if not self._counters:
            return {}
        asked = list(zip(self._values, self._counters, strict=False))
        for value, counter in asked:
            value.fieldId, value.scopeId = counter.field_id, counter.scope_id
        answered = self._call.ask()
        at_ns = self._monotonic_ns()
        if answered:
            rates: dict[str, float | None] = {}
            for value, counter in asked:
                if value.nvmlReturn not in NO_ERROR and not _is_hopeless(value, counter):
                    self._calls.failed("nvmlDeviceGetFieldValues", value.nvmlReturn)
                refused = counter.bytes.rejected
                rates[counter.told_as] = counter.take(value, at_ns)
                self.rejected += counter.bytes.rejected - refused
            dropped = self._drop({c.told_as for value, c in asked if _is_hopeless(value, c)})
            return {name: rate for name, rate in rates.items() if name not in dropped}
        names = {counter.told_as for counter in self._counters}
        if not self._call.supported:
            self._drop(names)
        return dict.fromkeys(names)

    def _drop(self, names: set[str]) -> set[str]:
        """Do not ask for these again; PCIe is told by counters in both directions or in none."""
        if not names:
            return names
        if not names.isdisjoint(_TOLD_OF_PCIE):
            names.update(_TOLD_OF_PCIE)
            self.wants_window = True
        self._counters = [counter for counter in self._counters if counter.told_as not in names]
        self._bind_counters()
        return names

    def measure(self) -> dict[str, float | None]:
        """Let the driver measure PCIe, about 40 ms: not on two GPUs in one tick.

        Returns:
            Bytes a second, by their names in ``GpuDetails``.
        """
        rates: dict[str, float | None] = {}
        for told_as, window in zip(_TOLD_OF_PCIE, self._windows, strict=True):
            kibibytes = window.read()
            rate = None if kibibytes is None else float(kibibytes * _BYTES_PER_KIBIBYTE)
            if rate is not None and rate > _MOST_BYTES_PER_SECOND:
                self.rejected, rate = self.rejected + 1, None
            rates[told_as] = rate
        self.wants_window = any(window.supported for window in self._windows)
        return rates


def _is_hopeless(value: pynvml.c_nvmlFieldValue_t, counter: _Counter) -> bool:
    """Whether that answer means that this counter is not worth asking for again.

    NVML says of those of PCIe that they may wrap round, and not where; 32 bits
    would be full within a second. So they have to be wide, and one that ran
    back is not believed again: the driver can measure instead.
    """
    if value.nvmlReturn in _HOPELESS:
        return True
    if value.nvmlReturn != SUCCESS or counter.told_as not in _TOLD_OF_PCIE:
        return False
    return value.valueType not in _OF_64_BITS or counter.bytes.ran_back
