"""Reads a CSV: the cells of a line; header, columns, units and times from the first lines."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.log_sample import BEST_QUERY, LogOptions
from gpumon.sources.logs.stamps.stamp_parsers import StampParser, parser_among
from gpumon.sources.logs.table.cell_values import GuessedUnit
from gpumon.sources.logs.table.column_layout import (
    ColumnLayout,
    identifying_position,
    layout_of_header,
    looks_like_header,
    names_columns,
    stamp_text,
)
from gpumon.sources.logs.table.column_names import Column
from gpumon.sources.logs.table.guessed_layout import (
    are_shares,
    column_of_dates,
    guess_layout,
)
from gpumon.sources.logs.table.headings import (
    chosen_unit_is_percent,
    column_named,
    columns_by_meaning,
)

_SEPARATORS: Final = "\t;,"
_QUOTED: Final = re.compile(r'"[^"]*"')
_VALUES_BETWEEN_BLANKS: Final = re.compile(r"\d\S*(?:\s+(?:\d\S*|%))+", re.ASCII)
_UNIT_APART: Final = re.compile(r"(?<=\d) (?=%)")
_COLUMN_GAP: Final = re.compile(r"\s{2,}")
_MIN_SHARE: Final = 0.8
BLANKS: Final = " "
"""Stands for a separator of any number of blanks."""


def separator_of(head: Sequence[str]) -> str:
    """Return the separator that most of the first lines have; a comma in doubt.

    A decimal comma is in fewer lines than a separator, or in as many: then the other one counts. If
    more lines are values between blanks, blanks count.

    >>> separator_of(["time;util", "0,5;12"]), separator_of(["a,b", "c,d"]), separator_of(["1 2"])
    (';', ',', ' ')
    >>> separator_of(["$ ask --for=time,util", "0 93 %", "1 95 %"])
    ' '
    """
    bare = [_QUOTED.sub("", line.strip()) for line in head if line.strip()]
    found = {separator: sum(separator in line for line in bare) for separator in _SEPARATORS}
    if found["\t"] == sum(",\t" in line for line in bare):
        found["\t"] = 0  # it only follows each comma
    best = max(_SEPARATORS, key=found.__getitem__)
    apart = [line for line in bare if best not in line and _VALUES_BETWEEN_BLANKS.fullmatch(line)]
    if found[best] and found[best] >= len(apart):
        return best
    widths = Counter(len(_cells_between_blanks(line)) for line in bare)
    usual = widths.most_common(1)
    return BLANKS if usual and usual[0][0] > 1 else ","


def _cells_between_blanks(line: str) -> list[str]:
    """Split a line at blanks; ``45 %`` is one cell."""
    return _UNIT_APART.sub("", line).split()


class CellSplitter:
    """Splits the lines of one log at a separator from ``separator_of``."""

    def __init__(self, separator: str) -> None:
        self.separator = separator
        self._has_gaps = False

    def split(self, line: str) -> Sequence[str]:
        if '"' in line:
            return self._quoted_cells(line)
        if self.separator == BLANKS:
            columns = _COLUMN_GAP.split(line.strip()) if self._has_gaps else ()
            return columns or _cells_between_blanks(line)
        return line.split(self.separator)

    def rows(self, lines: Sequence[str]) -> list[Sequence[str]]:
        """Return the cells of the first lines, and find out how blanks separate them."""
        if self.separator == BLANKS:
            self._has_gaps = _has_words_within_columns(lines)
        return [self.split(line) for line in lines]

    def _quoted_cells(self, line: str) -> Sequence[str]:
        try:
            return next(csv.reader([line], delimiter=self.separator, skipinitialspace=True), [])
        except csv.Error:
            return []


def _has_words_within_columns(lines: Sequence[str]) -> bool:
    """Return whether two or more blanks separate columns, and one is within headings."""
    by_gaps = [(_COLUMN_GAP.split(line.strip()), len(line.split())) for line in lines]
    widths = Counter(len(columns) for columns, _ in by_gaps if len(columns) > 1)
    usual, count = max(widths.items(), key=lambda item: item[1], default=(0, 0))
    headers = [
        words
        for columns, words in by_gaps
        if len(columns) == usual and not any(text[:1].isdigit() for text in columns)
    ]
    rows = Counter(words for columns, words in by_gaps if len(columns) == usual)
    is_apart = bool(headers) and headers[0] != rows.most_common(1)[0][0]
    return is_apart and count >= _MIN_SHARE * sum(map(bool, map(str.strip, lines)))


_PROCESS: Final = re.compile(r"\W*(?:pid|process[ _-]?id)\W*", re.I)
_NEEDED: Final = (
    "gpumon needs utilization.gpu, or --column utilization.gpu=N where it has another name"
)


@dataclass(frozen=True, slots=True)
class CsvHead:
    """How a log is to be read.

    Attributes:
        layout: From its header or a guess, without columns that are always empty.
        stamps: The parser of the stamps; ``None``: there are none.
        unit: Checks later rows against that; ``None``: the unit is certain.
        is_guessed: Whether the utilisation column was found only by the shape of its cells.
        header: As written, even with one column fewer than the rows; empty: none.
    """

    layout: ColumnLayout
    body: Sequence[Sequence[str]]
    stamps: StampParser | None
    is_percent: bool
    unit: GuessedUnit | None
    notes: tuple[str, ...]
    is_guessed: bool
    header: Sequence[str]
    is_of_processes: bool


def head_of_csv(
    rows: Sequence[Sequence[str]], options: LogOptions, name: str, *, is_apart: bool
) -> CsvHead:
    """Read the first rows; ``is_apart``: not only blanks separate the cells.

    Raises:
        UnreadableLogError: No utilisation column, or several candidates.
        UsageError: ``--column`` names a column that does not exist.
    """
    notes: list[str] = []
    short_at = _short_header(rows)
    written = rows
    if short_at is not None:
        rows = _with_first_heading(rows, short_at, options, name, notes)
    layout, header_at = _layout_of(rows, options, name, notes, is_apart=is_apart)
    body = _rows_of(layout.width, rows[header_at + 1 :]) or _rows_of(layout.width, rows)
    if not body:
        raise UnreadableLogError(f"{name}: has a header, and no line under it has as many columns")
    completed = layout if header_at < 0 else _with_clock(layout, rows[header_at], body, notes)
    used = _without_empty_columns(completed, body)
    is_percent, unit = used.is_percent, None
    at = used.positions[Column.UTILIZATION]
    way_out = f'use --column "utilization.gpu [%]={at + 1}" or "utilization.gpu [ratio]={at + 1}"'
    if is_percent and chosen_unit_is_percent(options.columns) is None:
        unit = GuessedUnit(name, is_percent=True, way_out=way_out, is_stated=True)
    elif is_percent is None:
        unit = GuessedUnit.of(name, [row[at] for row in body], way_out=way_out)
        is_percent = unit.is_percent
        notes += unit.notes
    body_line = next(at for at, row in enumerate(rows, start=1) if row is body[0])
    stamps = _stamp_parser_of(used, body, f"{name}: line {body_line}")
    is_guessed = header_at < 0 and Column.UTILIZATION not in columns_by_meaning(options.columns)
    header = [cell.strip() for cell in written[header_at]] if header_at >= 0 else []
    is_of_processes = any(_PROCESS.fullmatch(cell) for cell in header)
    if is_of_processes:
        _refuse_shares_of_processes(used, body, f"{name}: line {header_at + 1}")
    return CsvHead(
        used, body, stamps, is_percent, unit, tuple(notes), is_guessed, header, is_of_processes
    )


def _refuse_shares_of_processes(
    layout: ColumnLayout, body: Sequence[Sequence[str]], line: str
) -> None:
    """Refuse rows of processes that contradict each other about one GPU."""
    key_at = identifying_position(layout.positions)
    busy: dict[tuple[str, str], str] = {}
    for row in body:
        of_gpu = stamp_text(row, layout.stamp_positions), "" if key_at is None else row[key_at]
        cell = row[layout.positions[Column.UTILIZATION]].strip()
        if busy.setdefault(of_gpu, cell) != cell:
            raise UnreadableLogError(
                f"{line}: the rows are of processes, and those of one time differ for one GPU; "
                f"log a row for each GPU, as with {BEST_QUERY}"
            )


def _stamp_parser_of(
    layout: ColumnLayout, body: Sequence[Sequence[str]], line: str
) -> StampParser | None:
    if Column.STAMP not in layout.positions:
        return None
    texts = [stamp_text(row, layout.stamp_positions) for row in body]
    parser = parser_among(texts, layout.stamp_unit_ns, is_elapsed=layout.is_elapsed)
    if parser is not None:
        return parser
    raise UnreadableLogError(
        f"{line}: the time {texts[0][:40]!r} has no form gpumon knows; it reads "
        "2025/06/13 00:27:52.195, ISO 8601, other usual dates, times of day, and numbers since the "
        "epoch or since the start"
    )


def _layout_of(
    rows: Sequence[Sequence[str]],
    options: LogOptions,
    name: str,
    notes: list[str],
    *,
    is_apart: bool,
) -> tuple[ColumnLayout, int]:
    """Return the layout, and the position of its header; -1: there is none.

    It is the first header with a utilisation and rows below it; an echoed command may look alike.
    """
    refusal: UnreadableLogError | None = None
    rowless: tuple[ColumnLayout, int] | None = None
    other_lines = [row for row in rows if _is_other_line(row)]
    last_values = {
        len(row): at
        for at, row in enumerate(rows)
        if not names_columns(row) and not looks_like_header(row)
    }
    for at in _headers_among(rows):
        cells = rows[at]
        layout = layout_of_header(cells, options.columns, f"{name}: line {at + 1}")
        has_values = last_values.get(len(cells), at) > at
        if layout is not None and has_values:
            return layout, at
        if layout is not None:
            rowless = rowless or (layout, at)
        elif has_values or not other_lines:
            found = ", ".join(cell.strip() for cell in cells)[:200]
            refusal = refusal or UnreadableLogError(
                f"{name}: line {at + 1}: no utilisation column among: {found}; {_NEEDED}"
            )
    if rowless is not None:
        return rowless
    if refusal is not None:
        raise refusal
    layout, note = guess_layout(other_lines or rows, options.columns, name, is_apart=is_apart)
    notes.append(note)
    return layout, -1


def _short_header(rows: Sequence[Sequence[str]]) -> int | None:
    """Return the position of a header to which nearly every row has one cell more."""
    at = next((at for at, row in enumerate(rows) if looks_like_header(row)), None)
    if at is None:
        return None
    widths = [len(row) for row in rows[at + 1 :] if any(cell.strip() for cell in row)]
    longer = sum(width == len(rows[at]) + 1 for width in widths)
    has_utilisation = any(column_named(cell) is Column.UTILIZATION for cell in rows[at])
    return at if has_utilisation and 0 < 0.9 * len(widths) <= longer else None


def _with_first_heading(
    rows: Sequence[Sequence[str]], at: int, options: LogOptions, name: str, notes: list[str]
) -> Sequence[Sequence[str]]:
    """The rows under a header that leaves out the first column, or a blank one at the end."""
    header = rows[at]
    body = _rows_of(len(header) + 1, rows[at + 1 :])
    ends_blank = not any(row[-1].strip() for row in body)
    completed = [*header, ""] if ends_blank else ["", *header]
    layout = layout_of_header(completed, options.columns, f"{name}: line {at + 1}")
    if layout is None or not are_shares(body, layout.positions[Column.UTILIZATION]):
        raise UnreadableLogError(
            f"{name}: line {at + 1}: the header names {len(header)} columns and the rows have "
            f"{len(completed)}, and it is not the first one that has no name: name each of them"
        )
    notes.append(
        "The header names one column fewer than the rows have: took column "
        f"{layout.positions[Column.UTILIZATION] + 1} as utilization.gpu."
    )
    return [*rows[:at], completed, *rows[at + 1 :]]


def _with_clock(
    layout: ColumnLayout,
    header: Sequence[str],
    body: Sequence[Sequence[str]],
    notes: list[str],
) -> ColumnLayout:
    """Add a clock under an unknown heading to the layout."""
    if Column.STAMP in layout.positions:
        return layout
    free = [at for at in range(layout.width) if at not in layout.positions.values()]
    at = column_of_dates([[cell.strip() for cell in row] for row in body], free)
    if at is None:
        return layout
    notes.append(
        f'Column {at + 1}, "{header[at].strip()[:60]}", was taken as {Column.STAMP.value} because '
        "of its values. Use --column NAME=N if that is wrong."
    )
    return replace(layout, positions={**layout.positions, Column.STAMP: at})


def _headers_among(rows: Sequence[Sequence[str]]) -> Iterator[int]:
    """Yield the positions of possible headers."""
    filled = [at for at, cells in enumerate(rows) if any(cell.strip() for cell in cells)]
    for at, cells in enumerate(rows):
        # Words above all values name the columns.
        if looks_like_header(cells) or (
            at in filled[:1]
            and len(cells) > 1
            and names_columns(cells)
            and 2 * sum(len(row) == len(cells) for row in rows) > len(rows)
        ):
            yield at


def _rows_of(width: int, rows: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    return [row for row in rows if len(row) == width and not looks_like_header(row)]


def _is_other_line(cells: Sequence[str]) -> bool:
    """Return whether a row is neither blank nor words alone nor a command with options."""
    text = "".join(cells)
    return bool(text.strip()) and "--" not in text and not names_columns(cells)


def _without_empty_columns(layout: ColumnLayout, body: Sequence[Sequence[str]]) -> ColumnLayout:
    """Return the layout without empty columns, except time and utilisation."""
    answered = {
        column: position
        for column, position in layout.positions.items()
        if column in (Column.UTILIZATION, Column.STAMP)
        or any(_has_answer_in(row[position]) for row in body)
    }
    return replace(layout, positions=answered)


def _has_answer_in(cell: str) -> bool:
    bare = cell.strip()
    return bool(bare) and not bare.startswith("[") and bare.upper() != "N/A"
