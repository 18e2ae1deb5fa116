"""How the screen draws: safe text, bars and spark lines, in colours and blocks, or in ASCII."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from gpumon.core.phase import IdleCause
from gpumon.core.view.palette import DARK
from gpumon.core.view.view import BUSY, PENDING, RecentCells
from gpumon.core.wording import label_text
from gpumon.outlets.text.style import TextStyle, wrapped

_MOST_CHARACTERS: Final = 4_000
NARROW: Final = 40
"""Columns below which paragraphs are not indented."""
_EIGHTHS: Final = "▁▂▃▄▅▆▇█"
_ASCII_LEVELS: Final = "_.-=+*#"
_IN_ASCII: Final = str.maketrans({"\N{EN DASH}": "-", "·": "-", "→": ">", "…": "~", "°": " "})
_SHOWN_LOSS: Final = 0.05
"""Share of a cell from which its greatest loss colours the cell's ground."""
_NOT_LOST: Final = frozenset({BUSY, PENDING, IdleCause.NOT_IN_USE.value})


def styled(text: str, style: str) -> Text:
    """Text in a style. As a span: of a text without any, rich's segments have no style."""
    line = Text(text, no_wrap=True)
    if style:
        line.stylize(style)
    return line


class Ink:
    """Draws text for one terminal.

    Args:
        style: What the terminal can show.
    """

    def __init__(self, style: TextStyle) -> None:
        self.unicode, self.has_colour = style.unicode, style.colour
        self._style = style

    def colour(self, name: str) -> str:
        """The colour of a part of time, a tone or a use; empty where there are no colours."""
        found: str = getattr(DARK, name, DARK.other) if self.has_colour else ""
        return found

    def plain(self, text: str) -> str:
        """Text in letters that the terminal can show."""
        return text if self.unicode else self._style.plain(text.translate(_IN_ASCII))

    def text(self, raw: object, style: str = "") -> Text:
        """Text from anywhere, without control characters or markup, on one line."""
        shown = self.plain(label_text(raw, _MOST_CHARACTERS))
        return styled(shown, style)

    def fitted(self, text: Text, width: int, *, right: bool = False) -> Text:
        """The same text, now ``width`` columns wide; a longer one ends with an ellipsis."""
        missing = width - cell_len(text.plain)
        if missing < 0:
            text.truncate(max(0, width - 1))
            text.append(self.plain("…") if width > 0 else "")
        elif right:
            text.pad_left(missing)
        else:
            text.pad_right(missing)
        return text

    def paragraph(self, raw: object, width: int, *, first: str = "", style: str = "") -> list[Text]:
        """A paragraph in lines of at most ``width`` columns; the others are indented as the first.

        In a narrow terminal they are not.
        """
        safe = self.plain(label_text(raw, _MOST_CHARACTERS))
        if width < NARROW:
            safe, first = f"{' '.join(first.split())} {safe}".strip(), ""
        lines = wrapped(safe, first=first, width=max(1, width))
        return [
            styled(line if cell_len(line) <= width else set_cell_size(line, width), style)
            for line in lines
        ]

    def bar(self, shares: Mapping[str, float], width: int) -> Text:
        """Shares of one whole, by part of time, as a bar of ``width`` columns."""
        drawn, left, carried = Text(), width, 0.0
        full, ground = ("█", "·") if self.unicode else ("#", ".")
        for part, share in shares.items():
            carried += min(1.0, max(0.0, share)) * width
            count = min(left, round(carried))
            drawn.append(full * count, self.colour(part))
            left, carried = left - count, carried - count
        drawn.append(ground * left, self.colour("rule"))
        return drawn

    def spark(self, cells: RecentCells, width: int) -> Text:
        """The last minutes, newest at the right: as high as the GPU was busy.

        The ground of a column has the colour of its greatest loss. A column without observed time
        is empty.
        """
        drawn = Text()
        for style, columns in groupby(
            map(self._spark_column, _groups(cells, width)), itemgetter(1)
        ):
            drawn.append("".join(level for level, _ in columns), style)
        return drawn

    def _spark_column(self, group: Mapping[str, float]) -> tuple[str, str]:
        """One column, and its style."""
        observed = sum(group.values())
        if observed <= 0:
            return " ", ""
        share = group.get(BUSY, 0.0) / observed
        lost = [(length, part) for part, length in group.items() if part not in _NOT_LOST]
        most, worst = max(lost, default=(0.0, ""))
        is_shown = self.has_colour and most >= _SHOWN_LOSS * observed
        ground = f" on {self.colour(worst)}" if is_shown else ""
        levels = _EIGHTHS if self.unicode else _ASCII_LEVELS
        level = levels[min(len(levels) - 1, int(share * len(levels)))]
        return level, f"{self.colour(BUSY)}{ground}"


def _groups(cells: RecentCells, width: int) -> Sequence[Mapping[str, float]]:
    """Seconds by part in each of ``width`` columns; the oldest may be empty."""
    count = max((len(lengths) for lengths in cells.parts.values()), default=0)
    if width <= 0 or not count:
        return [{}] * max(0, width)
    columns = min(width, count)
    found: list[dict[str, float]] = [{} for _ in range(columns)]
    for part, lengths in cells.parts.items():
        for at, length in enumerate(lengths):
            column = found[at * columns // count]
            column[part] = column.get(part, 0.0) + length
    return [{}] * (width - columns) + found
