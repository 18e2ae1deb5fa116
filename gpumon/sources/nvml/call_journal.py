"""NVML that keeps what each call answered and how long it took, for each GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any

from gpumon.core.clock import seconds
from gpumon.sources.nvml.binding import CallAccounts, CFunction, NvmlLibrary
from gpumon.sources.nvml.codes import SUCCESS
from gpumon.sources.nvml.events import WAITS
from gpumon.sources.nvml.fields.table import FIELD_VALUES

BeforeCall = Callable[[str], None]
"""Receives the name of each call, and the GPU it is for, before it is made."""


@dataclass(slots=True)
class CallRecord:
    """The calls of one function for one GPU.

    Attributes:
        code: NVML's code of the last one.
        durations_us: How long each took, in microseconds.
    """

    code: int = SUCCESS
    durations_us: list[float] = field(default_factory=list)


class JournalLibrary(NvmlLibrary):
    """NVML with a record of all calls.

    Attributes:
        init_s: How long it took to open, in seconds.
    """

    def __init__(self, accounts: CallAccounts, before_call: BeforeCall = lambda what: None) -> None:
        self._records: dict[tuple[int | None, str], CallRecord] = {}
        self._index_of: dict[int, int] = {}
        self._before_call = before_call
        before_call("nvmlInit")
        started_ns = perf_counter_ns()
        super().__init__(accounts)
        self.init_s = seconds(perf_counter_ns() - started_ns)

    def handle_by_index(self, index: int) -> int | None:
        handle = super().handle_by_index(index)
        if handle is not None:
            self._index_of[handle] = index
        return handle

    def record(self, handle: int | None, function: str) -> CallRecord | None:
        """The calls for that GPU; of a function that is called for all at once, those for all."""
        return self._records.get((handle, function)) or self._records.get((None, function))

    def function(self, name: str) -> CFunction:
        call, is_wait = super().function(name), name in WAITS

        def recorded(*arguments: Any) -> int:  # noqa: ANN401 (what ctypes accepts)
            handle = _handle_in(arguments) if arguments else None
            index = self._index_of.get(handle or 0)
            if not is_wait:
                self._before_call(name if index is None else f"GPU {index}: {name}")
            started_ns = perf_counter_ns()
            code = call(*arguments)
            took_us = (perf_counter_ns() - started_ns) / 1000
            record = self._records.setdefault((None if is_wait else handle, name), CallRecord())
            record.code = code
            if not is_wait:  # a waiting call holds no lock of the driver: its time is no cost
                record.durations_us.append(took_us)
            if name == FIELD_VALUES.function and code == SUCCESS:
                _, count, values, *_ = arguments
                codes = [values[at].nvmlReturn for at in range(count.value)]
                record.code = next(filter(None, codes), SUCCESS)
            return code

        return recorded


def _handle_in(arguments: tuple[Any, ...]) -> int | None:
    """The GPU that a call is for, where its first argument names one."""
    first = arguments[0]
    return first.value if isinstance(first, ctypes.c_void_p) else None
