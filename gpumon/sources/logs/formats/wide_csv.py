"""CSVs with a row for each moment and a column for each GPU: of W&B, of nvitop, of anybody."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from gpumon.sources.logs.gpu_log import Rows
from gpumon.sources.logs.log_sample import LogOptions
from gpumon.sources.logs.log_text import MAX_PIECE
from gpumon.sources.logs.table.columns import Column
from gpumon.sources.logs.table.csv_cells import CellSplitter
from gpumon.sources.logs.table.headings import heading_of
from gpumon.sources.logs.table.skipped_lines import Refusal
from gpumon.sources.logs.wide_table import WideTable

_SEPARATORS: Final = ",;\t"
_HINT: Final = re.compile("gpu|cuda|device|util", re.I)
"""A line without any of these is no header, and need not be taken apart to know it."""
_MOST_COLUMNS: Final = 1 << 15
"""Three columns of each of 1,024 GPUs, ten times over."""
_VALUE: Final = re.compile(r"[-+]?[\d.]+\s*%?|\d{4}[-/]\d\d?[-/]\d.*|\[.*\]|N/A", re.ASCII)


def _mark(head: Sequence[str]) -> int | None:
    numbered = enumerate(head, start=1)
    return next((at for at, line in numbered if _wide_header(line) is not None), None)


class WideCsvLog(WideTable):
    """One CSV whose header says which columns are of which GPU."""

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
        """The rows under the header; its repetitions, blank lines and other tables are none."""
        width, is_ours = len(self._header), True
        for number, line in numbered:
            cells = cells_of(self._splitter, line)
            if cells == self._header:
                is_ours = True
            elif len(cells) == width:
                is_ours = is_ours and not (cells[0][:1].isalpha() and _wide_header(line))
                if is_ours:
                    yield number, cells
                else:
                    self._skipped.add(Refusal.HEADER, number)
            elif line.strip():
                self._lose_row(Refusal.WIDTH, number, len(self._columns))


def cells_of(splitter: CellSplitter, line: str) -> list[str]:
    """The cells of a line without the blanks around them."""
    return [cell.strip() for cell in splitter.split(line.rstrip("\r\n"))]


def _wide_header(line: str) -> str | None:
    """The separator of a line that is the header of a wide table; ``None``: it is none."""
    bare = line.strip()
    if not bare or bare[0] in "{[" or '": ' in bare or not _HINT.search(bare):
        return None
    for separator in [one for one in _SEPARATORS if one in bare] or _SEPARATORS[:1]:
        if bare.count(separator) >= _MOST_COLUMNS:
            continue
        cells = cells_of(CellSplitter(separator), line)
        if any(_VALUE.fullmatch(cell) for cell in cells):
            continue
        meanings = [meant for cell in cells if (meant := heading_of(cell)) is not None]
        busy = [one for one in meanings if one.column is Column.UTILIZATION and one.gpu]
        if all(one.rank == 2 for one in busy) and "" in cells:
            continue  # dstat names the GPUs alone, in a line above that of the columns
        # Headings that say both GPU and utilisation give it away alone; `gpu0` needs company.
        own = any(one.rank == 0 for one in busy)
        has_time = any(one.column in (Column.STAMP, Column.DATE) for one in meanings)
        if own or (busy and (has_time or len({one.gpu for one in busy}) > 1)):
            return separator
    return None


FORMAT: Final = WideCsvLog
