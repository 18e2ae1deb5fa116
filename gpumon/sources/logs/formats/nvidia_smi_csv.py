"""CSVs with a row for each GPU: ``nvidia-smi --query-gpu --format=csv`` and plain CSVs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from itertools import chain, islice
from typing import Final

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.driver_errors import ERROR_MARKS, ErrorLine
from gpumon.sources.logs.gpu_log import GpuLog, Rows
from gpumon.sources.logs.log_sample import LogOptions, LogSample
from gpumon.sources.logs.log_text import MAX_PIECE, head_of
from gpumon.sources.logs.stamps.stamp_parsers import without_unit
from gpumon.sources.logs.table.cell_values import Refusal, bytes_in, ratio_in
from gpumon.sources.logs.table.column_layout import (
    identifying_position,
    looks_like_header,
    stamp_text,
)
from gpumon.sources.logs.table.column_names import Column
from gpumon.sources.logs.table.csv_rows import BLANKS, CellSplitter, head_of_csv, separator_of
from gpumon.sources.logs.table.gpu_rows import MAX_GPUS, GpuRows

_TICK_ROWS: Final = 64
_MAX_CELLS: Final = 32_768
"""Different cells of a column to remember."""
_READ_IN_FULL: Final = ('"', *ERROR_MARKS)
"""A row with one of these is read in full."""
_UNUSABLE: Final = -1
_MAX_HEADERS: Final = 2
"""A header and its units."""


class NvidiaSmiCsvLog(GpuLog):
    """A CSV with a row for each GPU and time.

    With or without header, columns in any order, with or without units, one GPU or many. Rows under
    another header are skipped. Notes say what was assumed.

    Most cells of a log repeat: their meaning is remembered, and only the stamp of a row is parsed.
    Without that a long log takes twice as long.
    """

    title = "CSV"
    settable = tuple(Column)
    nothing = "no line with a utilisation in {lines} lines."

    def __init__(self, lines: Iterator[str], *, name: str, options: LogOptions) -> None:
        super().__init__(lines, name=name, options=options)
        self._guesses: list[str] = []
        self._header: Sequence[str] = ()
        self._ratios: dict[str, float] = {}
        self._positions: dict[str, int] = {}
        self._bytes: dict[str, int | None] = {}

    def _notes(self) -> list[str]:
        notes = [*self._guesses, *super()._notes()]
        stated = (self._stamps.note if self._stamps else None), self._rows.note
        return [*notes, *filter(None, stated)]

    def _read(self) -> Rows:
        head = head_of(self._lines)
        self._prepare(head)
        feed = chain(head, self._lines)
        for line in feed:
            self._number += 1
            known = self._row_of_known_cells(line)
            if known is not None:
                self._last_ns = known.stamp_ns
                yield known
            else:
                began = self._errors.began
                row = self._row(line, feed)
                if self._errors.began != began:  # the next row of each GPU must be read in full
                    self._positions.clear()
                yield row

    def _row_of_known_cells(self, line: str) -> LogSample | None:
        """Return a row whose cells but the stamp are known; ``None``: one is not."""
        cells = line.split(self._separator)
        if len(cells) != self._width or self._parse_stamp is None:
            return None
        for mark in _READ_IN_FULL:
            if mark in line:
                return None
        ratio = self._ratios.get(cells[self._utilization_at])
        gpu = self._positions.get(cells[self._key_at])
        if ratio is None or gpu is None or line[-1] != "\n":
            return None
        stamp_ns = self._parse_stamp(cells[0])
        if stamp_ns is None:
            return None
        return LogSample(gpu, stamp_ns, ratio, self._used_bytes(cells))

    def _used_bytes(self, cells: Sequence[str]) -> int | None:
        if self._used_at is None:
            return None
        cell, known = cells[self._used_at], self._bytes
        if cell in known:
            return known[cell]
        used_bytes = bytes_in(cell, self._unit_bytes)
        if len(known) < _MAX_CELLS:
            known[cell] = used_bytes
        return used_bytes

    def _remember(self, cells: Sequence[str], gpu: int, ratio: float) -> None:
        if len(self._ratios) < _MAX_CELLS:
            self._ratios[cells[self._utilization_at]] = ratio
            self._positions[cells[self._key_at]] = gpu

    def _row(self, line: str, feed: Iterator[str]) -> LogSample | None:
        if len(line) >= MAX_PIECE and not line.endswith("\n"):
            self._skipped.add(Refusal.TOO_LONG, self._number)
            next((piece for piece in feed if piece.endswith("\n")), None)
            return None
        cells = self._splitter.split(line)
        if len(cells) == self._width:
            return self._row_of(cells, line)
        if looks_like_header(cells):
            self._read_header(cells)
        elif self._is_error(line, cells):
            self._skipped.add(Refusal.DRIVER, self._number)
        elif any(cell.strip() for cell in cells):
            if self._width == _UNUSABLE:
                self._skipped.add(Refusal.OTHER_HEADER, self._number)
            elif self._stamp_of(cells) is None:
                self._skipped.add(Refusal.WIDTH, self._number)
            else:
                self._lose_row(Refusal.WIDTH, self._number)
        return None

    def _is_error(self, line: str, cells: Sequence[str]) -> bool:
        where = ErrorLine(self._number, self._stamp_of(cells), self._last_ns)
        return self._errors.read_line(line, where)

    def _stamp_of(self, cells: Sequence[str]) -> int | None:
        """Return the stamp of a line that is not a row but begins as one."""
        if self._stamps is None or max(self._stamp_at, default=0) >= len(cells):
            return None
        return copy(self._stamps).parse(stamp_text(cells, self._stamp_at))

    def _row_of(self, cells: Sequence[str], line: str) -> LogSample | None:
        cell = cells[self._utilization_at]
        if self._unit is not None:
            self._unit.check(cell, self._number)
        ratio = ratio_in(cell, self._full)
        if ratio is Refusal.NO_NUMBER:
            if looks_like_header(cells):
                self._read_header(cells)
                return None
            if self._is_error(line, cells):
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
        is_simple_row = self._parse_stamp is not None and line[-1:] == "\n" and '"' not in line
        if is_simple_row and gpu is not None and stamp_ns is not None and isinstance(ratio, float):
            self._remember(cells, gpu, ratio)
        return self._sample(gpu, stamp_ns, ratio, self._number, self._used_bytes(cells), line)

    def _refuse_crowd(self) -> None:
        if len(self._gpus.gpus) >= MAX_GPUS:
            column = identifying_position(self._layout.positions) or 0
            raise UnreadableLogError(
                f"{self._name}: more than {MAX_GPUS:,} different GPUs in column {column + 1} by "
                f"line {self._number}; use --column index=N if it is another one"
            )

    def _read_header(self, cells: Sequence[str]) -> None:
        """Skip the rows under a header other than the first, until that comes again."""
        if [cell.strip() for cell in cells] == self._header:
            self._width = self._layout.width
        else:
            self._width = _UNUSABLE
            self._skipped.add(Refusal.OTHER_HEADER, self._number)

    def _prepare(self, head: Sequence[str]) -> None:
        self._splitter = CellSplitter(separator_of(head))
        is_apart, rows = self._splitter.separator != BLANKS, self._splitter.rows(head)
        try:
            known = head_of_csv(rows, self._options, self._name, is_apart=is_apart)
        except UnreadableLogError:
            if self._errors.are_all(head, but=_MAX_HEADERS):
                raise UnreadableLogError(f"{self._name}: {self._errors.sentence()}") from None
            raise
        self._full, self._unit = 100.0 if known.is_percent else 1.0, known.unit
        self._is_guessed = known.is_guessed
        self._header = known.header
        self._guesses += known.notes
        self._stamps = known.stamps
        self._counts_rows = self._stamps is None
        if self._stamps is not None:
            self._clock = self._stamps.clock
            heading = stamp_text(self._header, known.layout.stamp_positions) if self._header else ""
            self._bare_times = without_unit(self._stamps, heading)
        stamps_ns: list[int] = []
        if self._stamps is not None and not known.is_of_processes:
            parse = copy(self._stamps).parse  # the log's own parser must not advance
            texts = (stamp_text(row, known.layout.stamp_positions) for row in known.body)
            parsed = map(parse, islice(texts, _TICK_ROWS))
            stamps_ns = [stamp_ns for stamp_ns in parsed if stamp_ns is not None]
        self._rows: GpuRows = GpuRows(known.layout, stamps_ns, self._gpus)
        self._layout = layout = known.layout
        self._width = layout.width
        self._utilization_at = layout.positions[Column.UTILIZATION]
        self._stamp_at = layout.stamp_positions
        self._used_at = layout.positions.get(Column.MEMORY_USED)
        self._unit_bytes, _ = layout.memory_unit_bytes
        self._separator = self._splitter.separator
        is_by_cell = self._rows.is_by_cell and self._separator != BLANKS
        is_simple = is_by_cell and self._stamp_at == (0,) and layout.width > 1
        self._parse_stamp = self._stamps.parse if is_simple and self._stamps is not None else None
        # Without a column that names the GPU there is only one, so any column identifies it.
        self._key_at = (
            self._utilization_at if self._rows.key_column is None else self._rows.key_column
        )
