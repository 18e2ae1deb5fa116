"""JSON objects with a key for each GPU: the events of a W&B run, the metrics of nvitop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.json_pieces import JsonDocuments
from gpumon.sources.logs.log_format import LogFormat, line_like
from gpumon.sources.logs.log_sample import LogFacts, LogOptions, LogSample
from gpumon.sources.logs.wide_rows import WideRows


class WideJsonLog:
    """One object a moment, whose keys say what is of which GPU. Keys may come and go.

    Args:
        lines: The log's text.
        name: What to call it in sentences.
        options: What the user said about it. ``columns`` may name keys.
    """

    def __init__(self, lines: Iterator[str], *, name: str, options: LogOptions) -> None:
        self._name = name
        self._rows = WideRows(name=name, options=options)
        self._documents = JsonDocuments(lines, name=name, skipped=self._rows.skipped)

    def samples(self) -> Iterator[LogSample]:
        """A sample of each GPU of each object.

        Raises:
            UnreadableLogError: No object says how busy a GPU was.
        """
        known: set[str] = set()
        for number, document in self._documents:
            if not known.issuperset(document):
                news = [key for key in document if key not in known]
                self._rows.learn(zip(news, news, strict=True))
                self._rows.decide_unit([document.get])
                known.update(news)
            yield from self._rows.samples(document.get, number)
        self._rows.require_gpus()
        if not self._rows.told:
            reasons = " ".join(self._rows.skipped.sentences())
            raise UnreadableLogError(f"{self._name}: no object with a utilisation. {reasons}")

    def facts(self) -> LogFacts:
        """What is known so far; complete once ``samples`` is exhausted."""
        return self._rows.facts()


FORMAT: Final = LogFormat(
    title="JSON with a key for each GPU",
    mark=line_like(
        r'"(?:[^"]+ - )?system[./]gpu\.\d+\.gpu(?:/l:[^"]+)?"\s*:'
        r'|/(?:cuda:\d+ \()?gpu:[^"/]+/gpu_utilization \(%\)(?:/\w+)?"\s*:'
    ),
    reader=WideJsonLog,
)
