"""A plot with axes, a legend and nothing else to install: SVG, written by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

_WIDTH: Final = 760
_HEIGHT: Final = 460
_LEFT: Final = 76
_RIGHT: Final = 24
_TOP: Final = 84
_BOTTOM: Final = 62
_COLOURS: Final = ("#2563eb", "#ea580c", "#16a34a", "#9333ea", "#0891b2", "#be123c")
_INK: Final = "#1f2937"
_FAINT: Final = "#6b7280"
_GRID: Final = "#e5e7eb"
_TICKS: Final = 6


@dataclass(frozen=True, slots=True)
class Series:
    """Points to be shown.

    Attributes:
        name: In the legend.
        points: ``(x, y)``, both 0 or more.
        is_line: Joined by a line; else points alone.
        is_faint: Something to compare with: grey and dashed.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    is_line: bool = True
    is_faint: bool = False


@dataclass(frozen=True, slots=True)
class Plot:
    """What is on it: a title, a line below that, and a name with its unit for each axis."""

    title: str
    below_title: str
    x_name: str
    y_name: str
    series: tuple[Series, ...]


def svg_of(plot: Plot) -> str:
    """The file's text."""
    points = [point for series in plot.series for point in series.points] or [(1.0, 1.0)]
    x_ticks = _ticks(max(x for x, _ in points))
    y_ticks = _ticks(max(y for _, y in points))
    frame = _Frame(x_ticks[-1], y_ticks[-1])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" height="{_HEIGHT}" role="img" '
        'font-family="system-ui, -apple-system, Segoe UI, sans-serif">',
        f"<title>{escape(plot.title)}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        _text(_LEFT, 28, plot.title, size=17, weight=600),
        _text(_LEFT, 48, plot.below_title, size=12, colour=_FAINT),
        *_axes(plot, frame, x_ticks, y_ticks),
        *(_shown(series, at, frame) for at, series in enumerate(plot.series)),
        *_legend(plot.series),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


@dataclass(frozen=True, slots=True)
class _Frame:
    x_most: float
    y_most: float

    def x(self, value: float) -> float:
        return _LEFT + value / self.x_most * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        return _HEIGHT - _BOTTOM - value / self.y_most * (_HEIGHT - _TOP - _BOTTOM)


def _axes(
    plot: Plot, frame: _Frame, x_ticks: Sequence[float], y_ticks: Sequence[float]
) -> list[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    parts = []
    for tick in y_ticks:
        y = frame.y(tick)
        parts.append(_line(_LEFT, y, right, y, _GRID))
        parts.append(_text(_LEFT - 10, y + 4, f"{tick:,g}", anchor="end", colour=_FAINT))
    for tick in x_ticks:
        x = frame.x(tick)
        parts.append(_line(x, bottom, x, bottom + 5, _FAINT))
        parts.append(_text(x, bottom + 20, f"{tick:,g}", anchor="middle", colour=_FAINT))
    middle = (_TOP + bottom) / 2
    parts += [
        _line(_LEFT, bottom, right, bottom, _FAINT),
        _text((_LEFT + right) / 2, _HEIGHT - 16, plot.x_name, size=13, anchor="middle"),
        f'<g transform="translate(20 {middle:.1f}) rotate(-90)">'
        f"{_text(0, 0, plot.y_name, size=13, anchor='middle')}</g>",
    ]
    return parts


def _shown(series: Series, at: int, frame: _Frame) -> str:
    colour = _colour(series, at)
    places = [(frame.x(x), frame.y(y)) for x, y in series.points]
    parts = []
    if series.is_line and len(places) > 1:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        dashes = ' stroke-dasharray="6 5"' if series.is_faint else ""
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.2" '
            f'stroke-linejoin="round"{dashes}/>'
        )
    if not series.is_faint:
        for (x, y), (value_x, value_y) in zip(places, series.points, strict=True):
            tip = f"<title>{escape(series.name)}: {value_x:,g}, {value_y:,.0f}</title>"
            radius = 4 if series.is_line else 6
            parts.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}" '
                f'stroke="#ffffff" stroke-width="1.5">{tip}</circle>'
            )
    return "".join(parts)


def _legend(series: Sequence[Series]) -> list[str]:
    parts, x = [], float(_LEFT)
    for at, one in enumerate(series):
        colour = _colour(one, at)
        if one.is_line:
            parts.append(_line(x, 66, x + 18, 66, colour, width=3))
        else:
            parts.append(f'<circle cx="{x + 9:.1f}" cy="66" r="5" fill="{colour}"/>')
        parts.append(_text(x + 25, 70, one.name))
        x += 25 + 7.0 * len(one.name) + 22
    return parts


def _colour(series: Series, at: int) -> str:
    return "#9ca3af" if series.is_faint else _COLOURS[at % len(_COLOURS)]


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, *, width: float = 1) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
        f'stroke="{colour}" stroke-width="{width:g}"/>'
    )


def _text(  # noqa: PLR0913 (a place, words and how they look)
    x: float,
    y: float,
    words: str,
    *,
    size: int = 12,
    anchor: str = "start",
    colour: str = _INK,
    weight: int = 400,
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
        f'fill="{colour}" font-weight="{weight}">{escape(words)}</text>'
    )


def _ticks(most: float) -> list[float]:
    """Round numbers from 0 to a little beyond the largest value."""
    most = most or 1.0
    rough = most / (_TICKS - 1)
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * nice for nice in (1, 2, 2.5, 5, 10) if unit * nice >= rough)
    return [step * at for at in range(math.ceil(most / step - 1e-9) + 1)]
