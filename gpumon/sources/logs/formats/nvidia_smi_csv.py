"""Any column choice of ``nvidia-smi --query-gpu=... --format=csv``, and plain CSVs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from itertools import chain
from typing import Final

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.gpu_log import GpuLog, Rows
from gpumon.sources.logs.log_sample import LogOptions, LogSample, line_like
from gpumon.sources.logs.log_text import MAX_PIECE, head_of
from gpumon.sources.logs.stamps.stamp_parsers import StampParser
from gpumon.sources.logs.table.cell_values import UtilizationCells, bytes_in
from gpumon.sources.logs.table.column_layout import (
    AmbiguousColumnError,
    ColumnLayout,
    identifying_position,
    layout_of_header,
    looks_like_header,
    stamp_text,
)
from gpumon.sources.logs.table.csv_cells import BLANKS, CellSplitter, is_open, separator_of
from gpumon.sources.logs.table.csv_first_rows import head_of_csv, is_driver_trouble
from gpumon.sources.logs.table.gpu_of_row import GpuRows, rows_of
from gpumon.sources.logs.table.gpu_table import MAX_GPUS
from gpumon.sources.logs.table.headings import Column
from gpumon.sources.logs.table.skipped_lines import Refusal

_TICK_ROWS: Final = 64
_MOST_TAILS: Final = 4_096
"""More different ends of lines than that: they do not repeat, and are not worth remembering."""
_UNUSABLE: Final = -1


class NvidiaSmiCsvLog(GpuLog):
    """One CSV log with a row for each GPU and moment.

    Header or none, repeated headers, any order of columns, units or none,
    one GPU or many. What had to be assumed is said in the notes.

    Most rows of a log end as others do: what their end says is remembered, and only their stamp
    is read. Without that a long log takes half as long again.
    """

    title = "CSV"
    mark = line_like("")
    settable = tuple(Column)
    is_last_resort = True
    nothing = "no line with a utilisation in {lines} lines."

    def __init__(self, lines: Iterator[str], *, name: str, options: LogOptions) -> None:
        super().__init__(lines, name=name, options=options)
        self._guesses: list[str] = []
        self._stamps: StampParser | None = None
        self._announced: ColumnLayout | None = None
        self._tails: dict[str, LogSample] = {}
        """Rows by all that follows their first cell, which is their stamp."""

    def _notes(self) -> list[str]:
        notes = [*self._guesses, *super()._notes()]
        said = (self._stamps.note if self._stamps else None), self._rows.note
        return [*notes, *filter(None, said)]

    def _read(self) -> Rows:
        head = head_of(self._lines)
        self._prepare(head)
        feed, tails, separator = chain(head, self._lines), self._tails, self._splitter.separator
        parse = self._stamps.parse if self._stamps is not None else None
        for line in feed:
            self._number += 1
            text, _, tail = line.partition(separator)
            known = tails.get(tail)
            stamp_ns = parse(text) if parse is not None and known is not None else None
            if stamp_ns is not None and known is not None:
                yield LogSample(known.gpu, stamp_ns, known.busy_ratio, known.memory_used_bytes)
            elif is_open(line):
                yield from self._rows_within_quotes(line, feed)
            else:
                row = self._row(line, feed)
                has_room = self._is_by_tail and len(tails) < _MOST_TAILS
                if has_room and row is not None and row.busy_ratio is not None and '"' not in line:
                    tails[tail] = row
                yield row

    def _rows_within_quotes(self, line: str, feed: Iterator[str]) -> Rows:
        """The row that begins with a line, or those of the lines after it if it has no end."""
        cells, taken = self._splitter.joined(line, feed)
        if len(cells) == self._width:
            yield self._row_of(cells, taken[-1])
            self._number += len(taken)
            return
        # Whoever wrote the line was killed within a quote: what follows is not a part of it.
        self._skipped.add(Refusal.QUOTE, self._number)
        for one in taken:
            self._number += 1
            yield self._row(one, feed)

    def _row(self, line: str, feed: Iterator[str]) -> LogSample | None:
        if len(line) >= MAX_PIECE and not line.endswith("\n"):
            self._skipped.add(Refusal.TOO_LONG, self._number)
            next((piece for piece in feed if piece.endswith("\n")), None)
            return None
        if "\0" in line:  # a crash left them where a line was not on the disk yet
            line = line.replace("\0", "")
        cells = self._splitter.split(line)
        if len(cells) == self._width:
            return self._row_of(cells, line)
        if looks_like_header(cells):
            self._relayout(cells)
        elif is_driver_trouble(line):
            self._skipped.add(Refusal.DRIVER, self._number)
        elif any(cell.strip() for cell in cells):
            unusable = self._width == _UNUSABLE
            self._skipped.add(Refusal.HEADER if unusable else Refusal.WIDTH, self._number)
        return None

    def _row_of(self, cells: Sequence[str], line: str) -> LogSample | None:
        cell = cells[self._utilization_at]
        if self._unit is not None:
            self._unit.hold(cell, self._number)
        is_whole = self._utilization_at < self._width - 1 or line.endswith("\n")
        ratio = self._cells.read(cell, is_whole=is_whole)
        if ratio is Refusal.NO_NUMBER:
            if looks_like_header(cells):
                self._relayout(cells)
                return None
            if is_driver_trouble(line):
                ratio = Refusal.DRIVER
        gpu: int | None = 0
        stamp_ns = None
        if self._stamps is not None:
            stamp_ns = self._stamps.parse(stamp_text(cells, self._stamp_at))
        if stamp_ns is not None or self._stamps is None:
            gpu = self._rows.position_of(cells, stamp_ns)
            if gpu is None:
                self._refuse_crowd()
            elif stamp_ns is None:
                stamp_ns = self._row_clock.next_ns(gpu)
        used = None if self._used_at is None else bytes_in(cells[self._used_at], self._unit_bytes)
        return self._sample(gpu, stamp_ns, ratio, self._number, used)

    def _refuse_crowd(self) -> None:
        if len(self._gpus.gpus) >= MAX_GPUS:
            column = identifying_position(self._layout.positions) or 0
            raise UnreadableLogError(
                f"{self._name}: more than {MAX_GPUS:,} different GPUs in column {column + 1} by "
                f"line {self._number}; say --column index=N if it is another"
            )

    def _relayout(self, cells: Sequence[str]) -> None:
        try:
            layout = layout_of_header(cells, self._options.columns)
        except AmbiguousColumnError:
            layout = None
        self._tails.clear()
        is_known = layout is not None and layout == self._announced
        has_stamps = layout is not None and Column.STAMP in layout.positions
        if layout is None or (not is_known and has_stamps != (self._stamps is not None)):
            # Another table was appended. Its rows mean something else: none is used until
            # a header announces utilisation again.
            self._width = _UNUSABLE
            self._skipped.add(Refusal.HEADER, self._number)
            return
        if layout != self._announced:
            self._announced = layout
            self._rows.relayout(layout)
            if layout.is_percent is not None:
                if self._unit is not None:
                    self._unit.settle()  # the rows that it was guessed for are over
                self._is_percent, self._unit = layout.is_percent, None
            self._adopt(layout)
        self._width = layout.width

    def _prepare(self, head: Sequence[str]) -> None:
        self._splitter = CellSplitter(separator_of(head))
        is_apart, rows = self._splitter.separator != BLANKS, self._splitter.rows(head)
        known = head_of_csv(rows, self._options, self._name, is_apart=is_apart)
        self._is_percent, self._unit = known.is_percent, known.unit
        self._announced, self._is_guessed = known.announced, known.is_guessed
        self._guesses += known.notes
        self._stamps = known.stamps
        self._counts_rows = self._stamps is None
        if self._stamps is not None:
            self._clock = self._stamps.clock
        stamps_ns = self._first_stamps_ns(known.layout, known.body[:_TICK_ROWS])
        self._rows: GpuRows = rows_of(known.layout, stamps_ns, self._gpus)
        self._adopt(known.layout)

    def _adopt(self, layout: ColumnLayout) -> None:
        self._layout = layout
        self._width = layout.width
        self._utilization_at = layout.positions[Column.UTILIZATION]
        self._stamp_at = layout.stamp_positions
        self._used_at = layout.positions.get(Column.MEMORY_USED)
        self._cells = UtilizationCells(is_percent=self._is_percent)
        self._unit_bytes, _ = layout.memory_unit_bytes
        self._is_by_tail = (
            self._stamp_at == (0,)
            and layout.width > 1
            and self._splitter.separator != BLANKS
            and self._rows.is_by_cell
        )

    def _first_stamps_ns(self, layout: ColumnLayout, body: Sequence[Sequence[str]]) -> list[int]:
        if self._stamps is None:
            return []
        parse = copy(self._stamps).parse  # the log's own parser has not begun
        stamps_ns = (parse(stamp_text(row, layout.stamp_positions)) for row in body)
        return [stamp_ns for stamp_ns in stamps_ns if stamp_ns is not None]


FORMAT: Final = NvidiaSmiCsvLog
