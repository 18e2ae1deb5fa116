"""Splits the lines of a CSV into cells: the separator, and quotes."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

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
