"""JSON that no other format knows: said in one sentence, with what is in it and what is needed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NoReturn

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.json_pieces import JsonDocuments
from gpumon.sources.logs.log_format import LogFormat
from gpumon.sources.logs.log_sample import LogFacts, LogOptions, LogSample
from gpumon.sources.logs.stamps import NO_CLOCK
from gpumon.sources.logs.utilization_cells import SkippedLines

_BEGINNING: Final = re.compile(r'\ufeff?\s*(?:\{\s*(?:["}]|$)|\[\s*(?:[{\["]|$|-?\d[\d.]*\s*,))')
_LOOKED_AT_PIECES: Final = 64
_NAMED_KEYS: Final = 8
_NEEDED: Final = (
    "gpumon reads the JSON of `gpustat --json`, of nvitop's collector, of W&B's system metrics and "
    "of Prometheus' range queries; or log with `nvidia-smi --query-gpu=timestamp,index,"
    "utilization.gpu --format=csv -l 1`"
)


class OtherJson:
    """Reads nothing: says what it found.

    Args:
        lines: The log's text; only its beginning is looked at.
        name: What to call it in sentences.
        options: Nothing in them can make it readable.
    """

    def __init__(self, lines: Iterator[str], *, name: str, options: LogOptions) -> None:
        self._name = name
        self._skipped = SkippedLines()
        self._documents = JsonDocuments(
            islice(lines, _LOOKED_AT_PIECES), name=name, skipped=self._skipped
        )

    def samples(self) -> Iterator[LogSample]:
        """There are none.

        Raises:
            UnreadableLogError: Always; says what was found and what is needed.
        """
        return self._refuse()

    def facts(self) -> LogFacts:
        """Nothing is known."""
        return LogFacts(clock=NO_CLOCK, gpus=(), skipped_lines=0, period_ns=None, notes=())

    def _refuse(self) -> NoReturn:
        _, first = next(iter(self._documents), (0, {}))
        keys = [key[:60] for key in islice(first, _NAMED_KEYS)]
        if "gpus" in first and "query_time" not in first:
            found = "has `gpus` and no `query_time`"
        elif keys:
            more = ", ..." if len(first) > len(keys) else ""
            found = f"tells {', '.join(keys)}{more}, and no utilisation of a GPU that gpumon knows"
        else:
            found = "holds no complete object"
        raise UnreadableLogError(f"{self._name}: line 1: this is JSON that {found}; {_NEEDED}")


def _mark(head: Sequence[str]) -> int | None:
    for number, line in enumerate(head, start=1):
        if line.strip():
            return number if _BEGINNING.match(line) else None
    return None


FORMAT: Final = LogFormat(
    title="Another tool's JSON", mark=_mark, reader=OtherJson, is_last_resort=True
)
"""Its title stands before that of CSV, the other last resort: JSON is never taken for a CSV."""
