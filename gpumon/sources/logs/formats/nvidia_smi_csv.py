"""Any column choice of ``nvidia-smi --query-gpu=... --format=csv``, and plain CSVs."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from itertools import chain
from typing import Final

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.log_sample import LogFacts, LogFormat, LogOptions, LogSample, line_like
from gpumon.sources.logs.log_text import MAX_PIECE
from gpumon.sources.logs.stamps.log_clock import NO_CLOCK, RowClock
from gpumon.sources.logs.stamps.stamp_parsers import StampParser
from gpumon.sources.logs.table.cells import (
    GuessedUnit,
    MemoryCells,
    Refusal,
    SkippedLines,
    UtilizationCells,
)
from gpumon.sources.logs.table.column_names import Column
from gpumon.sources.logs.table.columns import (
    AmbiguousColumnError,
    ColumnLayout,
    layout_of_header,
    looks_like_header,
)
from gpumon.sources.logs.table.csv_head import head_of_csv, is_driver_trouble
from gpumon.sources.logs.table.csv_stamps import stamp_parser_of, stamp_text
from gpumon.sources.logs.table.csv_text import BLANKS, CellSplitter, head_of, is_open, separator_of
from gpumon.sources.logs.table.gpu_rows import MAX_GPUS, GpuRows, OrderedRows, rows_of

_TICK_ROWS: Final = 64
_MOST_TAILS: Final = 4_096
"""More different ends of lines than that: they do not repeat, and are not worth remembering."""
_UNUSABLE: Final = -1
_UNSEEN: Final = -1


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
        self._stamps: StampParser | None = None
        self._unit: GuessedUnit | None = None
        self._row_clock = RowClock(options.period_ns)
        self._is_used = False
        self._number = 0
        self._announced: ColumnLayout | None = None
        self._layout_changed = False
        self._is_guessed = False

    def samples(self) -> Iterator[LogSample]:
        """Every row with a GPU and a moment, in file order.

        Raises:
            UnreadableLogError: No utilisation column, columns that cannot be
                told apart, no usable line, or a stream that breaks off.
            UsageError: ``--column`` names a column that is not there.
        """
        head = head_of(self._lines)
        self._prepare(head)
        feed = chain(head, self._lines)
        goes_on = True
        while goes_on:
            goes_on = yield from self._rows_of_one_layout(feed)
        if self._unit is not None:
            self._unit.settle()
        if not self._is_used:
            reasons = " ".join(self._skipped.sentences())
            raise UnreadableLogError(
                f"{self._name}: no line with a utilisation in {self._number} lines. {reasons}"
            )

    def facts(self) -> LogFacts:
        """What is known so far; complete once ``samples`` is exhausted."""
        notes = list(self._notes)
        if self._stamps is None:
            notes.append(self._row_clock.note)
        elif self._stamps.note:
            notes.append(self._stamps.note)
        if isinstance(self._rows, OrderedRows) and self._rows.note:
            notes.append(self._rows.note)
        return LogFacts(
            clock=self._stamps.clock if self._stamps else NO_CLOCK,
            gpus=tuple(self._rows.gpus),
            skipped_lines=self._skipped.count,
            period_ns=None if self._stamps else self._row_clock.period_ns,
            notes=(*notes, *self._skipped.sentences()),
            is_guessed=self._is_guessed,
        )

    def _rows_of_one_layout(  # noqa: C901 - calls would cost more than the work
        self, feed: Iterator[str]
    ) -> Generator[LogSample, None, bool]:
        """Rows until a header moves the columns (then returns ``True``) or the log ends.

        Nearly all lines of a log are like the ones before: all that follows
        their stamp, or else their cells, were seen before and are looked up.
        Only the others are looked into.
        """
        separator, width, number = self._splitter.separator, self._width, self._number
        utilization_at, stamp_at, memory_at = self._utilization_at, self._stamp_at, self._memory_at
        ratios, memory = self._cells.ratios, self._memory.known
        key_at = self._rows.key_column or 0
        positions = self._rows.known if self._rows.key_column is not None else {}
        gpu: int | None = 0
        is_alone = self._rows.is_alone
        is_usual = self._is_usual
        parse = self._stamps.parse if self._stamps is not None else None
        new_sample = tuple.__new__
        tails: dict[str, tuple[int, float, int | None]] = {}
        knows_tails = is_usual and parse is not None and not stamp_at and width > 1
        tail = ""
        is_used = False
        for line in feed:
            number += 1
            if knows_tails and parse is not None:
                text, _, tail = line.partition(separator)
                known = tails.get(tail)
                if known is not None:
                    stamp_ns = parse(text)
                    if stamp_ns is not None:
                        yield new_sample(LogSample, (known[0], stamp_ns, known[1], known[2]))
                        continue
            if is_usual and parse is not None and '"' not in line:
                cells = line.split(separator)
                if len(cells) == width:
                    ratio = ratios.get(cells[utilization_at])
                    if ratio is not None:
                        if not is_alone:
                            gpu = positions.get(cells[key_at])
                        used = memory.get(cells[memory_at], _UNSEEN) if memory_at >= 0 else None
                        if gpu is not None and used != _UNSEEN:
                            text = cells[stamp_at]
                            stamp_ns = parse(text.strip() if stamp_at else text)
                            if stamp_ns is not None:
                                is_used = True
                                if knows_tails:
                                    tails[tail] = (gpu, ratio, used)
                                    knows_tails = len(tails) < _MOST_TAILS
                                yield new_sample(LogSample, (gpu, stamp_ns, ratio, used))
                                continue
            self._number = number
            yield from self._looked_into(line, feed)
            number = self._number
            if self._layout_changed:
                break
        self._number = number
        self._is_used = self._is_used or is_used
        changed, self._layout_changed = self._layout_changed, False
        return changed

    def _looked_into(self, line: str, feed: Iterator[str]) -> Iterator[LogSample]:
        if not is_open(line):
            yield from self._row(line, feed)
            return
        number = self._number
        cells, taken = self._splitter.joined(line, feed)
        if len(cells) == self._width:
            yield from self._sample(cells, taken[-1])
            self._number += len(taken)
            return
        # Whoever wrote the line was killed within a quote: what follows is not a part of it.
        self._skipped.add(Refusal.QUOTE, number)
        for one in taken:
            self._number += 1
            yield from self._row(one, feed)

    def _row(self, line: str, feed: Iterator[str]) -> Iterator[LogSample]:
        if len(line) >= MAX_PIECE and not line.endswith("\n"):
            self._skipped.add(Refusal.TOO_LONG, self._number)
            next((piece for piece in feed if piece.endswith("\n")), None)
            return
        if "\0" in line:  # a crash left them where a line was not on the disk yet
            line = line.replace("\0", "")
        cells = self._splitter.split(line)
        if len(cells) == self._width:
            yield from self._sample(cells, line)
        else:
            self._odd_row(cells, line)

    def _sample(self, cells: Sequence[str], line: str) -> Iterator[LogSample]:
        ratio = self._ratio(cells, line)
        if isinstance(ratio, Refusal):
            if ratio is Refusal.NO_NUMBER and looks_like_header(cells):
                self._relayout(cells)
                return
            is_trouble = ratio is Refusal.NO_NUMBER and is_driver_trouble(line)
            self._skipped.add(Refusal.DRIVER if is_trouble else ratio, self._number)
        stamp_ns = None
        if self._stamps is not None:
            stamp_ns = self._stamps.parse(stamp_text(cells, self._layout))
            if stamp_ns is None:
                self._refuse(Refusal.STAMP, ratio)
                return
        was_alone = self._rows.is_alone
        gpu = self._rows.position_of(cells, stamp_ns)
        self._layout_changed = self._rows.is_alone is not was_alone
        if gpu is None:
            self._refuse_crowd()
            self._refuse(Refusal.NOBODY, ratio)
            return
        if stamp_ns is None:
            stamp_ns = self._row_clock.next_ns(gpu)
        used = self._memory.bytes_of(cells[self._memory_at]) if self._memory_at >= 0 else None
        if isinstance(ratio, Refusal):
            yield LogSample(gpu, stamp_ns, None, used)
            return
        self._is_used = True
        yield LogSample(gpu, stamp_ns, ratio, used)

    def _ratio(self, cells: Sequence[str], line: str) -> float | Refusal:
        cell = cells[self._utilization_at]
        if self._unit is not None:
            self._unit.hold(cell, self._number)
        if self._utilization_at == self._width - 1 and not line.endswith("\n"):
            return self._cells.read(cell)
        return self._cells.read_whole(cell)

    def _refuse(self, reason: Refusal, ratio: float | Refusal) -> None:
        if not isinstance(ratio, Refusal):  # else the line is counted already
            self._skipped.add(reason, self._number)

    def _refuse_crowd(self) -> None:
        if len(self._rows.gpus) >= MAX_GPUS:
            column = self._layout.identifying_position() or 0
            raise UnreadableLogError(
                f"{self._name}: more than {MAX_GPUS:,} different GPUs in column {column + 1} by "
                f"line {self._number}; say --column index=N if it is another"
            )

    def _odd_row(self, cells: Sequence[str], line: str) -> None:
        if not line.strip():
            return
        if looks_like_header(cells):
            self._relayout(cells)
        elif is_driver_trouble(line):
            self._skipped.add(Refusal.DRIVER, self._number)
        elif any(cell.strip() for cell in cells):
            unusable = self._width == _UNUSABLE
            self._skipped.add(Refusal.HEADER if unusable else Refusal.WIDTH, self._number)

    def _relayout(self, cells: Sequence[str]) -> None:
        try:
            layout = layout_of_header(cells, self._options.columns)
        except AmbiguousColumnError:
            layout = None
        self._layout_changed = True
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
                self._is_percent, self._unit = layout.is_percent, None
            self._adopt(layout)
        self._width = layout.width

    def _prepare(self, head: Sequence[str]) -> None:
        self._splitter = CellSplitter(separator_of(head))
        is_apart, rows = self._splitter.separator != BLANKS, self._splitter.rows(head)
        known = head_of_csv(rows, self._options, self._name, is_apart=is_apart)
        self._is_percent, self._unit = known.is_percent, known.unit
        self._announced = known.announced
        self._notes += known.notes
        self._is_guessed = known.is_guessed
        self._adopt(known.layout)
        line = f"{self._name}: line {known.body_line}"
        self._stamps = stamp_parser_of(known.layout, known.body, line)
        self._rows: GpuRows = rows_of(known.layout, self._head_stamps(known.body))

    def _adopt(self, layout: ColumnLayout) -> None:
        self._layout = layout
        self._width = layout.width
        self._utilization_at = layout.positions[Column.UTILIZATION]
        self._stamp_at = layout.positions.get(Column.STAMP, 0)
        self._memory_at = layout.positions.get(Column.MEMORY_USED, -1)
        self._cells = UtilizationCells(is_percent=self._is_percent)
        self._memory = MemoryCells(layout.memory_unit_bytes[0])
        # Cells of such rows are found by their separator alone, and their stamp is one cell.
        self._is_usual = self._splitter.separator != BLANKS and Column.DATE not in layout.positions

    def _head_stamps(self, body: Sequence[Sequence[str]]) -> list[int]:
        if self._stamps is None:
            return []
        texts = [stamp_text(row, self._layout) for row in body[:_TICK_ROWS]]
        parser = stamp_parser_of(self._layout, body, self._name)
        stamps = (parser.parse(text) for text in texts) if parser is not None else ()
        return [stamp for stamp in stamps if stamp is not None]


FORMAT: Final = LogFormat(
    title="CSV",
    mark=line_like(""),
    reader=NvidiaSmiCsvLog,
    settable=tuple(Column),
    is_last_resort=True,
)
