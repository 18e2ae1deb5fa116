"""JSON objects with a key for each GPU: the events of a W&B run, the metrics of nvitop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Final

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.json_pieces import Document, JsonDocuments
from gpumon.sources.logs.log_sample import LogFacts, LogFormat, LogOptions, LogSample, line_like
from gpumon.sources.logs.table.column_names import Column
from gpumon.sources.logs.table.wide_rows import WideRows

_LOOKED_AT: Final = 512
"""Objects from which it is decided whether utilisation without a unit is percent."""
_MOST_KEYS: Final = 65_536


class WideJsonLog:
    """One object a moment, whose keys say what is of which GPU. Keys may come and go.

    Args:
        lines: The log's text.
        name: What to call it in sentences.
        options: What the user said about it. ``columns`` may name keys.
    """

    def __init__(self, lines: Iterator[str], *, name: str, options: LogOptions) -> None:
        self._name = name
        self._known: set[str] = set()
        self._rows = WideRows(name=name, options=options)
        self._documents = JsonDocuments(lines, name=name, skipped=self._rows.skipped)

    def samples(self) -> Iterator[LogSample]:
        """A sample of each GPU of each object.

        Raises:
            UnreadableLogError: No object says how busy a GPU was.
        """
        documents = iter(self._documents)
        head = self._head(documents)
        for _, document in head:
            self._learn(document)
        self._rows.decide_unit([document.get for _, document in head])
        for number, document in chain(head, documents):
            self._learn(document)
            self._rows.decide_unit([document.get])
            yield from self._rows.samples(document.get, number, document.keys())
        self._rows.require_gpus()
        self._rows.settle_unit()
        if not self._rows.told:
            reasons = " ".join(self._rows.skipped.sentences())
            raise UnreadableLogError(f"{self._name}: no object with a utilisation. {reasons}")

    def _head(self, documents: Iterator[tuple[int, Document]]) -> list[tuple[int, Document]]:
        """The first objects, few enough to be held."""
        head: list[tuple[int, Document]] = []
        keys = 0
        for number, document in documents:
            head.append((number, document))
            keys += len(document)
            if len(head) >= _LOOKED_AT or keys >= _MOST_KEYS:
                break
        return head

    def _learn(self, document: Document) -> None:
        known = self._known
        if len(known) < _MOST_KEYS and not known.issuperset(document):
            news = [key for key in document if key not in known]
            self._rows.learn(zip(news, news, strict=True))
            known.update(news)

    def facts(self) -> LogFacts:
        """What is known so far; complete once ``samples`` is exhausted."""
        return replace(self._rows.facts(), broken_off=self._documents.broken_off)


FORMAT: Final = LogFormat(
    title="JSON with a key for each GPU",
    mark=line_like(
        r'"(?:[^"]+ - )?system[./]gpu\.\d+\.gpu(?:/l:[^"]+)?"\s*:'
        r'|/(?:cuda:\d+ \()?gpu:[^"/]+/gpu_utilization \(%\)(?:/\w+)?"\s*:'
    ),
    reader=WideJsonLog,
    settable=(Column.UTILIZATION, Column.STAMP),
)
