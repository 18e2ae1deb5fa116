"""How a text is set: in 80 columns, in colour or none, in blocks or ASCII."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TextIO

WIDTH: Final = 80
"""Columns of every text report."""

_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_BEFORE_UNIT: Final = re.compile(r"(?<=\d) (?=(?:s|%)(?!\w))")
_TIMES: Final = "\N{MULTIPLICATION SIGN}"
_NO_BREAK: Final = "\N{NO-BREAK SPACE}"
_RESET: Final = "\x1b[0m"
_CODES: Final = {"red": "\x1b[31m", "yellow": "\x1b[33m", "green": "\x1b[32m", "bold": "\x1b[1m"}


@dataclass(frozen=True, slots=True)
class TextStyle:
    """What a stream can show.

    Attributes:
        colour: Whether it understands colours.
        unicode: Whether it can show blocks and arrows.
    """

    colour: bool = False
    unicode: bool = True

    @property
    def arrow(self) -> str:
        """The mark at the main cause."""
        return "◀" if self.unicode else "<-"

    def painted(self, text: str, colour: str) -> str:
        """The text in a colour (``red``, ``yellow``, ``green``, ``bold``), where there is any."""
        return f"{_CODES[colour]}{text}{_RESET}" if self.colour else text

    def bar(self, ratio: float, width: int) -> str:
        """A share as a bar, padded to ``width`` columns.

        >>> TextStyle(unicode=False).bar(0.5, 8)
        '####    '
        """
        share = min(1.0, max(0.0, ratio))
        if not self.unicode:
            return ("#" * round(share * width)).ljust(width)
        eighths = round(share * width * 8)
        full, rest = divmod(eighths, 8)
        return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width)

    def plain(self, text: str) -> str:
        """The text in letters that the stream can show."""
        if self.unicode:
            return text
        return text.replace(_TIMES, "x").encode("ascii", "replace").decode("ascii")


def style_for(stream: TextIO, environ: Mapping[str, str]) -> TextStyle:
    """What this stream can show.

    Colour needs a terminal and no ``NO_COLOR`` (https://no-color.org); blocks
    need UTF-8.
    """
    encoding = (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "")
    is_terminal = stream.isatty() and environ.get("TERM") != "dumb"
    return TextStyle(
        colour=is_terminal and not environ.get("NO_COLOR"),
        unicode=encoding == "utf8",
    )


def wrapped(text: str, *, first: str = "", width: int = WIDTH) -> list[str]:
    """A paragraph in lines of at most ``width`` columns, no number parted from its unit.

    The first line begins with ``first``; the others are indented as far.
    """
    lines = textwrap.wrap(
        _BEFORE_UNIT.sub(_NO_BREAK, text),
        width,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_on_hyphens=False,  # an option that is cut in two cannot be copied
    )
    return [line.replace(_NO_BREAK, " ") for line in lines]


def bullets(title: str, texts: Iterable[str]) -> str:
    """Paragraphs under a title, in lines of at most 80 columns; empty where there is none."""
    lines = [line for text in texts for line in wrapped(text, first="  - ")]
    return "\n".join([title, *lines]) if lines else ""
