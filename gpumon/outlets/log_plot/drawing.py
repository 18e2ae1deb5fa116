"""A picture as a list of boxes, steps, lines and texts, in points, before anything paints it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


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
