"""Lines of a CSV log as cells: the separator, quotes, and cells that hold a line end."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from gpumon.sources.logs.log_text import MAX_PIECE

_SEPARATORS: Final = "\t;,"
_QUOTED: Final = re.compile(r'"[^"]*"')
_VALUES_BETWEEN_BLANKS: Final = re.compile(r"\d\S*(?:\s+(?:\d\S*|%))+", re.ASCII)
_UNIT_APART: Final = re.compile(r"(?<=\d) (?=%)")
_MOST_LINES_A_ROW: Final = 64
"""A quote that is open for longer was never closed: its logger was killed."""
BLANKS: Final = " "
"""In place of a separator: cells are set apart by any number of blanks."""


def separator_of(head: Sequence[str]) -> str:
    """The separator that most of the first lines have; a comma in doubt.

    A comma within a number, as many countries write it, is in fewer lines
    than a separator, or in as many: then the other one is the separator.

    Where more lines are values between blanks and have no separator, they count.

    >>> separator_of(["time;util", "0,5;12"]), separator_of(["a,b", "c,d"]), separator_of(["1 2"])
    (';', ',', ' ')
    >>> separator_of(["$ ask --for=time,util", "0 93 %", "1 95 %"])
    ' '
    """
    bare = [_QUOTED.sub("", line.strip()) for line in head if line.strip()]
    found = {sign: sum(sign in line for line in bare) for sign in _SEPARATORS}
    if found["\t"] == sum(",\t" in line for line in bare):
        found["\t"] = 0  # set after each comma for the eye
    best = max(_SEPARATORS, key=lambda sign: found[sign])
    apart = [line for line in bare if best not in line and _VALUES_BETWEEN_BLANKS.fullmatch(line)]
    if found[best] and found[best] >= len(apart):
        return best
    widths = Counter(len(_cells_between_blanks(line)) for line in bare)
    usual = widths.most_common(1)
    return BLANKS if usual and usual[0][0] > 1 else ","


def _cells_between_blanks(line: str) -> list[str]:
    """Cells of a line that has no separator but blanks; ``45 %`` is one of them."""
    return _UNIT_APART.sub("", line).split()


class CellSplitter:
    """Splits the lines of one log at a separator, as ``separator_of`` has it."""

    def __init__(self, separator: str) -> None:
        self.separator = separator

    def split(self, line: str) -> Sequence[str]:
        """Cells of one line."""
        if '"' in line:
            return self._quoted_cells([line])
        if self.separator == BLANKS:
            return _cells_between_blanks(line)
        return line.split(self.separator)

    def rows(self, lines: Sequence[str]) -> list[Sequence[str]]:
        """Cells of several lines, for a first look."""
        rows: list[Sequence[str]] = []
        feed = iter(lines)
        for line in feed:
            if is_open(line):
                cells, taken = self.joined(line, feed)
                rows += [cells] if cells else [self.split(one) for one in (line, *taken)]
            else:
                rows.append(self.split(line))
        return rows

    def joined(self, line: str, following: Iterator[str]) -> tuple[Sequence[str], list[str]]:
        """The cells of a row one of whose cells holds a line end.

        Args:
            line: Its first line, in which a quote stays open.
            following: The lines after it; as many as are needed are taken.

        Returns:
            The cells, empty where the quote is never closed; and the lines taken.
        """
        taken: list[str] = []
        for more in following:
            taken.append(more)
            if is_open(more):
                return self._quoted_cells([line, *taken]), taken
            if len(taken) >= _MOST_LINES_A_ROW or len(more) >= MAX_PIECE:
                break
        return (), taken

    def _quoted_cells(self, lines: Sequence[str]) -> Sequence[str]:
        try:
            return next(csv.reader(lines, delimiter=self.separator, skipinitialspace=True), [])
        except csv.Error:
            return []


def is_open(line: str) -> bool:
    """Whether a line leaves a quote open, or closes one."""
    return line.count('"') % 2 == 1
