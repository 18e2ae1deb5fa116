"""JSON objects with a key for each GPU: the events of a W&B run, the metrics of nvitop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpumon.sources.logs.gpu_log import Rows
from gpumon.sources.logs.json_documents import Document, JsonDocuments
from gpumon.sources.logs.log_sample import LogOptions, line_like
from gpumon.sources.logs.table.columns import Column
from gpumon.sources.logs.wide_table import WideRow, WideTable

_MOST_KEYS: Final = 65_536


class WideJsonLog(WideTable):
    """One object a moment, whose keys say what is of which GPU. Keys may come and go."""

    title = "JSON with a key for each GPU"
    mark = line_like(
        r'"(?:[^"]+ - )?system[./]gpu\.\d+\.gpu(?:/l:[^"]+)?"\s*:'
        r'|/(?:cuda:\d+ \()?gpu:[^"/]+/gpu_utilization \(%\)(?:/\w+)?"\s*:'
    )
    settable = (Column.STAMP,)
    nothing = "no object with a utilisation."

    def __init__(self, lines: Iterator[str], *, name: str, options: LogOptions) -> None:
        super().__init__(lines, name=name, options=options)
        self._known_keys: set[str] = set()

    def _read(self) -> Rows:
        documents = JsonDocuments(self._lines, name=self._name, skipped=self._skipped)
        yield from self._of_rows(self._rows_of(documents))
        self._broken_off = documents.broken_off
        self._lost_rows += documents.left_out * len(self._columns)

    def _rows_of(self, documents: JsonDocuments) -> Iterator[WideRow]:
        for number, document in documents:
            row = {key: one for key, one in document.items() if not isinstance(one, (dict, list))}
            self._learn_keys(row)
            yield number, row.get, row.keys()

    def _learn_keys(self, document: Document) -> None:
        known = self._known_keys
        if len(known) < _MOST_KEYS and not known.issuperset(document):
            news = [key for key in document if key not in known]
            self._learn(zip(news, news, strict=True))
            known.update(news)


FORMAT: Final = WideJsonLog
