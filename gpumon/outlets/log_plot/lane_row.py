"""One GPU of a picture: its name, its lane, the strip beneath it, and what that amounts to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from gpumon.core.busy_lane import Lane
from gpumon.core.figures import in_percent, in_seconds
from gpumon.core.intervals import Interval
from gpumon.core.label_text import label_text
from gpumon.core.report import GpuReport
from gpumon.core.verdict import Severity
from gpumon.outlets.log_plot.drawing import Anchor, Box, Ink, Line, Mark, Steps, Text
from gpumon.outlets.log_plot.frame import (
    COLUMN_WIDTH,
    COLUMNS,
    LANE_LEFT,
    LANE_RIGHT,
    LANE_WIDTH,
    MARGIN,
    WIDTH,
    Frame,
)
from gpumon.outlets.log_plot.lane_columns import (
    Column,
    close_together,
    columns_of,
    out_of_use,
    unobserved_runs,
)
from gpumon.outlets.log_plot.text_fit import fitted, in_lines
from gpumon.outlets.report_headline import verdict_word

STRIP_GAP: Final = 2.0
_LEAST_MARK: Final = 1.0
"""Points: what is shorter is drawn as wide as that, so that it can be seen."""
_LEAST_STRIP: Final = 3.0
_PLACES: Final = 80
"""Places of a lane that say something to the pointer."""
_ROOM_FOR_SCALE: Final = 34.0
_SCALE_SIZE: Final = 8.0
_MODEL_SIZE: Final = 9.0
_ROOM_FOR_TWO_LINES: Final = 40.0


def lane_row(gpu: GpuReport, lane: Lane, frame: Frame, top: float) -> Iterator[Mark]:
    """The marks of one GPU.

    Args:
        gpu: What is reported of it.
        lane: How busy it was.
        frame: Where things are.
        top: Upper edge of its lane, in points.
    """
    bottom = top + frame.lane_height
    lost = gpu.totals.starved_intervals
    columns = columns_of(lane, lost, frame.span, COLUMNS)
    yield Box(LANE_LEFT, top, LANE_WIDTH, frame.lane_height, Ink.IN_USE)
    for away in out_of_use(lane, frame.patience_ns):
        yield _stretch(away, frame, top, Ink.NOT_IN_USE)
    for marked in close_together(lost, int(COLUMN_WIDTH * frame.span.duration_ns / LANE_WIDTH)):
        yield _stretch(marked, frame, top, Ink.LOST_GROUND)
    for first, end in unobserved_runs(columns):
        left, width = LANE_LEFT + first * COLUMN_WIDTH, (end - first) * COLUMN_WIDTH
        for ink in (Ink.IN_USE, Ink.UNOBSERVED):
            yield Box(left, top, width, frame.lane_height, ink)
    busy = tuple(frame.lane_height * min(1.0, column.busy) for column in columns)
    yield Steps(LANE_LEFT, bottom, COLUMN_WIDTH, busy, Ink.BUSY)
    for level in (top, bottom):
        yield Line(LANE_LEFT, level, LANE_RIGHT, level, Ink.RULE)
    if frame.strip_height and lost:
        heights = tuple(_strip_height(column.lost, frame.strip_height) for column in columns)
        under = bottom + STRIP_GAP + frame.strip_height
        yield Steps(LANE_LEFT, under, COLUMN_WIDTH, heights, Ink.LOST)
    yield from _left_words(gpu, frame, top)
    yield from _right_words(gpu, frame, top)
    yield from _places(gpu, columns, frame, top)


def _stretch(stretch: Interval, frame: Frame, top: float, ink: Ink) -> Box:
    left, right = frame.x(stretch.start_ns), frame.x(stretch.end_ns)
    width = max(_LEAST_MARK, right - left)
    return Box(min(left, LANE_RIGHT - width), top, width, frame.lane_height, ink)


def _strip_height(share: float, height: float) -> float:
    return max(_LEAST_STRIP, share * height) if share > 0.0 else 0.0


def _left_words(gpu: GpuReport, frame: Frame, top: float) -> Iterator[Mark]:
    middle = top + frame.lane_height / 2
    room = LANE_LEFT - MARGIN - _ROOM_FOR_SCALE
    name = fitted(f"GPU {gpu.label}", room, 12, bold=True)
    model: list[str] = []
    if gpu.name:
        most = 2 if frame.lane_height > _ROOM_FOR_TWO_LINES else 1
        model = in_lines(label_text(gpu.name, 64), room, _MODEL_SIZE, most=most)
    baseline = middle + 4 - 5.5 * len(model)
    yield Text(MARGIN, baseline, name, 12, bold=True)
    for number, line in enumerate(model, start=1):
        yield Text(MARGIN, baseline + 12 * number, line, _MODEL_SIZE, Ink.QUIET)
    scale = LANE_LEFT - 5
    yield Text(scale, top + _SCALE_SIZE - 1, "100 %", _SCALE_SIZE, Ink.QUIET, Anchor.END)
    yield Text(scale, top + frame.lane_height, "0", _SCALE_SIZE, Ink.QUIET, Anchor.END)


def _right_words(gpu: GpuReport, frame: Frame, top: float) -> Iterator[Mark]:
    totals, verdict = gpu.totals, gpu.verdict
    left, room = LANE_RIGHT + 10, WIDTH - MARGIN - LANE_RIGHT - 10
    middle = top + frame.lane_height / 2
    busy = totals.busy_ns / totals.observed_ns if totals.observed_ns else None
    yield Text(left, middle - 1, fitted(f"busy {in_percent(busy)}", room, 12, bold=True), 12,
               bold=True)  # fmt: skip
    ink = Ink.QUIET if verdict.severity is Severity.NONE else Ink.LOST
    yield Text(left, middle + 11, fitted(verdict_word(gpu), room, 10), 10, ink)


def _places(gpu: GpuReport, columns: Sequence[Column], frame: Frame, top: float) -> Iterator[Mark]:
    """What the pointer is told, place by place."""
    axis, span = frame.axis, frame.span
    each = COLUMNS // _PLACES
    edges = [span.start_ns + span.duration_ns * number // _PLACES for number in range(_PLACES + 1)]
    for number, (start_ns, end_ns) in enumerate(pairwise(edges)):
        part = columns[number * each : (number + 1) * each]
        observed = sum(column.observed for column in part)
        said = "not observed"
        if observed >= 0.005 * each:
            said = f"busy {in_percent(min(1.0, sum(column.busy for column in part) / observed))}"
        lost_share = sum(column.lost for column in part) / each
        if lost_share > 0.0:
            said += f", starved or suspected {in_seconds(int(lost_share * (end_ns - start_ns)))}"
        yield Box(
            LANE_LEFT + number * each * COLUMN_WIDTH,
            top,
            each * COLUMN_WIDTH,
            frame.lane_height + STRIP_GAP + frame.strip_height,
            Ink.NONE,
            f"GPU {gpu.label}, {axis.label(start_ns)} to {axis.label(end_ns)}: {said}",
        )
