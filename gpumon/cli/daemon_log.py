"""What a daemon logs: each trouble once when it begins, and its end once.

A trouble that comes and goes is one trouble: a log is no place to count it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final, TypeAlias

from gpumon.core.clock import NS_PER_S
from gpumon.core.device.driver_codes import xid_sentence
from gpumon.core.device.troubles import vanished
from gpumon.core.sample import Device, FieldFault, fault_sentence, mended_sentence
from gpumon.core.state import CollectorState, GpuState, refusal_note

_MOST_SENTENCES: Final = 16
_WELL_FOR_NS: Final = 10 * NS_PER_S
"""Only what has been well for so long is over."""
_QUIET_NS: Final = 600 * NS_PER_S
"""After so long without a new one, sentences of what other people wrote are said again."""


class CollectorLog:
    """Logs a sentence when it is new, and the end of trouble when it has lasted."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._said: dict[str, list[str]] = {}
        self._well_since_ns: dict[str, int] = {}
        self._noted: dict[str, list[str]] = {}
        self._noted_ns: dict[str, int] = {}

    def follow(
        self,
        collectors: Iterable[CollectorState],
        now_ns: int,
        *,
        logged: frozenset[str] = frozenset(),
    ) -> None:
        """Take what all collectors say now, but for sentences that somebody else has logged."""
        for collector in collectors:
            if not collector.success and collector.message in logged:
                self._well_since_ns.pop(collector.name, None)
            elif not collector.success:
                self._say(collector.name, collector.message or "failed")
            else:
                if collector.name in self._said:
                    self._is_well(collector.name, now_ns)
                self._note(collector, now_ns)

    def _say(self, name: str, sentence: str) -> None:
        self._well_since_ns.pop(name, None)
        said = self._said.setdefault(name, [])
        if sentence not in said and len(said) < _MOST_SENTENCES:
            said.append(sentence)
            self._noted.setdefault(name, []).append(sentence)
            self._log.warning("%s: %s", name, sentence)

    def _note(self, collector: CollectorState, now_ns: int) -> None:
        """What other people wrote and nobody can read is no failure, but their sentence is said."""
        if refusal_note(collector) is None:
            return
        noted = self._noted.setdefault(collector.name, [])
        sentence = collector.message or ""
        if sentence in noted:
            return
        if now_ns - self._noted_ns.get(collector.name, now_ns) >= _QUIET_NS:
            noted.clear()
        self._noted_ns[collector.name] = now_ns
        if len(noted) < _MOST_SENTENCES:
            noted.append(sentence)
            self._log.warning("%s: %s", collector.name, sentence)

    def _is_well(self, name: str, now_ns: int) -> None:
        if now_ns - self._well_since_ns.setdefault(name, now_ns) >= _WELL_FOR_NS:
            del self._said[name], self._well_since_ns[name]
            self._log.info("%s: well again", name)


class XidLog:
    """Logs an XID of a GPU when it is the first of its kind there, and a GPU that vanished.

    One that vanishes again and again is logged once, and its return once it has lasted.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._said: set[tuple[str, int]] = set()
        self._listed_since_ns: dict[str, int | None] = {}  # of those that vanished; None: not yet

    def follow(self, gpus: Iterable[GpuState], now_ns: int) -> None:
        """Take the errors that the GPUs had up to now, and who is listed."""
        for gpu in gpus:
            uuid = gpu.device.uuid
            if not gpu.listed:
                self._is_away(gpu)
            elif uuid in self._listed_since_ns:
                self._is_back(gpu, now_ns)
            for xid, _ in gpu.xid_errors:
                if (uuid, xid) not in self._said:
                    self._said.add((uuid, xid))
                    self._log.warning("GPU %s (%s): %s", gpu.device.label, uuid, xid_sentence(xid))

    def _is_away(self, gpu: GpuState) -> None:
        uuid, label = gpu.device.uuid, gpu.device.label
        if gpu.device.parent_uuid is not None:  # instances come and go all day long
            return
        if uuid not in self._listed_since_ns:
            trouble = vanished()
            self._log.warning(
                "GPU %s (%s) %s. What to do: %s.", label, uuid, trouble.text, trouble.advice
            )
        self._listed_since_ns[uuid] = None

    def _is_back(self, gpu: GpuState, now_ns: int) -> None:
        uuid = gpu.device.uuid
        since_ns = self._listed_since_ns[uuid]
        if since_ns is None:
            self._listed_since_ns[uuid] = now_ns
        elif now_ns - since_ns >= _WELL_FOR_NS:
            del self._listed_since_ns[uuid]
            self._log.info("GPU %s (%s) is listed again", gpu.device.label, uuid)


_FieldKey: TypeAlias = tuple[str, str]
"""The UUID of a GPU, and one of its fields."""


class FieldLog:
    """Logs a field of a GPU when it begins to fail, and when it has been well again for a while.

    Attributes:
        sentences: What is logged here of the faults there are, so that nobody repeats it.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._faults: dict[_FieldKey, tuple[Device, FieldFault]] = {}
        self._well_since_ns: dict[_FieldKey, int] = {}
        self.sentences: frozenset[str] = frozenset()

    def follow(self, gpus: Iterable[GpuState], now_ns: int) -> None:
        """Take what the GPUs say now; one that does not answer says nothing of its fields."""
        failing: dict[_FieldKey, tuple[Device, FieldFault]] = {}
        answering, known = set(), set()
        for gpu in gpus:
            known.add(gpu.device.uuid)
            if gpu.present and gpu.latest is not None:
                answering.add(gpu.device.uuid)
                for fault in gpu.latest.faults:
                    failing[gpu.device.uuid, fault.field] = gpu.device, fault
        for key, (device, fault) in failing.items():
            self._well_since_ns.pop(key, None)
            if key not in self._faults:
                self._faults[key] = device, fault
                self._log.warning("%s", fault_sentence(device, fault))
        for key in [*self._faults]:
            if key[0] not in known:  # instances are made anew all day long
                del self._faults[key]
                self._well_since_ns.pop(key, None)
            elif key not in failing and key[0] in answering:
                since_ns = self._well_since_ns.setdefault(key, now_ns)
                if now_ns - since_ns >= _WELL_FOR_NS:
                    del self._well_since_ns[key]
                    self._log.info("%s", mended_sentence(*self._faults.pop(key), since_ns))
        self.sentences = frozenset(fault_sentence(*one) for one in failing.values())
