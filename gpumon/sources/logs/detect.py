"""Which format a log has, by its content and never by its file name, or why it is not read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Final

from gpumon.errors import UnreadableLogError, UsageError
from gpumon.sources.logs.driver_errors import DriverErrors
from gpumon.sources.logs.formats import formats
from gpumon.sources.logs.gpu_log import GpuLog
from gpumon.sources.logs.json_documents import JsonDocuments
from gpumon.sources.logs.line_prefixes import prefix_of
from gpumon.sources.logs.log_sample import BEST_QUERY, LogOptions
from gpumon.sources.logs.log_text import head_of
from gpumon.sources.logs.not_read import refuse_what_is_not_read
from gpumon.sources.logs.stamps.log_order import LogInOrder
from gpumon.sources.logs.table.column_layout import looks_like_header, unknown_column
from gpumon.sources.logs.table.columns import Column
from gpumon.sources.logs.table.csv_cells import BARS, CellSplitter, separator_of
from gpumon.sources.logs.table.headings import column_named, told_columns
from gpumon.sources.logs.table.skipped_lines import SkippedLines

_BEGINNING: Final = re.compile(
    r'\ufeff?\s*(?:\{\s*(?:["}]|$)|\[\s*(?:[{\["]|$|-?\d[\d.]*\s*,))'
)  # fmt: skip
_NAMED_KEYS: Final = 8
_NEEDED: Final = (
    "gpumon reads the JSON of `gpustat --json`, of nvitop's collector, of W&B's system metrics and "
    f"of Prometheus' range queries; or log with {BEST_QUERY}"
)
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
    prefix = prefix_of(head, lambda bare: _format_of(bare)[1], name=name)
    if prefix is not None:
        head, lines = list(prefix.without(iter(head))), prefix.without(lines)
    known, number = _format_of(head)
    refuse_what_is_not_read(head, name, before=number)
    errors, passed = DriverErrors(), 0
    if errors.are_all(head):
        head, passed = errors.pass_over(lines, len(head))
        if not head:
            raise UnreadableLogError(f"{name}: {errors.sentence()}")
    known, _ = _format_of(head)
    if known.yields_to_csv and Column.UTILIZATION in told_columns(options.columns):
        known = _last_resort()
    if known.is_last_resort:
        _refuse_json(head, name=name)
    _refuse_unused(options, known, name)
    reader = known(chain(head, lines), name=name, options=options)
    reader.begin_after(errors, passed)
    return LogInOrder(reader, name=name, notes=[] if prefix is None else [prefix.note])


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
    before = head[: (first or len(head) + 1) - 1]
    is_table = known is not None and separator_of(before) == BARS  # of nvidia-smi, cut off
    csv_at = None if is_table else _csv_line(before)
    if known is not None and csv_at is None:
        return known, first
    return _last_resort(), csv_at


def _last_resort() -> type[GpuLog]:
    return next(one for one in formats() if one.is_last_resort)


def _csv_line(head: Sequence[str]) -> int | None:
    """Number of the first line that is surely of a CSV: a header above a row, or a dated row."""
    splitter = CellSplitter(separator_of(head))
    width = 0
    for number, line in enumerate(head, start=1):
        if _DATED_ROW.match(line):
            return number
        cells = splitter.split(line)
        if not any(cell.strip() for cell in cells):
            continue
        if width and len(cells) == width and not looks_like_header(cells):
            return number - 1
        width = len(cells) if len(cells) > 1 and looks_like_header(cells) else 0
    return None
