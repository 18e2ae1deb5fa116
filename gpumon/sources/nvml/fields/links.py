"""How much goes over PCIe and NVLink: rates, from the driver's byte counters where it has them.

Newer drivers count the bytes of PCIe; an older one only measures them, for
20 ms a direction *inside the call*, whatever it holds meanwhile. NVLink has
counters on every driver that knows it. Not yet seen on hardware.
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
_HOPELESS: Final = PERMANENT | {INVALID_ARGUMENT}
"""An argument that is invalid now stays so: the driver does not know the field."""


class ByteCounter:
    """From a counter's readings to a rate. One that ran back tells nothing of the time between.

    Attributes:
        ran_back: Whether it was ever below its reading before.
    """

    def __init__(self, counter: NvmlCounter, refuse: Callable[[], None]) -> None:
        """Know nothing yet; ``refuse`` counts a rate that no link can have."""
        self.ran_back = False
        self._counter, self._refuse = counter, refuse
        self._last: tuple[int, int] | None = None

    def rate(self, count: int, at_ns: int) -> float | None:
        """Bytes a second since the reading before.

        Returns:
            ``None`` for the first reading, after the counter was reset or
            wrapped round, and where no link can be that fast or have carried as much.
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
        if rate > self._counter.most_bytes_per_second:
            self._refuse()
            return None
        return rate


class CounterCall(DriverCall):
    """Several counters of one GPU, asked in one call."""

    def __init__(self, calls: NvmlCalls, handle: int, counters: Sequence[NvmlCounter]) -> None:
        self._counters = counters
        # With room for one more than is asked for: NVML was seen to touch it.
        self._values = (pynvml.c_nvmlFieldValue_t * (len(counters) + 1))()
        super().__init__(
            calls,
            FIELD_VALUES.function,
            ctypes.c_void_p(handle),
            ctypes.c_int(len(counters)),
            self._values,
        )

    def ask(self) -> int:
        """Make the call; gives what it answered as a whole: of each counter, its own code tells."""
        for counter, value in self.answers():
            value.fieldId, value.scopeId = counter.field_id, counter.scope_id
        return super().ask()

    def answers(self) -> Iterator[tuple[NvmlCounter, pynvml.c_nvmlFieldValue_t]]:
        """The counters, each with its answer."""
        return zip(self._counters, self._values, strict=False)


class LinkRates:
    """The rates of one GPU's links, as far as they are wanted.

    Attributes:
        wants_window: Whether PCIe has to be measured, because no counter of
            the driver tells it.
    """

    def __init__(
        self,
        wanted: Collection[str],
        calls: FieldCalls,
        handle: int,
        monotonic_ns: Callable[[], int],
        refuse: Callable[[], None],
    ) -> None:
        """Choose the links that are wanted; no rate is known before the second reading."""
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
        """Ask for all counters in one call, which measures nothing and so waits for nothing.

        Returns:
            Bytes a second since the reading before, by their names in ``GpuDetails``.
        """
        if not self._bytes:
            return {}
        rates: dict[str, float | None] = {counter.attribute: None for counter in self._bytes}
        if self._call.ask() != SUCCESS:
            if not self._call.supported:
                self._drop(set(self._bytes))
            return rates
        at_ns, hopeless = self._monotonic_ns(), set()
        for counter, value in self._call.answers():
            rates[counter.attribute] = self._rate(counter, value, at_ns)
            if self._is_hopeless(counter, value):
                hopeless.add(counter)
            elif value.nvmlReturn not in NO_ERROR:
                self._calls.failed(FIELD_VALUES.function, value.nvmlReturn)
        dropped = {counter.attribute for counter in self._drop(hopeless)}
        return {name: rate for name, rate in rates.items() if name not in dropped}

    def _rate(
        self, counter: NvmlCounter, value: pynvml.c_nvmlFieldValue_t, at_ns: int
    ) -> float | None:
        """The rate since the reading before; ``None`` where there is none."""
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
        """Whether that answer means that this counter is not worth asking for again.

        NVML says of those of PCIe that they may wrap round, and not where; 32 bits
        would be full within a second. So they have to be wide, and one that ran
        back is not believed again: the driver can measure instead.
        """
        if value.nvmlReturn in _HOPELESS:
            return True
        if value.nvmlReturn != SUCCESS or not counter.may_wrap:
            return False
        return value.valueType not in _OF_64_BITS or self._bytes[counter].ran_back

    def _drop(self, counters: set[NvmlCounter]) -> set[NvmlCounter]:
        """Do not ask for these again; PCIe is told by counters in both directions or in none."""
        if not counters:
            return counters
        if not counters.isdisjoint(_PCIE.counters):
            counters.update(_PCIE.counters)
            self.wants_window = True
        self._bytes = {one: kept for one, kept in self._bytes.items() if one not in counters}
        self._call = CounterCall(self._calls, self._handle, list(self._bytes))
        return counters

    def measure(self) -> dict[str, Value]:
        """Let the driver measure PCIe, about 40 ms: not on two GPUs in one tick.

        Returns:
            Bytes a second, by their names in ``GpuDetails``.
        """
        rates = {attribute: window.read() for attribute, window in self._windows.items()}
        self.wants_window = any(window.supported for window in self._windows.values())
        return rates
