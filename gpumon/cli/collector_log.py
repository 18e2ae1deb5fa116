"""What a daemon logs of its collectors: each trouble once, and its end once."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from gpumon.core.state import CollectorState, refusal_note
from gpumon.core.units import NS_PER_S

_WELL_FOR_NS = 10 * NS_PER_S
"""A trouble that comes and goes is one trouble: a log is no place to count it."""

_MOST_SENTENCES = 16

_QUIET_NS = 600 * NS_PER_S
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
        """Take what the collectors say now.

        Args:
            collectors: Each of them, whether it is well or not.
            now_ns: CLOCK_MONOTONIC.
            logged: Sentences that somebody else logs.
        """
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
