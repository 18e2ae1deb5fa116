"""Transfer rates of PCIe and NVLink, from the driver's byte counters where it has them.

Newer drivers count the bytes of PCIe; older ones only measure them, for 20 ms a direction *inside
the call*, with any lock they hold. NVLink has counters on every driver that supports it. Not yet
seen on hardware.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.sources.nvml.binding import FieldCalls, NvmlCalls
from gpumon.sources.nvml.codes import INVALID_ARGUMENT, NO_ERROR, PERMANENT, SUCCESS
from gpumon.sources.nvml.fields.calls import BoardNumber, DriverCall
from gpumon.sources.nvml.fields.table import (
    FIELD_VALUES,
    LARGEST_COUNT,
    NvmlCounter,
    Value,
    field_called,
)
from gpumon.sources.nvml.pynvml_module import pynvml

_PCIE, _NVLINK = field_called("pcie"), field_called("nvlink")
_UNSIGNED_INT: Final = 1
_OF_64_BITS: Final = frozenset({2, 3, 4})
HOPELESS: Final = PERMANENT | {INVALID_ARGUMENT}
"""An invalid argument stays invalid: the driver does not know the field."""


class ByteCounter:
    """Computes a rate from a counter's readings.

    Attributes:
        ran_back: Whether the counter was ever below its last reading.
    """

    def __init__(self, counter: NvmlCounter, refuse: Callable[[], None]) -> None:
        """Start without a reading; ``refuse`` counts an impossible rate."""
        self.ran_back = False
        self._counter, self._refuse = counter, refuse
        self._last: tuple[int, int] | None = None

    def rate(self, count: int, at_ns: int) -> float | None:
        """Return bytes a second since the last reading.

        Returns:
            ``None`` for the first reading, after the counter was reset or wrapped, and where no
            link can be that fast or have carried as much.
        """
        if count > LARGEST_COUNT:
            self._refuse()
            return None
        last, self._last = self._last, (count, at_ns)
        if last is None or at_ns <= last[1]:
            return None
        if count < last[0]:
            self.ran_back = True
            return None
        rate = (count - last[0]) * self._counter.unit_bytes * NS_PER_S / (at_ns - last[1])
        if rate > self._counter.max_bytes_per_second:
            self._refuse()
            return None
        return rate


class CounterCall(DriverCall):
    """Several counters of one GPU, read in one call."""

    def __init__(self, calls: NvmlCalls, handle: int, counters: Sequence[NvmlCounter]) -> None:
        self._counters = counters
        # One more than is read: NVML was seen to touch it.
        self._values = (pynvml.c_nvmlFieldValue_t * (len(counters) + 1))()
        super().__init__(
            calls,
            FIELD_VALUES.function,
            ctypes.c_void_p(handle),
            ctypes.c_int(len(counters)),
            self._values,
        )

    def call(self) -> int:
        """Make the call; return its code. Each counter has a code of its own."""
        for counter, value in self.answers():
            value.fieldId, value.scopeId = counter.field_id, counter.scope_id
        return super().call()

    def answers(self) -> Iterator[tuple[NvmlCounter, pynvml.c_nvmlFieldValue_t]]:
        return zip(self._counters, self._values, strict=False)


class LinkRates:
    """The rates of one GPU's links that are switched on.

    Attributes:
        wants_window: Whether PCIe must be measured, because the driver does not count it.
    """

    def __init__(
        self,
        wanted: Collection[str],
        calls: FieldCalls,
        handle: int,
        monotonic_ns: Callable[[], int],
        refuse: Callable[[], None],
    ) -> None:
        """Choose the links; no rate is known before the second reading."""
        self.wants_window = False
        self._calls, self._handle = calls, handle
        self._monotonic_ns = monotonic_ns
        self._bytes = {
            counter: ByteCounter(counter, refuse)
            for field in (_PCIE, _NVLINK)
            if field.name in wanted
            for counter in field.counters
        }
        self._call = CounterCall(calls, handle, list(self._bytes))
        self._windows = {
            number.attribute: BoardNumber(number, calls, handle, refuse) for number in _PCIE.numbers
        }

    def read_counters(self) -> dict[str, float | None]:
        """Read all counters in one call, which does not block.

        Returns:
            Bytes a second since the last reading, by their names in ``GpuDetails``.
        """
        if not self._bytes:
            return {}
        rates: dict[str, float | None] = {counter.attribute: None for counter in self._bytes}
        if self._call.call() != SUCCESS:
            if not self._call.supported:
                self._drop(set(self._bytes))
            return rates
        at_ns, hopeless = self._monotonic_ns(), set()
        for counter, value in self._call.answers():
            rates[counter.attribute] = self._rate(counter, value, at_ns)
            if self._is_hopeless(counter, value):
                hopeless.add(counter)
            elif value.nvmlReturn not in NO_ERROR:
                self._calls.count_error(FIELD_VALUES.function, value.nvmlReturn)
        dropped = {counter.attribute for counter in self._drop(hopeless)}
        return {name: rate for name, rate in rates.items() if name not in dropped}

    def _rate(
        self, counter: NvmlCounter, value: pynvml.c_nvmlFieldValue_t, at_ns: int
    ) -> float | None:
        if value.nvmlReturn != SUCCESS:
            return None
        if value.valueType in _OF_64_BITS:
            count = int(value.value.ullVal)
        elif value.valueType == _UNSIGNED_INT:
            count = int(value.value.uiVal)
        else:
            return None
        return self._bytes[counter].rate(count, at_ns)

    def _is_hopeless(self, counter: NvmlCounter, value: pynvml.c_nvmlFieldValue_t) -> bool:
        """Whether that answer means that this counter is not worth reading again.

        NVML documents that counters of PCIe may wrap, and not where; 32 bits would be full within
        a second. So they must be wide, and one that ran back is not trusted again: the driver can
        measure instead.
        """
        if value.nvmlReturn in HOPELESS:
            return True
        if value.nvmlReturn != SUCCESS or not counter.may_wrap:
            return False
        return value.valueType not in _OF_64_BITS or self._bytes[counter].ran_back

    def _drop(self, counters: set[NvmlCounter]) -> set[NvmlCounter]:
        """Stop reading these; PCIe is read by counters in both directions or in none."""
        if not counters:
            return counters
        if not counters.isdisjoint(_PCIE.counters):
            counters.update(_PCIE.counters)
            self.wants_window = True
        self._bytes = {
            counter: kept for counter, kept in self._bytes.items() if counter not in counters
        }
        self._call = CounterCall(self._calls, self._handle, list(self._bytes))
        return counters

    def measure(self) -> dict[str, Value]:
        """Let the driver measure PCIe for about 40 ms: not for two GPUs in one tick.

        Returns:
            Bytes a second, by their names in ``GpuDetails``.
        """
        rates = {attribute: window.read() for attribute, window in self._windows.items()}
        self.wants_window = any(window.supported for window in self._windows.values())
        return rates
