"""JSON objects with a key for each GPU: the events of a W&B run, the metrics of nvitop."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

from gpumon.sources.logs.gpu_log import Rows
from gpumon.sources.logs.json_documents import Document, JsonDocuments
from gpumon.sources.logs.log_sample import LogOptions, line_like
from gpumon.sources.logs.table.headings import Column
from gpumon.sources.logs.wide_table import LOOKED_AT_ROWS, WideTable

_MOST_KEYS: Final = 65_536


class WideJsonLog(WideTable):
    """One object a moment, whose keys say what is of which GPU. Keys may come and go."""

    title = "JSON with a key for each GPU"
    mark = line_like(
        r'"(?:[^"]+ - )?system[./]gpu\.\d+\.gpu(?:/l:[^"]+)?"\s*:'
        r'|/(?:cuda:\d+ \()?gpu:[^"/]+/gpu_utilization \(%\)(?:/\w+)?"\s*:'
    )
    settable = (Column.UTILIZATION, Column.STAMP)
    nothing = "no object with a utilisation."

    def __init__(self, lines: Iterator[str], *, name: str, options: LogOptions) -> None:
        super().__init__(lines, name=name, options=options)
        self._known_keys: set[str] = set()

    def _read(self) -> Rows:
        in_log = JsonDocuments(self._lines, name=self._name, skipped=self._skipped)
        documents = iter(in_log)
        head = self._head(documents)
        for _, document in head:
            self._learn_keys(document)
        self._decide_unit([document.get for _, document in head])
        for number, document in chain(head, documents):
            self._learn_keys(document)
            self._decide_unit([document.get])
            yield from self._of_row(document.get, number, document.keys())
        self._broken_off = in_log.broken_off
        self._require_gpus()

    def _head(self, documents: Iterator[tuple[int, Document]]) -> list[tuple[int, Document]]:
        head: list[tuple[int, Document]] = []
        keys = 0
        for number, document in documents:
            head.append((number, document))
            keys += len(document)
            if len(head) >= LOOKED_AT_ROWS or keys >= _MOST_KEYS:
                break
        return head

    def _learn_keys(self, document: Document) -> None:
        known = self._known_keys
        if len(known) < _MOST_KEYS and not known.issuperset(document):
            news = [key for key in document if key not in known]
            self._learn(zip(news, news, strict=True))
            known.update(news)


FORMAT: Final = WideJsonLog
