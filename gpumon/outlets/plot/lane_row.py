"""One GPU of a picture: its name, its lane, the strip beneath it, and what that amounts to.

The lane is resampled to the columns of the picture first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from typing import Final, NamedTuple

from gpumon.core.log.busy_lane import Lane
from gpumon.core.report.report import GpuReport
from gpumon.core.time.intervals import Interval
from gpumon.core.verdict import Severity
from gpumon.core.wording import in_percent, in_seconds, label_text
from gpumon.outlets.plot.drawing import Anchor, Box, Ink, Line, Mark, Steps, Text, fitted, in_lines
from gpumon.outlets.plot.time_axis import TimeAxis
from gpumon.outlets.text.headline import verdict_word

WIDTH: Final = 980.0
MARGIN: Final = 20.0
LANE_LEFT: Final = 184.0
LANE_WIDTH: Final = 640.0
LANE_RIGHT: Final = LANE_LEFT + LANE_WIDTH
COLUMNS: Final = 1_280
"""Half a point each: one pixel of a PNG."""
COLUMN_WIDTH: Final = LANE_WIDTH / COLUMNS
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


@dataclass(frozen=True, slots=True)
class LaneScale:
    """Time to place, and the measures that depend on how much is shown.

    Attributes:
        axis: The time that is shown.
        lane_height: Height of a lane, in points.
        strip_height: Height of the strip beneath it; 0 where nothing is to be marked.
        patience_ns: How long a job may be inactive before it is over.
    """

    axis: TimeAxis
    lane_height: float
    strip_height: float
    patience_ns: int

    @property
    def span(self) -> Interval:
        """The time that is shown."""
        return Interval(self.axis.start_ns, self.axis.end_ns)

    def x(self, at_ns: float) -> float:
        """Where an instant is; one that is not shown, at the edge."""
        share = (at_ns - self.axis.start_ns) / (self.axis.end_ns - self.axis.start_ns)
        return LANE_LEFT + LANE_WIDTH * min(1.0, max(0.0, share))


def lane_row(gpu: GpuReport, lane: Lane, scale: LaneScale, top: float) -> Iterator[Mark]:
    """The marks of one GPU, from the upper edge of its lane on, in points."""
    bottom = top + scale.lane_height
    lost = gpu.totals.starved_intervals
    columns = columns_of(lane, lost, scale.span, COLUMNS)
    yield Box(LANE_LEFT, top, LANE_WIDTH, scale.lane_height, Ink.IN_USE)
    for away in out_of_use(lane, scale.patience_ns):
        yield _stretch(away, scale, top, Ink.NOT_IN_USE)
    for marked in close_together(lost, int(COLUMN_WIDTH * scale.span.duration_ns / LANE_WIDTH)):
        yield _stretch(marked, scale, top, Ink.LOST_GROUND)
    for first, end in unobserved_runs(columns):
        left, width = LANE_LEFT + first * COLUMN_WIDTH, (end - first) * COLUMN_WIDTH
        for ink in (Ink.IN_USE, Ink.UNOBSERVED):
            yield Box(left, top, width, scale.lane_height, ink)
    busy = tuple(scale.lane_height * min(1.0, column.busy) for column in columns)
    yield Steps(LANE_LEFT, bottom, COLUMN_WIDTH, busy, Ink.BUSY)
    for level in (top, bottom):
        yield Line(LANE_LEFT, level, LANE_RIGHT, level, Ink.RULE)
    if scale.strip_height and lost:
        heights = tuple(_strip_height(column.lost, scale.strip_height) for column in columns)
        under = bottom + STRIP_GAP + scale.strip_height
        yield Steps(LANE_LEFT, under, COLUMN_WIDTH, heights, Ink.LOST)
    yield from _left_words(gpu, scale, top)
    yield from _right_words(gpu, scale, top)
    yield from _places(gpu, columns, scale, top)


def _stretch(stretch: Interval, scale: LaneScale, top: float, ink: Ink) -> Box:
    left, right = scale.x(stretch.start_ns), scale.x(stretch.end_ns)
    width = max(_LEAST_MARK, right - left)
    return Box(min(left, LANE_RIGHT - width), top, width, scale.lane_height, ink)


def _strip_height(share: float, height: float) -> float:
    return max(_LEAST_STRIP, share * height) if share > 0.0 else 0.0


def _left_words(gpu: GpuReport, scale: LaneScale, top: float) -> Iterator[Mark]:
    middle = top + scale.lane_height / 2
    room = LANE_LEFT - MARGIN - _ROOM_FOR_SCALE
    name = fitted(f"GPU {gpu.label}", room, 12, bold=True)
    model: list[str] = []
    if gpu.name:
        most = 2 if scale.lane_height > _ROOM_FOR_TWO_LINES else 1
        model = in_lines(label_text(gpu.name, 64), room, _MODEL_SIZE, most=most)
    baseline = middle + 4 - 5.5 * len(model)
    yield Text(MARGIN, baseline, name, 12, bold=True)
    for number, line in enumerate(model, start=1):
        yield Text(MARGIN, baseline + 12 * number, line, _MODEL_SIZE, Ink.QUIET)
    edge = LANE_LEFT - 5
    yield Text(edge, top + _SCALE_SIZE - 1, "100 %", _SCALE_SIZE, Ink.QUIET, Anchor.END)
    yield Text(edge, top + scale.lane_height, "0", _SCALE_SIZE, Ink.QUIET, Anchor.END)


def _right_words(gpu: GpuReport, scale: LaneScale, top: float) -> Iterator[Mark]:
    totals, verdict = gpu.totals, gpu.verdict
    left, room = LANE_RIGHT + 10, WIDTH - MARGIN - LANE_RIGHT - 10
    middle = top + scale.lane_height / 2
    busy = totals.busy_ns / totals.observed_ns if totals.observed_ns else None
    yield Text(left, middle - 1, fitted(f"busy {in_percent(busy)}", room, 12, bold=True), 12,
               bold=True)  # fmt: skip
    ink = Ink.QUIET if verdict.severity is Severity.NONE else Ink.LOST
    yield Text(left, middle + 11, fitted(verdict_word(gpu), room, 10), 10, ink)


def _places(
    gpu: GpuReport, columns: Sequence[LaneColumn], scale: LaneScale, top: float
) -> Iterator[Mark]:
    """What the pointer is told, place by place."""
    axis, span = scale.axis, scale.span
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
            scale.lane_height + STRIP_GAP + scale.strip_height,
            Ink.NONE,
            f"GPU {gpu.label}, {axis.label(start_ns)} to {axis.label(end_ns)}: {said}",
        )


# -- a lane in columns ----------------------------------------------------------


class LaneColumn(NamedTuple):
    """One column's shares of its width, 0 to 1.

    Attributes:
        observed: Covered by samples.
        busy: Busy.
        lost: Idle in stretches that were starved or are suspected.
    """

    observed: float
    busy: float
    lost: float


def columns_of(
    lane: Lane, lost: Sequence[Interval], span: Interval, count: int
) -> list[LaneColumn]:
    """The lane in ``count`` columns of equal width over ``span``, which spans time.

    ``lost`` are stretches to mark, disjoint, oldest first.
    """
    edges = [span.start_ns + span.duration_ns * number / count for number in range(count + 1)]
    width_ns = span.duration_ns / count
    sums = (
        _cells_up_to(edges, lane, lane.observed_ns),
        _cells_up_to(edges, lane, lane.busy_ns),
        _covered_up_to(edges, lost),
    )
    shares = ([(after - before) / width_ns for before, after in pairwise(row)] for row in sums)
    return [
        LaneColumn(observed, busy, min(marked, max(0.0, observed - busy)))
        for observed, busy, marked in zip(*shares, strict=True)
    ]


def unobserved_runs(columns: Sequence[LaneColumn]) -> Iterator[tuple[int, int]]:
    """Columns of which less than half was observed, as first and last + 1 of each run."""
    at = 0
    for is_seen, run in groupby(columns, key=lambda column: column.observed >= 0.5):
        length = len(list(run))
        if not is_seen:
            yield at, at + length
        at += length


def out_of_use(lane: Lane, patience_ns: int) -> Iterator[Interval]:
    """Stretches in which no job was on: before the first active sample, after the last, and long.

    A job is over once it was inactive for longer than ``patience_ns``.
    """
    at_ns = lane.start_ns
    for is_active, run in groupby(lane.active_ns, key=bool):
        start_ns, at_ns = at_ns, min(at_ns + lane.cell_ns * len(list(run)), lane.end_ns)
        at_edge = start_ns == lane.start_ns or at_ns == lane.end_ns
        if not is_active and (at_edge or at_ns - start_ns > patience_ns):
            yield Interval(start_ns, at_ns)


def close_together(intervals: Iterable[Interval], gap_ns: int) -> Iterator[Interval]:
    """The same stretches, those closer to each other than ``gap_ns`` as one."""
    last: Interval | None = None
    for interval in intervals:
        if last is not None and interval.start_ns - last.end_ns <= gap_ns:
            last = Interval(last.start_ns, max(last.end_ns, interval.end_ns))
            continue
        if last is not None:
            yield last
        last = interval
    if last is not None:
        yield last


def _cells_up_to(edges: Sequence[float], lane: Lane, cells_ns: Sequence[int]) -> list[float]:
    """The sum of all cells before each edge; a cell with an edge in it counts in part."""
    starts = [lane.start_ns + lane.cell_ns * number for number in range(len(cells_ns))]
    # What the last cell holds lies before the lane's end.
    return _between(edges, [*starts, lane.end_ns], [0, *accumulate(cells_ns)])


def _covered_up_to(edges: Sequence[float], intervals: Sequence[Interval]) -> list[float]:
    """How much of the stretches lies before each edge."""
    bounds = [ns for interval in intervals for ns in (interval.start_ns, interval.end_ns)]
    ends = accumulate(interval.duration_ns for interval in intervals)
    sums = [0, *(ns for end_ns in ends for ns in (end_ns, end_ns))][: len(bounds)]
    return _between(edges, bounds, sums)


def _between(edges: Sequence[float], bounds: Sequence[int], sums: Sequence[int]) -> list[float]:
    """What has come together by each edge, where that is known at some bounds."""
    found: list[float] = []
    for edge in edges:
        after = bisect_right(bounds, edge)
        if after == 0:
            found.append(0.0)
        elif after == len(bounds):
            found.append(float(sums[-1]))
        else:
            before_ns, after_ns = bounds[after - 1], bounds[after]
            part = (edge - before_ns) / (after_ns - before_ns)
            found.append(sums[after - 1] + part * (sums[after] - sums[after - 1]))
    return found
