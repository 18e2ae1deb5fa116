"""The clock of a CSV log: its stamp, in one column or in two."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.stamps.stamp_parsers import StampParser, parser_among
from gpumon.sources.logs.table.column_names import Column
from gpumon.sources.logs.table.columns import ColumnLayout


def stamp_text(cells: Sequence[str], layout: ColumnLayout) -> str:
    """What a row says of its time, a date in a column of its own included."""
    text = cells[layout.positions[Column.STAMP]].strip()
    if Column.DATE in layout.positions:
        return f"{cells[layout.positions[Column.DATE]].strip()} {text}"
    return text


def stamp_parser_of(
    layout: ColumnLayout, body: Sequence[Sequence[str]], name: str
) -> StampParser | None:
    """The parser for a log's stamps; ``None`` where it has none.

    Args:
        layout: Where to look.
        body: The first rows.
        name: What to call the log, and the line of the first of them, in sentences.

    Raises:
        UnreadableLogError: They have no form gpumon knows.
    """
    if Column.STAMP not in layout.positions:
        return None
    texts = [stamp_text(row, layout) for row in body]
    parser = parser_among(texts, layout.stamp_unit_ns, is_elapsed=layout.is_elapsed)
    if parser is not None:
        return parser
    raise UnreadableLogError(
        f"{name}: the time {texts[0][:40]!r} has no form gpumon knows; it reads "
        "2025/06/13 00:27:52.195, ISO 8601, other usual dates, times of day, and numbers since the "
        "epoch or since the start"
    )
