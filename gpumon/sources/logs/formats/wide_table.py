"""Tables with a column for each GPU, as CSV or as JSON: W&B, nvitop, dstat, data frames."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, Final

from gpumon.core.clock import NS_PER_S
from gpumon.sources.logs.gpu_log import GpuLog, Rows
from gpumon.sources.logs.json_documents import JsonDocuments
from gpumon.sources.logs.log_sample import LoggedGpu, LogOptions, LogSample, line_like
from gpumon.sources.logs.log_text import MAX_PIECE
from gpumon.sources.logs.stamps.log_clock import NO_CLOCK
from gpumon.sources.logs.stamps.stamp_parsers import parser_among, without_unit
from gpumon.sources.logs.table.cell_values import GuessedUnit, Refusal, bytes_of, ratio_of
from gpumon.sources.logs.table.column_layout import is_elapsed_heading
from gpumon.sources.logs.table.column_names import Column, Heading, HeadingGpu
from gpumon.sources.logs.table.csv_rows import CellSplitter
from gpumon.sources.logs.table.gpu_rows import MAX_GPUS
from gpumon.sources.logs.table.headings import LAST_STAMP_RANK, columns_by_meaning, heading_of

Cells = Callable[[Any], Any]
"""Returns the cell of a row under a key; ``None``: there is none."""
WideRow = tuple[int, Cells, "Collection[Hashable] | None"]
"""Number of a row, its cells, and its keys; ``None``: all keys."""
_UNIT_ROWS: Final = 512
"""Rows that determine whether utilisation without a unit is percent."""
_EXPONENT: Final = re.compile(r"\d{1,20}(?:\.\d{1,20})?e[-+]?\d{1,2}", re.ASCII)
_EPOCH: Final = re.compile(r"1\d{9}|1\.\d*e\+?0?9", re.ASCII)
_NO_MEMORY: Final = (0, None, 1)
_MORE_GPUS: Final = f"More than {MAX_GPUS:,} GPUs: only the first {MAX_GPUS:,} were read."
_WAY_OUT: Final = (
    'write the unit into the headings, such as "gpu0 [%]", or read one of them: --column '
    '"utilization.gpu [%]=HEADING" or "utilization.gpu [ratio]=HEADING"'
)


@dataclass(slots=True)
class _GpuColumns:
    gpu: HeadingGpu
    position: int
    busy: Hashable
    busy_rank: int
    full: float
    is_blank_absent: bool
    unit: GuessedUnit | None


class WideTable(GpuLog):
    """A log with a row for all GPUs, read by the meaning of its headings."""

    def __init__(self, lines: Iterator[str], *, name: str, options: LogOptions) -> None:
        super().__init__(lines, name=name, options=options)
        self._chosen_stamp = columns_by_meaning(options.columns).get(Column.STAMP)
        self._columns: dict[HeadingGpu, _GpuColumns] = {}
        self._by_key: dict[Hashable, _GpuColumns] = {}
        self._may_be_absent, self._has_more = True, False
        self._used: dict[HeadingGpu, tuple[int, Hashable | None, int]] = {}
        self._total: dict[HeadingGpu, tuple[Hashable, int]] = {}
        self._unsure: list[_GpuColumns] = []
        self._stated_unit = GuessedUnit(name, is_percent=True, way_out=_WAY_OUT, is_stated=True)
        self._stamp_at: tuple[int, Hashable, int] | None = None
        self._stamp_heading = ""
        self._has_other_rows = False
        self._counts_rows = True

    def _learn(self, headings: Iterable[tuple[Hashable, str]]) -> None:
        """Add columns, by key and heading."""
        for key, text in headings:
            meaning = heading_of(text)
            if self._chosen_stamp is not None and self._chosen_stamp in (text.strip(), key):
                unit_ns = meaning.unit if meaning and meaning.column is Column.STAMP else NS_PER_S
                self._read_stamps_from(-1, key, unit_ns, text)
            elif meaning is not None:
                self._place(key, meaning, text)

    def _of_rows(self, rows: Iterator[WideRow]) -> Rows:
        """Yield the samples of all rows; the first ones determine what the cells mean."""
        head = list(islice(rows, _UNIT_ROWS))
        getters = [get for _, get, _ in head]
        self._decide_stamps(getters)
        self._decide_unit(getters)
        # Most rows may hold something else, such as training metrics.
        blank = sum(all(_is_blank(get(key)) for key in self._by_key) for get in getters)
        self._has_other_rows = 2 * blank >= len(getters) > 4
        for number, get, keys in chain(head, rows):
            self._decide_unit([get])
            yield from self._of_row(get, number, keys)
        self._stated_unit.settle()

    def _decide_stamps(self, rows: Sequence[Cells]) -> None:
        """Determine the form of the times from the first rows."""
        if self._stamp_at is None or self._stamps is not None:
            return
        rank, key, unit_ns = self._stamp_at
        cells = [get(key) for get in rows]
        texts = [f"{cell}".strip()[:64] for cell in cells if cell is not None]
        if rank >= LAST_STAMP_RANK and not all(_EPOCH.match(text) for text in texts):
            self._stamp_at, self._counts_rows = None, True  # it counts training epochs
        else:
            self._decide(texts, unit_ns)

    def _decide(self, texts: Sequence[str], unit_ns: int) -> None:
        is_elapsed = is_elapsed_heading(self._stamp_heading)
        self._stamps = parser_among(texts, unit_ns, is_elapsed=is_elapsed)
        self._bare_times = without_unit(self._stamps, self._stamp_heading)
        self._clock = self._stamps.clock if self._stamps else NO_CLOCK

    def _decide_unit(self, rows: Sequence[Cells]) -> None:
        """Determine from the first rows whether columns without a unit are percent."""
        if not self._unsure:
            return
        if self._unit is None:
            cells = [str(get(columns.busy)) for columns in self._unsure for get in rows]
            self._unit = GuessedUnit.of(self._name, cells, way_out=_WAY_OUT)
        for columns in self._unsure:
            columns.unit, columns.full = self._unit, 100.0 if self._unit.is_percent else 1.0
        self._unsure.clear()

    def _of_row(self, get: Cells, number: int, keys: Collection[Hashable] | None) -> Rows:
        stamp_ns: int | None = None
        if self._stamp_at is not None:
            stamp_ns = self._stamp(get(self._stamp_at[1]), self._stamp_at[2])
            if stamp_ns is None:
                self._lose_row(Refusal.STAMP, number, len(self._columns))
                return
        self._read_totals(get)
        refused: Refusal | None = None
        columns_there = self._columns_of(keys)
        if self._has_other_rows and all(_is_blank(get(columns.busy)) for columns in columns_there):
            return
        for columns in columns_there:
            cell = get(columns.busy)
            if columns.is_blank_absent and _is_blank(cell):
                continue
            ratio = self._ratio(cell, columns, number)
            gpu = columns.position
            at_ns = self._row_clock.next_ns(gpu) if stamp_ns is None else stamp_ns
            if isinstance(ratio, Refusal):
                refused = refused or ratio
                yield LogSample(gpu, at_ns, None)
                continue
            self._has_answer = True
            _, used_at, unit_bytes = self._used.get(columns.gpu, _NO_MEMORY)
            used = None if used_at is None else get(used_at)
            yield LogSample(gpu, at_ns, ratio, bytes_of(used, unit_bytes=unit_bytes))
        if refused is not None:
            self._skipped.add(refused, number)

    def _columns_of(self, keys: Collection[Hashable] | None) -> Iterable[_GpuColumns]:
        """Return the columns that a row has, or whose absence means something."""
        if keys is None or len(keys) >= len(self._columns) or not self._may_be_absent:
            return self._columns.values()
        return [self._by_key[key] for key in keys if key in self._by_key]

    def _read_totals(self, get: Cells) -> None:
        for gpu in [gpu for gpu in self._total if gpu in self._columns]:
            key, unit_bytes = self._total[gpu]
            memory_bytes = bytes_of(get(key), unit_bytes=unit_bytes)
            if memory_bytes is not None:
                at = self._columns[gpu].position
                self._gpus.gpus[at] = replace(self._gpus.gpus[at], memory_bytes=memory_bytes)
                del self._total[gpu]

    def _notes(self) -> list[str]:
        notes = super()._notes()
        if self._stamps is not None and self._stamps.note:
            notes.append(self._stamps.note)
        if self._unit is not None:
            notes += self._unit.notes
        if self._has_more:
            notes.append(_MORE_GPUS)
        return notes

    def _place(self, key: Hashable, meaning: Heading, text: str) -> None:
        if meaning.column is Column.STAMP:
            if self._stamp_at is None or meaning.rank < self._stamp_at[0]:
                self._read_stamps_from(meaning.rank, key, meaning.unit, text)
            return
        gpu = meaning.gpu
        if gpu is None:
            return
        if meaning.column is Column.MEMORY_TOTAL:
            self._total.setdefault(gpu, (key, meaning.unit))
            return
        if meaning.column is Column.MEMORY_USED:
            if gpu not in self._used or meaning.rank < self._used[gpu][0]:
                self._used[gpu] = (meaning.rank, key, meaning.unit)
            return
        self._place_busy(key, gpu, meaning)

    def _read_stamps_from(self, rank: int, key: Hashable, unit_ns: int, heading: str) -> None:
        self._stamp_at = rank, key, unit_ns
        self._stamp_heading = heading
        self._counts_rows = False

    def _place_busy(self, key: Hashable, gpu: HeadingGpu, meaning: Heading) -> None:
        columns = self._columns.get(gpu)
        if columns is not None and columns.busy_rank <= meaning.rank:
            return
        if columns is None:
            logged = LoggedGpu(gpu.number, gpu.uuid, mig_index=gpu.mig_index)
            position = self._gpus.position(gpu, logged, gpu.owner)
            if position is None:
                self._has_more = True
                return
        else:
            position = columns.position
            self._unsure = [known for known in self._unsure if known is not columns]
            self._by_key.pop(columns.busy, None)
        columns = self._columns[gpu] = self._by_key[key] = _GpuColumns(
            gpu=gpu,
            position=position,
            busy=key,
            busy_rank=meaning.rank,
            full=1.0 if meaning.is_percent is False else 100.0,
            is_blank_absent=meaning.is_optional,
            unit=self._stated_unit if meaning.is_worded and meaning.is_percent else None,
        )
        self._may_be_absent = self._may_be_absent and columns.is_blank_absent
        if meaning.is_percent is None:
            self._unsure.append(columns)

    def _ratio(self, cell: object, columns: _GpuColumns, number: int) -> float | Refusal:
        if columns.unit is not None:
            columns.unit.check(cell, number)
        if isinstance(cell, str):
            cell = cell.strip().removesuffix("%").rstrip()
        return ratio_of(cell, full=columns.full)

    def _stamp(self, cell: object, unit_ns: int) -> int | None:
        if cell is None or isinstance(cell, bool):
            return None
        text = cell.strip() if isinstance(cell, str) else repr(cell)
        if "e" in text and _EXPONENT.fullmatch(text):
            text = f"{float(text):f}"
        if self._stamps is None:
            self._decide([text[:64]], unit_ns)
        return None if self._stamps is None else self._stamps.parse(text)


def _is_blank(cell: object) -> bool:
    return cell is None or cell == ""


_SEPARATORS: Final = ",;\t"
_HINT: Final = re.compile("gpu|cuda|device|util", re.I)
"""A line without any of these is no header and is not parsed."""
_MAX_COLUMNS: Final = 1 << 15
"""Three columns for each of 1,024 GPUs, ten times over."""
_VALUE: Final = re.compile(r"[-+]?[\d.]+\s*%?|\d{4}[-/]\d\d?[-/]\d.*|\[.*\]|N/A", re.ASCII)


def _mark(head: Sequence[str]) -> int | None:
    numbered = enumerate(head, start=1)
    return next((at for at, line in numbered if _wide_header(line) is not None), None)


class WideCsvLog(WideTable):
    """A CSV whose header names the GPU of each column."""

    title = "CSV with a column for each GPU"
    mark = _mark
    settable = (Column.STAMP,)
    yields_to_csv = True

    def __init__(self, lines: Iterator[str], *, name: str, options: LogOptions) -> None:
        super().__init__(lines, name=name, options=options)
        self._splitter = CellSplitter(",")
        self._header: Sequence[str] = ()

    def _read(self) -> Rows:
        numbered = self._numbered(MAX_PIECE)
        for _, line in numbered:
            separator = _wide_header(line)
            if separator is not None:
                self._splitter = CellSplitter(separator)
                self._header = cells_of(self._splitter, line)
                break
        self._learn(enumerate(self._header))
        rows = self._rows_of(numbered)
        yield from self._of_rows((at, cells.__getitem__, None) for at, cells in rows)

    def _rows_of(self, numbered: Iterable[tuple[int, str]]) -> Iterator[tuple[int, Sequence[str]]]:
        """Yield the rows below the header, without repeated headers and other tables."""
        width, is_our_table = len(self._header), True
        for number, line in numbered:
            cells = cells_of(self._splitter, line)
            if cells == self._header:
                is_our_table = True
            elif len(cells) == width:
                is_our_table = is_our_table and not (cells[0][:1].isalpha() and _wide_header(line))
                if is_our_table:
                    yield number, cells
                else:
                    self._skipped.add(Refusal.OTHER_HEADER, number)
            elif line.strip():
                self._lose_row(Refusal.WIDTH, number, len(self._columns))


def cells_of(splitter: CellSplitter, line: str) -> list[str]:
    """Return the cells of a line without surrounding blanks."""
    return [cell.strip() for cell in splitter.split(line.rstrip("\r\n"))]


def _wide_header(line: str) -> str | None:
    """Return the separator of a line that is the header of a wide table; else ``None``."""
    bare = line.strip()
    if not bare or bare[0] in "{[" or '": ' in bare or not _HINT.search(bare):
        return None
    for separator in [mark for mark in _SEPARATORS if mark in bare] or _SEPARATORS[:1]:
        if bare.count(separator) >= _MAX_COLUMNS:
            continue
        cells = cells_of(CellSplitter(separator), line)
        if any(_VALUE.fullmatch(cell) for cell in cells):
            continue
        meanings = [meant for cell in cells if (meant := heading_of(cell)) is not None]
        busy = [
            meaning for meaning in meanings if meaning.column is Column.UTILIZATION and meaning.gpu
        ]
        if all(meaning.rank == 2 for meaning in busy) and "" in cells:
            continue  # dstat names the GPUs alone in a line above the header
        # A heading with both GPU and utilisation is enough; `gpu0` alone is not.
        own = any(meaning.rank == 0 for meaning in busy)
        has_time = any(meaning.column in (Column.STAMP, Column.DATE) for meaning in meanings)
        if own or (busy and (has_time or len({meaning.gpu for meaning in busy}) > 1)):
            return separator
    return None


_MAX_KEYS: Final = 65_536


class WideJsonLog(WideTable):
    """One JSON object for each time, whose keys name the GPUs. Keys may come and go."""

    title = "JSON with a key for each GPU"
    mark = line_like(
        r'"(?:[^"]+ - )?system[./]gpu\.\d+\.gpu(?:/l:[^"]+)?"\s*:'
        r'|/(?:cuda:\d+ \()?gpu:[^"/]+/gpu_utilization \(%\)(?:/\w+)?"\s*:'
    )
    settable = (Column.STAMP,)
    nothing = "no object with a utilisation."

    def _read(self) -> Rows:
        documents = JsonDocuments(self._lines, name=self._name, skipped=self._skipped)
        yield from self._of_rows(self._rows_of(documents))
        self._broken_off = documents.broken_off
        self._lost_rows += documents.left_out * len(self._columns)

    def _rows_of(self, documents: JsonDocuments) -> Iterator[WideRow]:
        known: set[str] = set()
        for number, document in documents:
            row = {key: one for key, one in document.items() if not isinstance(one, (dict, list))}
            if len(known) < _MAX_KEYS and not known.issuperset(row):
                added = [key for key in row if key not in known]
                self._learn(zip(added, added, strict=True))
                known.update(added)
            yield number, row.get, row.keys()
