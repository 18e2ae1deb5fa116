"""Any column choice of ``nvidia-smi --query-gpu=... --format=csv``, and plain CSVs."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Final

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.column_guess import guess_layout
from gpumon.sources.logs.columns import (
    Column,
    ColumnLayout,
    contradicted_headings,
    layout_of_header,
    looks_like_header,
)
from gpumon.sources.logs.gpu_rows import GpuRows, rows_of
from gpumon.sources.logs.log_format import LogFormat, line_like
from gpumon.sources.logs.log_sample import LogFacts, LogOptions, LogSample
from gpumon.sources.logs.row_clock import RowClock
from gpumon.sources.logs.stamps import NO_CLOCK, StampParser, parser_for
from gpumon.sources.logs.utilization_cells import (
    Refusal,
    SkippedLines,
    UtilizationCells,
    are_ratios,
)

HEAD_LINES: Final = 512
"""Lines looked at before the first is read: to find the header, or to guess the columns."""
_TICK_ROWS: Final = 64
_SEPARATORS: Final = ",;\t"
_UNUSABLE: Final = -1


class NvidiaSmiCsvLog:
    """One CSV log with a row for each GPU and moment.

    Header or none, repeated headers, any order of columns, units or none,
    one GPU or many. What had to be assumed is said in the notes.

    Args:
        lines: The log's text.
        name: What to call it in sentences.
        options: What the user said about it.
    """

    def __init__(self, lines: Iterator[str], *, name: str, options: LogOptions) -> None:
        self._lines = lines
        self._name = name
        self._options = options
        self._skipped = SkippedLines()
        self._notes: list[str] = []
        self._separator = ","
        self._stamps: StampParser | None = None
        self._row_clock = RowClock(options.period_ns)
        self._usable_rows = 0
        self._announced: ColumnLayout | None = None

    def samples(self) -> Iterator[LogSample]:
        """Every row with a GPU and a moment, in file order.

        Raises:
            UnreadableLogError: No utilisation column, columns that cannot be
                told apart, no usable line, or a stream that breaks off.
            UsageError: ``--column`` names a column that is not there.
        """
        head = list(islice(self._lines, HEAD_LINES))
        self._prepare(head)
        for number, line in enumerate(chain(head, self._lines), start=1):
            cells = self._split(line)
            if len(cells) != self._width:
                self._odd_row(cells, number)
                continue
            sample = self._sample(cells, number)
            if sample is not None:
                yield sample
        if not self._usable_rows:
            reasons = " ".join(self._skipped.sentences())
            raise UnreadableLogError(
                f"{self._name}: no line with a utilisation in {number} lines. {reasons}"
            )

    def facts(self) -> LogFacts:
        """What is known so far; complete once ``samples`` is exhausted."""
        return LogFacts(
            clock=self._stamps.clock if self._stamps else NO_CLOCK,
            gpus=tuple(self._rows.gpus),
            skipped_lines=self._skipped.count,
            period_ns=None if self._stamps else self._row_clock.period_ns,
            notes=(*self._notes, *self._skipped.sentences()),
        )

    def _sample(self, cells: Sequence[str], number: int) -> LogSample | None:
        ratio = self._cells.read(cells[self._utilization_at])
        if isinstance(ratio, Refusal):
            if ratio is Refusal.NO_NUMBER and looks_like_header(cells):
                self._relayout(cells, number)
                return None
            self._skipped.add(ratio, number)
        stamp_ns = None
        if self._stamps is not None:
            stamp_ns = self._stamps.parse(cells[self._stamp_at].strip())
            if stamp_ns is None:
                self._refuse(Refusal.STAMP, number, ratio)
                return None
        gpu = self._rows.position_of(cells, stamp_ns)
        if gpu is None:
            self._refuse(Refusal.NOBODY, number, ratio)
            return None
        if stamp_ns is None:
            stamp_ns = self._row_clock.next_ns(gpu)
        if isinstance(ratio, Refusal):
            return LogSample(gpu, stamp_ns, None)
        self._usable_rows += 1
        return LogSample(gpu, stamp_ns, ratio)

    def _refuse(self, reason: Refusal, number: int, ratio: float | Refusal) -> None:
        if not isinstance(ratio, Refusal):  # else the line is counted already
            self._skipped.add(reason, number)

    def _odd_row(self, cells: Sequence[str], number: int) -> None:
        if not any(cell.strip() for cell in cells):
            return
        if looks_like_header(cells):
            self._relayout(cells, number)
        else:
            unusable = self._width == _UNUSABLE
            self._skipped.add(Refusal.HEADER if unusable else Refusal.WIDTH, number)

    def _relayout(self, cells: Sequence[str], number: int) -> None:
        layout = layout_of_header(cells, self._options.columns)
        if layout is None or (Column.STAMP in layout.positions) != (self._stamps is not None):
            # Another table was appended. Its rows mean something else: none is used until
            # a header announces utilisation again.
            self._width = _UNUSABLE
            self._skipped.add(Refusal.HEADER, number)
            return
        if layout != self._announced:
            self._announced = layout
            self._rows.relayout(layout)
            self._adopt(layout, is_percent=layout.is_percent is not False)
        self._width = layout.width

    def _prepare(self, head: Sequence[str]) -> None:
        self._separator = _separator_of(head)
        rows = [self._split(line) for line in head]
        layout = self._layout_of(rows)
        body = [row for row in rows if len(row) == layout.width and not looks_like_header(row)]
        if not body:
            raise UnreadableLogError(
                f"{self._name}: has a header, and no line under it has as many columns"
            )
        self._announced = layout
        layout = _without_silent_columns(layout, body)
        self._adopt(layout, is_percent=self._is_percent(layout, body))
        self._stamps = self._parser_of(layout, body)
        self._rows: GpuRows = rows_of(layout, self._head_stamps(body))
        if self._stamps is None:
            self._notes.append(self._row_clock.note)

    def _adopt(self, layout: ColumnLayout, *, is_percent: bool) -> None:
        self._width = layout.width
        self._utilization_at = layout.positions[Column.UTILIZATION]
        self._stamp_at = layout.positions.get(Column.STAMP, 0)
        self._cells = UtilizationCells(is_percent=is_percent)

    def _layout_of(self, rows: Sequence[Sequence[str]]) -> ColumnLayout:
        for number, cells in enumerate(rows, start=1):
            if not looks_like_header(cells):
                continue
            layout = layout_of_header(cells, self._options.columns)
            if layout is None:
                found = ", ".join(cell.strip() for cell in cells)[:200]
                raise UnreadableLogError(
                    f"{self._name}: line {number}: no utilisation column among: {found}; gpumon "
                    "needs utilization.gpu, or --column utilization.gpu=N where it has another name"
                )
            self._notes.extend(contradicted_headings(cells, self._options.columns))
            return layout
        layout, note = guess_layout(rows, self._options.columns, self._name)
        self._notes.append(note)
        return layout

    def _is_percent(self, layout: ColumnLayout, body: Sequence[Sequence[str]]) -> bool:
        if layout.is_percent is not None:
            return layout.is_percent
        ratios = are_ratios([row[layout.positions[Column.UTILIZATION]] for row in body])
        if ratios:
            self._notes.append(
                "The utilisation lies between 0 and 1: read as a share, not as percent."
            )
        return not ratios

    def _parser_of(self, layout: ColumnLayout, body: Sequence[Sequence[str]]) -> StampParser | None:
        if Column.STAMP not in layout.positions:
            return None
        column = layout.positions[Column.STAMP]
        for row in body:
            parser = parser_for(row[column].strip(), layout.stamp_unit_ns)
            if parser is not None:
                return parser
        raise UnreadableLogError(
            f"{self._name}: the time {body[0][column].strip()[:40]!r} has no form gpumon knows; it "
            "reads 2025/06/13 00:27:52.195, ISO 8601, seconds since the epoch or since the start"
        )

    def _head_stamps(self, body: Sequence[Sequence[str]]) -> list[int]:
        if self._stamps is None:
            return []
        stamps = (self._stamps.parse(row[self._stamp_at].strip()) for row in body[:_TICK_ROWS])
        return [stamp for stamp in stamps if stamp is not None]

    def _split(self, line: str) -> Sequence[str]:
        if '"' not in line:
            return line.split(self._separator)
        try:
            return next(csv.reader([line], delimiter=self._separator, skipinitialspace=True), [])
        except csv.Error:
            return []


def _separator_of(head: Sequence[str]) -> str:
    """The separator that most of the first lines have; a comma in doubt."""
    return max(_SEPARATORS, key=lambda sign: sum(sign in line for line in head))


def _without_silent_columns(layout: ColumnLayout, body: Sequence[Sequence[str]]) -> ColumnLayout:
    """The layout without identifying columns in which every row says ``[N/A]``."""
    spoken = {
        column: position
        for column, position in layout.positions.items()
        if column in (Column.UTILIZATION, Column.STAMP)
        or any(_says_something(row[position]) for row in body)
    }
    return ColumnLayout(
        width=layout.width,
        positions=spoken,
        stamp_unit_ns=layout.stamp_unit_ns,
        is_percent=layout.is_percent,
    )


def _says_something(cell: str) -> bool:
    bare = cell.strip()
    return bool(bare) and not bare.startswith("[") and bare.upper() != "N/A"


FORMAT: Final = LogFormat(
    title="CSV", mark=line_like(""), reader=NvidiaSmiCsvLog, is_last_resort=True
)
