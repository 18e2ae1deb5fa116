"""What a daemon logs: each trouble when it starts, and its end.

A trouble that comes and goes is logged as one.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable
from typing import Final, Generic, TypeAlias, TypeVar

from gpumon.core.clock import NS_PER_S, seconds
from gpumon.core.device.driver_codes import xid_sentence
from gpumon.core.device.troubles import vanished
from gpumon.core.sample import Device, FieldFault, fault_sentence, recovery_sentence
from gpumon.core.state import CollectorState, GpuState, MonitorState, refusal_note
from gpumon.core.wording import plainly
from gpumon.sources.nvml.fields.table import BUDGET

_MAX_MESSAGES: Final = 16
_STABLE_NS: Final = 10 * NS_PER_S
"""A trouble is over after this long without it."""
_QUIET_NS: Final = 600 * NS_PER_S
"""After this long without a new one, messages on users' files may be logged again."""
_PRICED_AFTER_S: Final = 60.0
_DEAREST: Final = 4
_Key = TypeVar("_Key", bound=Hashable)


class _Recovery(Generic[_Key]):
    """Since when each trouble has been absent."""

    def __init__(self) -> None:
        self._since_ns: dict[_Key, int] = {}

    def mark_present(self, key: _Key) -> None:
        self._since_ns.pop(key, None)

    def note_absent(self, key: _Key, now_ns: int) -> int | None:
        """Record an absence; return when the trouble ended; ``None``: it may come back."""
        since_ns = self._since_ns.setdefault(key, now_ns)
        if now_ns - since_ns < _STABLE_NS:
            return None
        return self._since_ns.pop(key)


class CollectorLog:
    """Logs new messages of collectors, and the end of their failures."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._failures: dict[str, list[str]] = {}
        self._recovery = _Recovery[str]()
        self._logged: dict[str, list[str]] = {}
        self._last_note_ns: dict[str, int] = {}

    def follow(
        self,
        collectors: Iterable[CollectorState],
        now_ns: int,
        *,
        logged: frozenset[str] = frozenset(),
    ) -> None:
        """Log new messages, except those that another log has ``logged``."""
        for collector in collectors:
            if not collector.success and collector.message in logged:
                self._recovery.mark_present(collector.name)
            elif not collector.success:
                self._failed(collector.name, collector.message or "failed")
            else:
                name = collector.name
                if name in self._failures and self._recovery.note_absent(name, now_ns) is not None:
                    del self._failures[name]
                    self._log.info("%s: works again", name)
                self._note(collector, now_ns)

    def _failed(self, name: str, message: str) -> None:
        self._recovery.mark_present(name)
        failures = self._failures.setdefault(name, [])
        if message not in failures and len(failures) < _MAX_MESSAGES:
            failures.append(message)
            self._logged.setdefault(name, []).append(message)
            self._log.warning("%s: %s", name, message)

    def _note(self, collector: CollectorState, now_ns: int) -> None:
        """Log a user's file that cannot be read, which is no failure of the collector."""
        if refusal_note(collector) is None:
            return
        logged = self._logged.setdefault(collector.name, [])
        message = collector.message or ""
        if message in logged:
            return
        if now_ns - self._last_note_ns.get(collector.name, now_ns) >= _QUIET_NS:
            logged.clear()
        self._last_note_ns[collector.name] = now_ns
        if len(logged) < _MAX_MESSAGES:
            logged.append(message)
            self._log.warning("%s: %s", collector.name, message)


class XidLog:
    """Logs the first error of each XID of a GPU, and GPUs that vanish and return.

    A GPU that vanishes again and again is logged once.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._logged: set[tuple[str, int]] = set()
        self._vanished: set[str] = set()
        self._recovery = _Recovery[str]()

    def follow(self, gpus: Iterable[GpuState], now_ns: int) -> None:
        """Log new XIDs, and GPUs that are no longer or again listed."""
        for gpu in gpus:
            uuid, label = gpu.device.uuid, gpu.device.label
            # Schedulers create and destroy instances.
            if not gpu.listed and gpu.device.parent_uuid is None:
                self._recovery.mark_present(uuid)
                if uuid not in self._vanished:
                    self._vanished.add(uuid)
                    trouble = vanished()
                    self._log.warning(
                        "GPU %s (%s) %s. What to do: %s.", label, uuid, trouble.text, trouble.advice
                    )
            elif uuid in self._vanished and self._recovery.note_absent(uuid, now_ns) is not None:
                self._vanished.remove(uuid)
                self._log.info("GPU %s (%s) is listed again", label, uuid)
            for xid, _ in gpu.xid_errors:
                if (uuid, xid) not in self._logged:
                    self._logged.add((uuid, xid))
                    self._log.warning("GPU %s (%s): %s", label, uuid, xid_sentence(xid))


class PriceLog:
    """Logs once what reading the driver costs on this machine, after a minute of it."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._first: MonitorState | None = None
        self._is_logged = False

    def follow(self, state: MonitorState) -> None:
        """Log the price, if the minute is over."""
        if self._is_logged or not state.call_seconds:
            return
        if self._first is None:
            self._first = state
        elapsed_s = seconds(state.taken_at_ns - self._first.taken_at_ns)
        if elapsed_s < _PRICED_AFTER_S:
            return
        self._is_logged = True
        before = dict(self._first.call_seconds)
        shares = {
            function: (spent_s - before.get(function, 0.0)) / elapsed_s
            for function, spent_s in state.call_seconds
        }
        self._first = None
        share = sum(shares.values())
        dearest = sorted(shares, key=shares.__getitem__, reverse=True)[:_DEAREST]
        calls = ", ".join(f"{name} {plainly(1000 * shares[name], 2)}" for name in dearest)
        price = f"reading the driver takes {plainly(1000 * share, 2)} ms of each second ({calls})"
        if share <= BUDGET:
            self._log.info("%s", price)
        else:
            self._log.warning(
                "%s: more than %g ms; `gpumon doctor` names the field to switch off",
                price,
                1000 * BUDGET,
            )


_FieldKey: TypeAlias = tuple[str, str]
"""UUID of a GPU and name of a field."""


class FieldLog:
    """Logs fields of GPUs that start to fail or work again.

    Attributes:
        sentences: Messages on the present faults, which no other log should repeat.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._faults: dict[_FieldKey, tuple[Device, FieldFault]] = {}
        self._recovery = _Recovery[_FieldKey]()
        self.sentences: frozenset[str] = frozenset()

    def follow(self, gpus: Iterable[GpuState], now_ns: int) -> None:
        """Log changes. The fields of a GPU that does not answer are unknown."""
        failing: dict[_FieldKey, tuple[Device, FieldFault]] = {}
        answering, known = set(), set()
        for gpu in gpus:
            known.add(gpu.device.uuid)
            if gpu.present and gpu.latest is not None:
                answering.add(gpu.device.uuid)
                for fault in gpu.latest.faults:
                    failing[gpu.device.uuid, fault.field] = gpu.device, fault
        for key, (device, fault) in failing.items():
            self._recovery.mark_present(key)
            if key not in self._faults:
                self._faults[key] = device, fault
                self._log.warning("%s", fault_sentence(device, fault))
        for key in [*self._faults]:
            if key[0] not in known:  # a destroyed instance
                del self._faults[key]
                self._recovery.mark_present(key)
            elif key not in failing and key[0] in answering:
                ended_ns = self._recovery.note_absent(key, now_ns)
                if ended_ns is not None:
                    self._log.info("%s", recovery_sentence(*self._faults.pop(key), ended_ns))
        self.sentences = frozenset(fault_sentence(*fault) for fault in failing.values())
