"""The fields of GPUs that fail, in the log: each once when it begins, and once when it ends."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from gpumon.core.device import Device
from gpumon.core.field_fault import FieldFault, fault_sentence, mended_sentence
from gpumon.core.state import GpuState
from gpumon.core.units import NS_PER_S

_WELL_FOR_NS: Final = 10 * NS_PER_S
"""A fault that comes and goes is one fault: a log is no place to count it."""


class _Open:
    """A fault that was logged; ``well_since_ns``: it is not there just now."""

    def __init__(self, device: Device, fault: FieldFault) -> None:
        self.device, self.fault = device, fault
        self.well_since_ns: int | None = None


class FieldLog:
    """Logs a field of a GPU when it begins to fail, and when it has been well again for a while.

    Attributes:
        sentences: What is logged here of the faults there are, so that nobody repeats it.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._open: dict[tuple[str, str], _Open] = {}
        self.sentences: frozenset[str] = frozenset()

    def follow(self, gpus: Iterable[GpuState], now_ns: int) -> None:
        """Take what the GPUs say now; one that does not answer says nothing of its fields.

        Args:
            gpus: Each of them.
            now_ns: CLOCK_MONOTONIC.
        """
        answering = [gpu for gpu in gpus if gpu.present and gpu.latest is not None]
        failing = {
            (gpu.device.uuid, fault.field): (gpu.device, fault)
            for gpu in answering
            for fault in (gpu.latest.faults if gpu.latest else ())
        }
        if not failing and not self._open:
            return
        for key, (device, fault) in failing.items():
            told = self._open.get(key)
            if told is None:
                self._open[key] = _Open(device, fault)
                self._log.warning("%s", fault_sentence(device, fault))
            else:
                told.well_since_ns = None
        uuids = {gpu.device.uuid for gpu in answering}
        for key, told in list(self._open.items()):
            if key not in failing and key[0] in uuids:
                self._mend(key, told, now_ns)
        self.sentences = frozenset(fault_sentence(*one) for one in failing.values())

    def _mend(self, key: tuple[str, str], told: _Open, now_ns: int) -> None:
        if told.well_since_ns is None:
            told.well_since_ns = now_ns
        if now_ns - told.well_since_ns >= _WELL_FOR_NS:
            del self._open[key]
            self._log.info("%s", mended_sentence(told.device, told.fault, told.well_since_ns))
