"""Which format a log has, by its content and never by its file name, or why it is not read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Final

from gpumon.errors import UnreadableLogError, UsageError
from gpumon.sources.logs.formats import formats
from gpumon.sources.logs.gpu_log import GpuLog
from gpumon.sources.logs.json_documents import JsonDocuments
from gpumon.sources.logs.line_prefixes import prefixes_of
from gpumon.sources.logs.log_sample import BEST_QUERY, LogOptions, Mark, line_like
from gpumon.sources.logs.log_text import head_of
from gpumon.sources.logs.stamps.log_order import LogInOrder
from gpumon.sources.logs.table.column_layout import looks_like_header, unknown_column
from gpumon.sources.logs.table.csv_cells import CellSplitter, separator_of
from gpumon.sources.logs.table.headings import column_named
from gpumon.sources.logs.table.skipped_lines import SkippedLines

_BEGINNING: Final = re.compile(
    r'\ufeff?\s*(?:\{\s*(?:["}]|$)|\[\s*(?:[{\["]|$|-?\d[\d.]*\s*,))'
)  # fmt: skip
_NAMED_KEYS: Final = 8
_NEEDED: Final = (
    "gpumon reads the JSON of `gpustat --json`, of nvitop's collector, of W&B's system metrics and "
    f"of Prometheus' range queries; or log with {BEST_QUERY}"
)
_ADVICE: Final = f"log with {BEST_QUERY} instead"
_RANGE: Final = (
    "it tells of one moment; ask Prometheus for a range, `/api/v1/query_range?query="
    "DCGM_FI_DEV_GPU_UTIL&start=...&end=...&step=1`, or " + _ADVICE
)


def _first_line_like(pattern: str) -> Mark:
    """A mark: the first line that is not blank, if ``pattern`` matches its beginning."""
    sought = re.compile(pattern, re.I)

    def mark(head: Sequence[str]) -> int | None:
        filled = next((at for at, line in enumerate(head, start=1) if line.strip()), None)
        return filled if filled is not None and sought.match(head[filled - 1]) else None

    return mark


_NOT_READ: Final = {
    "the XML of nvidia-smi -q -x": (line_like(r"<nvidia_smi_log\b"), _ADVICE),
    "a page of HTML": (
        _first_line_like(r"\ufeff?\s*<(?:!DOCTYPE html|html|head|body)\b"),
        "save what the page shows as CSV or JSON, or " + _ADVICE,
    ),
    "what an exporter serves as /metrics": (
        _first_line_like(
            r"\ufeff?# (?:HELP|TYPE) [a-z_:][\w:]* "
            r'|[a-z_:][\w:]*\{[a-z_]\w*="[^\n]*\} [-+.\dNI]'
        ),
        _RANGE,
    ),
}
"""Known by sight: how, and what to log instead, so that the sentence can say both."""
_DATED_ROW: Final = re.compile(r"\s*\d{4}[-/]\d\d?[-/]\d\d?[ T]\d\d?:\d\d:\d\d[^,;\t]{0,20}[,;\t]")


def reader_for(lines: Iterator[str], *, name: str, options: LogOptions) -> LogInOrder:
    """The reader that understands a log; only its first lines are consumed here.

    Raises:
        UnreadableLogError: A format that is known and not read, JSON of a
            kind that nobody knows, or several logs line by line.
        UsageError: ``options`` name a column that is not read by its name in such a log.
    """
    head = head_of(lines)
    if not head:
        raise UnreadableLogError(f"{name}: has no lines")
    prefixes = prefixes_of(head, lambda bare: _format_of(bare)[1], name=name)
    for prefix in prefixes:
        head, lines = list(prefix.without(iter(head))), prefix.without(lines)
    for title, (mark, advice) in _NOT_READ.items():
        number = mark(head)
        if number is not None:
            raise UnreadableLogError(
                f"{name}: line {number}: this is {title}, which gpumon does not read; {advice}"
            )
    known, _ = _format_of(head)
    if known.is_last_resort:
        _refuse_json(head, name=name)
    _refuse_unused(options, known, name)
    reader = known(chain(head, lines), name=name, options=options)
    return LogInOrder(reader, name=name, notes=[prefix.note for prefix in prefixes])


def _refuse_unused(options: LogOptions, known: type[GpuLog], name: str) -> None:
    for said in options.columns:
        column = column_named(said)
        if column is None:
            raise unknown_column(said)
        if column not in known.settable:
            read = ", ".join(one.value for one in known.settable)
            raise UsageError(
                f"--column {said}: {name} is of the format {known.title}, "
                + (f"where only {read} can be named" if read else "whose columns are known")
                + "; leave it out"
            )


def _refuse_json(head: Sequence[str], *, name: str) -> None:
    """Refuse a log that is JSON, and that no format knows: say what it holds and is needed."""
    first_line = next((line for line in head if line.strip()), "")
    if _BEGINNING.match(first_line) is None:
        return
    documents = JsonDocuments(iter(head), name=name, skipped=SkippedLines())
    _, first = next(iter(documents), (0, {}))
    keys = [key[:60] for key in islice(first, _NAMED_KEYS)]
    if "gpus" in first and "query_time" not in first:
        found = "has `gpus` and no `query_time`"
    elif keys:
        more = ", ..." if len(first) > len(keys) else ""
        found = f"tells {', '.join(keys)}{more}, and no utilisation of a GPU that gpumon knows"
    else:
        found = "holds no complete object"
    raise UnreadableLogError(f"{name}: line 1: this is JSON that {found}; {_NEEDED}")


def _format_of(head: Sequence[str]) -> tuple[type[GpuLog], int | None]:
    """The format that comes first in a log, and the number of the line that gives it away."""
    marks = [(one, one.mark(head)) for one in formats() if not one.is_last_resort]
    found = [(number, one) for one, number in marks if number is not None]
    first, known = min(found, key=lambda pair: pair[0], default=(None, None))
    # A CSV whose logger was followed by another tool is one until then.
    csv_at = _csv_line(head[: (first or len(head) + 1) - 1])
    if known is not None and csv_at is None:
        return known, first
    return next(one for one in formats() if one.is_last_resort), csv_at


def _csv_line(head: Sequence[str]) -> int | None:
    """Number of the first line that is surely of a CSV: a header above a row, or a dated row."""
    splitter = CellSplitter(separator_of(head))
    width = 0
    for number, line in enumerate(head, start=1):
        if _DATED_ROW.match(line):
            return number
        cells = splitter.split(line)
        if width and len(cells) == width and not looks_like_header(cells):
            return number - 1
        width = len(cells) if len(cells) > 1 and looks_like_header(cells) else 0
    return None
