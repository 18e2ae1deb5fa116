"""CSVs with a row for each moment and a column for each GPU: of W&B, of nvitop, of anybody."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Final

from gpumon.sources.logs.gpu_log import Rows
from gpumon.sources.logs.log_sample import LogOptions
from gpumon.sources.logs.table.csv_cells import CellSplitter
from gpumon.sources.logs.table.headings import Column
from gpumon.sources.logs.table.skipped_lines import Refusal
from gpumon.sources.logs.table.wide_headings import Dialect, Quantity, meaning_of
from gpumon.sources.logs.wide_table import LOOKED_AT_ROWS, WideTable

_SEPARATORS: Final = ",;\t"
_MAX_LINE: Final = 1 << 20
_HINT: Final = re.compile("gpu|cuda|device|util", re.I)
"""A line without any of these is no header, and need not be taken apart to know it."""
_MOST_COLUMNS: Final = 1 << 15
"""Three columns of each of 1,024 GPUs, ten times over."""
_VALUE: Final = re.compile(r"[-+]?[\d.]+\s*%?|\d{4}[-/]\d\d?[-/]\d.*|\[.*\]|N/A", re.ASCII)


def _mark(head: Sequence[str]) -> int | None:
    numbered = enumerate(_whole_lines(iter(head)), start=1)
    return next((at for at, line in numbered if _wide_header(line) is not None), None)


class WideCsvLog(WideTable):
    """One CSV whose header says which columns are of which GPU."""

    title = "CSV with a column for each GPU"
    mark = _mark
    settable = (Column.UTILIZATION, Column.STAMP)

    def __init__(self, lines: Iterator[str], *, name: str, options: LogOptions) -> None:
        super().__init__(_whole_lines(lines), name=name, options=options)
        self._splitter = CellSplitter(",")
        self._header: Sequence[str] = ()

    def _read(self) -> Rows:
        numbered = enumerate(self._lines, start=1)
        for _, line in numbered:
            separator = _wide_header(line)
            if separator is not None:
                self._splitter = CellSplitter(separator)
                self._header = _cells_of(self._splitter, line)
                break
        self._learn(enumerate(self._header))
        self._require_gpus()
        rows = self._rows_of(numbered)
        head = list(islice(rows, LOOKED_AT_ROWS))
        self._decide_stamps([cells.__getitem__ for _, cells in head])
        self._decide_unit([cells.__getitem__ for _, cells in head])
        for number, cells in chain(head, rows):
            yield from self._of_row(cells.__getitem__, number)

    def _rows_of(self, numbered: Iterable[tuple[int, str]]) -> Iterator[tuple[int, Sequence[str]]]:
        """The rows under the header; its repetitions and blank lines are none."""
        width = len(self._header)
        for number, line in numbered:
            cells = _cells_of(self._splitter, line)
            if len(cells) == width:
                if cells != self._header:
                    yield number, cells
            elif line.strip():
                self._skipped.add(Refusal.WIDTH, number)


def _whole_lines(pieces: Iterator[str]) -> Iterator[str]:
    """Lines put together again out of their pieces; what is too long for one stays cut."""
    waiting = ""
    for piece in pieces:
        if not waiting and piece.endswith("\n"):
            yield piece
            continue
        waiting += piece
        if piece.endswith("\n") or len(waiting) >= _MAX_LINE:
            yield waiting
            waiting = ""
    if waiting:
        yield waiting


def _cells_of(splitter: CellSplitter, line: str) -> list[str]:
    return [cell.strip() for cell in splitter.split(line.rstrip("\r\n"))]


def _wide_header(line: str) -> str | None:
    """The separator of a line that is the header of a wide table; ``None``: it is none."""
    bare = line.strip()
    if not bare or "{" in bare or not _HINT.search(bare):
        return None
    for separator in [one for one in _SEPARATORS if one in bare] or _SEPARATORS[:1]:
        if bare.count(separator) >= _MOST_COLUMNS:
            continue
        cells = _cells_of(CellSplitter(separator), line)
        if any(_VALUE.fullmatch(cell) for cell in cells):
            continue
        meanings = [meaning for cell in cells if (meaning := meaning_of(cell)) is not None]
        busy = [one for one in meanings if one.quantity is Quantity.UTILIZATION]
        # Headings that only a wide table has give it away alone; `gpu0` needs company.
        own = any(one.dialect is not Dialect.PLAIN for one in busy)
        has_time = any(one.quantity is Quantity.STAMP for one in meanings)
        if own or (busy and (has_time or len({one.gpu for one in busy}) > 1)):
            return separator
    return None


FORMAT: Final = WideCsvLog
