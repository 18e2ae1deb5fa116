"""Paints a picture as SVG."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import groupby
from typing import Final

from gpumon.outlets.plot.drawing import LIGHT, Anchor, Box, Drawing, Ink, Line, Mark, Steps, Text

FONTS: Final = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
_HATCH: Final = "gpumon-unobserved"


def svg_text(drawing: Drawing) -> str:
    """One ``svg`` element.

    It has its colours on light paper; a page can give it others, by the
    class ``ink-`` and the ink's name of each element.
    """
    width, height = _number(drawing.width), _number(drawing.height)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="{escape(drawing.description)}" '
        f'font-family="{escape(FONTS)}">',
        f'<defs><pattern id="{_HATCH}" width="5" height="5" patternUnits="userSpaceOnUse">'
        f'<path d="M-1 1 1 -1M0 5 5 0M4 6 6 4" stroke="{LIGHT[Ink.UNOBSERVED]}" fill="none" '
        'class="line-unobserved"/></pattern></defs>',
        *(element for mark in drawing.marks for element in _painted(mark)),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _painted(mark: Mark) -> Iterator[str]:
    if isinstance(mark, Box):
        yield from _box(mark)
    elif isinstance(mark, Steps):
        path = _outline(mark)
        if path:
            yield f'<path d="{path}" {_fill(mark.ink)} shape-rendering="crispEdges"/>'
    elif isinstance(mark, Line):
        ends = ("x1", mark.left), ("y1", mark.top), ("x2", mark.right), ("y2", mark.bottom)
        places = " ".join(f'{name}="{_number(place)}"' for name, place in ends)
        colour = LIGHT[mark.ink]
        yield f'<line {places} stroke="{colour}" stroke-width=".75" class="line-{mark.ink.value}"/>'
    else:
        yield _text(mark)


def _box(box: Box) -> Iterator[str]:
    sides = ("x", box.left), ("y", box.top), ("width", box.width), ("height", box.height)
    places = " ".join(f'{name}="{_number(place)}"' for name, place in sides)
    if box.title:
        yield f"<rect {places} {_fill(box.ink)}><title>{escape(box.title)}</title></rect>"
    else:
        yield f"<rect {places} {_fill(box.ink)}/>"


def _text(text: Text) -> str:
    anchor = "" if text.anchor is Anchor.START else f' text-anchor="{text.anchor.value}"'
    weight = ' font-weight="bold"' if text.bold else ""
    return (
        f'<text x="{_number(text.left)}" y="{_number(text.baseline)}" '
        f'font-size="{_number(text.size)}"{anchor}{weight} {_fill(text.ink)}>'
        f"{escape(text.words)}</text>"
    )


def _fill(ink: Ink) -> str:
    if ink is Ink.NONE:
        return 'fill="none" pointer-events="all"'
    if ink is Ink.UNOBSERVED:
        return f'fill="url(#{_HATCH})"'
    return f'fill="{LIGHT[ink]}" class="ink-{ink.value}"'


def _outline(steps: Steps) -> str:
    """One path around all columns, from step to step: those of a height are one."""
    parts: list[str] = []
    column, level = 0, 0
    for tenths, run in groupby(steps.heights, key=lambda height: round(10 * height)):
        first, column = column, column + len(list(run))
        if tenths and not level:
            left = steps.left + first * steps.column_width
            parts.append(f"M{_number(left)} {_number(steps.bottom)}")
        if tenths:
            width = (column - first) * steps.column_width
            parts.append(f"v{_number((level - tenths) / 10)}h{_number(width)}")
        elif level:
            parts.append(f"v{_number(level / 10)}z")
        level = tenths
    if level:
        parts.append(f"v{_number(level / 10)}z")
    return "".join(parts)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
