"""A picture in points, before anything paints it: its marks, its inks, how wide its texts are."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final


class Ink(str, Enum):
    """What a mark stands for; each painter has a colour or a pattern for it."""

    PAPER = "paper"
    TEXT = "text"
    QUIET = "quiet"
    RULE = "rule"
    BUSY = "busy"
    IN_USE = "in-use"
    NOT_IN_USE = "not-in-use"
    UNOBSERVED = "unobserved"
    """Hatched."""
    LOST = "lost"
    LOST_GROUND = "lost-ground"
    NONE = "none"
    """Not painted: a place that says something to the pointer."""


class Anchor(str, Enum):
    """Which part of a text its place names."""

    START = "start"
    MIDDLE = "middle"
    END = "end"


@dataclass(frozen=True, slots=True)
class Box:
    """A filled rectangle; ``title`` is shown to the pointer, where there is one."""

    left: float
    top: float
    width: float
    height: float
    ink: Ink
    title: str = ""


@dataclass(frozen=True, slots=True)
class Steps:
    """Filled columns of one width, side by side on a line: a share over time."""

    left: float
    bottom: float
    column_width: float
    heights: tuple[float, ...]
    ink: Ink


@dataclass(frozen=True, slots=True)
class Line:
    """A hair line, across or down."""

    left: float
    top: float
    right: float
    bottom: float
    ink: Ink


@dataclass(frozen=True, slots=True)
class Text:
    """One line of text on a baseline."""

    left: float
    baseline: float
    words: str
    size: float
    ink: Ink = Ink.TEXT
    anchor: Anchor = Anchor.START
    bold: bool = False


Mark = Box | Steps | Line | Text


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture.

    Attributes:
        width: In points, as every other length.
        height: Likewise.
        description: What it shows, for who cannot see it.
        marks: From the lowest to the uppermost.
    """

    width: float
    height: float
    description: str
    marks: tuple[Mark, ...]


LIGHT: Final[Mapping[Ink, str]] = MappingProxyType(
    {
        Ink.PAPER: "#ffffff",
        Ink.TEXT: "#17202b",
        Ink.QUIET: "#566273",
        Ink.RULE: "#c3cbd5",
        Ink.BUSY: "#5b9bc8",
        Ink.IN_USE: "#ffffff",
        Ink.NOT_IN_USE: "#e6e9ee",
        Ink.UNOBSERVED: "#98a2ae",
        Ink.LOST: "#b93600",
        Ink.LOST_GROUND: "#ffd8bd",
    }
)
"""Blue and a dark vermilion: they differ in hue for every eye, and in lightness without hue."""

DARK: Final[Mapping[Ink, str]] = MappingProxyType(
    {
        Ink.PAPER: "#18202a",
        Ink.TEXT: "#e8edf3",
        Ink.QUIET: "#9aa7b6",
        Ink.RULE: "#445264",
        Ink.BUSY: "#3f80b2",
        Ink.IN_USE: "#10161d",
        Ink.NOT_IN_USE: "#2a3542",
        Ink.UNOBSERVED: "#66748a",
        Ink.LOST: "#ff9a63",
        Ink.LOST_GROUND: "#5b2b12",
    }
)

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
