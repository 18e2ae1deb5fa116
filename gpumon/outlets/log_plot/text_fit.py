"""How wide a text is at most, in whichever font it is shown, and how to make it fit."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

# Of each character, in shares of the font's size, the width in the widest of the usual
# sans-serif fonts (DejaVu Sans; Verdana, Arial and Helvetica are no wider).
_WIDTHS: Final = {
    character: width
    for width, characters in (
        (0.28, "ijl'"), (0.32, "I,. "), (0.36, "f/:;\\|"), (0.40, "t()-[]"), (0.44, "r!"),
        (0.48, '"'), (0.52, "_`"), (0.56, "cszJ*?"), (0.60, "kvxyFL"),
        (0.64, "0123456789abdeghnopquEPSTY${}"), (0.68, "K"), (0.72, "ABCRVXZ"), (0.76, "HNU"),
        (0.80, "DGOQ&"), (0.84, "w#+<=>^~"), (0.88, "M"), (0.96, "%"), (1.0, "mW@…"),
    )
    for character in characters
}  # fmt: skip
_OTHER_WIDTH: Final = 1.05
_WIDE_WIDTH: Final = 1.4
_BOLD: Final = 1.17
_CUT_MARK: Final = "…"
_NO_BREAK_HERE: Final = re.compile(r"(?<=\d) (?=(?:s|%|min|h|d)(?!\w))|(?<=\bGPU) (?=\d)")
_NO_BREAK: Final = "\N{NO-BREAK SPACE}"


def text_width(words: str, size: float, *, bold: bool = False) -> float:
    """The most room a line of text takes, in the unit of ``size``."""
    shares = sum(_WIDTHS.get(character) or _width_of(character) for character in words)
    return shares * size * (_BOLD if bold else 1.0)


def fitted(words: str, room: float, size: float, *, bold: bool = False) -> str:
    """The text, cut with an ellipsis where it is wider than ``room``."""
    if text_width(words, size, bold=bold) <= room:
        return words
    kept = words
    while kept and text_width(kept + _CUT_MARK, size, bold=bold) > room:
        kept = kept[:-1]
    return kept.rstrip() + _CUT_MARK if kept else ""


def in_lines(
    words: str, room: float, size: float, *, bold: bool = False, most: int = 3
) -> list[str]:
    """The text in lines no wider than ``room``, no number parted from its unit or its GPU.

    What does not fit in ``most`` lines is cut, with an ellipsis.
    """
    lines: list[str] = []
    line = ""
    for word in _NO_BREAK_HERE.sub(_NO_BREAK, words).split(" "):
        longer = f"{line} {word}" if line else word
        if line and text_width(longer.replace(_NO_BREAK, " "), size, bold=bold) > room:
            lines.append(line)
            line = word
        else:
            line = longer
    lines.append(line)
    if len(lines) > most:
        lines = [*lines[: most - 1], " ".join(lines[most - 1 :])]
    return [fitted(line.replace(_NO_BREAK, " "), room, size, bold=bold) for line in lines]


def _width_of(character: str) -> float:
    if unicodedata.east_asian_width(character) in "WF":
        return _WIDE_WIDTH
    return _OTHER_WIDTH
