"""What the colours of a picture mean: only those that are in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gpumon.core.figures import counted, in_seconds
from gpumon.core.phase import IdleCause
from gpumon.core.report import GpuReport
from gpumon.outlets.log_plot.drawing import Box, Ink, Line, Mark, Text
from gpumon.outlets.log_plot.frame import MARGIN, WIDTH
from gpumon.outlets.log_plot.text_fit import fitted, text_width

LINE_HEIGHT: Final = 18.0
_SIZE: Final = 10.0
_SWATCH_WIDTH, _SWATCH_HEIGHT = 18.0, 10.0
_GAP: Final = 18.0


def legend_items(gpus: Sequence[GpuReport], inks: set[Ink]) -> list[tuple[Ink, str]]:
    """Which entries a legend has, and what they say.

    Args:
        gpus: Those that are shown.
        inks: What is painted.
    """
    items = [(Ink.BUSY, "busy: share of the time, by height"), (Ink.IN_USE, "in use and idle")]
    if Ink.LOST in inks:
        items.append((Ink.LOST, _lost_words(gpus)))
    if Ink.NOT_IN_USE in inks:
        away_ns = sum(gpu.totals.idle_ns.get(IdleCause.NOT_IN_USE, 0) for gpu in gpus)
        items.append((Ink.NOT_IN_USE, f"not in use: {in_seconds(away_ns)}"))
    if Ink.UNOBSERVED in inks:
        items.append((Ink.UNOBSERVED, "not observed"))
    return items


def legend_marks(items: Sequence[tuple[Ink, str]], top: float) -> tuple[list[Mark], float]:
    """The marks of a legend from ``top`` on, in as many lines as it takes, and where it ends."""
    marks: list[Mark] = []
    left = MARGIN
    room = WIDTH - 2 * MARGIN - _SWATCH_WIDTH - 6
    for ink, said in items:
        words = fitted(said, room, _SIZE)
        width = _SWATCH_WIDTH + 6 + text_width(words, _SIZE)
        if left > MARGIN and left + width > WIDTH - MARGIN:
            left, top = MARGIN, top + LINE_HEIGHT
        marks += _swatch(ink, left, top + 3)
        marks.append(Text(left + _SWATCH_WIDTH + 6, top + 12, words, _SIZE, Ink.QUIET))
        left += width + _GAP
    return marks, top + LINE_HEIGHT


def _swatch(ink: Ink, left: float, top: float) -> Iterator[Mark]:
    """As it looks in a lane: what is lost has its ground above its strip."""
    bottom = top + _SWATCH_HEIGHT
    if ink is Ink.LOST:
        yield Box(left, top, _SWATCH_WIDTH, _SWATCH_HEIGHT - 4, Ink.LOST_GROUND)
        yield Box(left, bottom - 3, _SWATCH_WIDTH, 3, Ink.LOST)
        return
    if ink is Ink.UNOBSERVED:
        yield Box(left, top, _SWATCH_WIDTH, _SWATCH_HEIGHT, Ink.IN_USE)
    yield Box(left, top, _SWATCH_WIDTH, _SWATCH_HEIGHT, ink)
    if ink is not Ink.BUSY:
        right = left + _SWATCH_WIDTH
        for level in (top, bottom):
            yield Line(left, level, right, level, Ink.RULE)
        for side in (left, right):
            yield Line(side, top, side, bottom, Ink.RULE)


def _lost_words(gpus: Sequence[GpuReport]) -> str:
    """How much is marked, and how often."""
    starved_ns = sum(gpu.totals.starved_ns for gpu in gpus)
    suspected_ns = sum(gpu.totals.suspected_ns for gpu in gpus)
    count = sum(len(gpu.totals.starved_intervals) + gpu.totals.merged_intervals for gpu in gpus)
    word = "suspected starvation"
    if starved_ns:
        word = "starved or suspected" if suspected_ns else "starved"
    stretches = counted(count, "stretch", "stretches")
    return f"{word}: {in_seconds(starved_ns + suspected_ns)} in {stretches}"
