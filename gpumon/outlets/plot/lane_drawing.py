"""Draws one lane, of a GPU or of a run, and the axes and the clock it lies in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, datetime, timedelta
from itertools import accumulate, groupby
from operator import add
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib import dates
from matplotlib.axes import Axes
from matplotlib.patches import StepPatch
from matplotlib.ticker import Formatter, FuncFormatter, Locator, MaxNLocator

from gpumon.core.accounting.intervals import Interval
from gpumon.core.accounting.job_end import job_patience_ns
from gpumon.core.clock import NS_PER_S
from gpumon.core.log_summary.busy_lane import Lane
from gpumon.core.phase import InputWaitReason, TrainingPhase
from gpumon.core.report.lanes import RunLane
from gpumon.core.report.report import Report
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.view.palette import Palette


@dataclass(frozen=True, slots=True)
class ClockAxis:
    """Maps times to an axis: dates on the log's clock, or time from its start."""

    span: Interval
    zero_ns: int
    zero: float
    unit_ns: float
    caption: str
    locator: Locator
    formatter: Formatter
    patience_ns: int

    def x(self, at_ns: float) -> float:
        """Return a time's position; a time outside the span is at its edge."""
        at_ns = min(max(at_ns, self.span.start_ns), self.span.end_ns)
        return self.zero + (at_ns - self.zero_ns) / self.unit_ns

    def bars(self, stretches: Iterable[Interval]) -> list[tuple[float, float]]:
        """Return left edge and width of each stretch, as for ``broken_barh``."""
        edges = ((self.x(stretch.start_ns), self.x(stretch.end_ns)) for stretch in stretches)
        return [(left, right - left) for left, right in edges]


def clock_axis_of(report: Report, span: Interval) -> ClockAxis:
    """Return the axis of a report over ``span``, which must not be empty."""
    patience_ns = job_patience_ns(report.period_ns, DEFAULT_SETTINGS)
    try:
        moment = datetime.fromisoformat(report.started_at or "")
        zero = moment.replace(tzinfo=None)
        first, last = (
            zero + timedelta(microseconds=(at_ns - report.origin_ns) // 1000)
            for at_ns in (span.start_ns, span.end_ns)
        )
    except (ValueError, OverflowError):  # no clock, or one beyond the calendar
        return _clock_from_start(report, span, patience_ns)
    if first.year == MINYEAR or last.year == MAXYEAR:  # an axis looks a little beyond its ends
        return _clock_from_start(report, span, patience_ns)
    locator = dates.AutoDateLocator(minticks=4, maxticks=11)
    for frequency in (dates.MINUTELY, dates.SECONDLY):
        locator.intervald[frequency] = [1, 2, 5, 10, 15, 30]
    formatter = dates.ConciseDateFormatter(
        locator,
        formats=["%Y", "%Y-%m", "%m-%d", "%H:%M", "%H:%M", "%H:%M:%S.%f"],
        zero_formats=["", "%Y", "%Y-%m", "%Y-%m-%d", "%H:%M", "%H:%M"],
        show_offset=False,
    )
    days = f"{first:%Y-%m-%d}" + (f" to {last:%Y-%m-%d}" if last.date() != first.date() else "")
    return ClockAxis(
        span, report.origin_ns, float(dates.date2num(zero)), 86_400.0 * NS_PER_S,
        f"{days}, {_zone(moment)}", locator, formatter, patience_ns,
    )  # fmt: skip


def _zone(moment: datetime) -> str:
    if moment.tzinfo is None:
        return "by the clock of the log"
    return f"UTC{moment:%z}" if moment.utcoffset() else "UTC"


def _clock_from_start(report: Report, span: Interval, patience_ns: int) -> ClockAxis:
    units = ((2 * 86_400, 86_400, "d"), (7_200, 3_600, "h"), (120, 60, "min"), (0, 1, "s"))
    unit_s, unit = next(
        (unit_s, unit) for least_s, unit_s, unit in units if span.duration_ns >= least_s * NS_PER_S
    )
    return ClockAxis(
        span, report.origin_ns, 0.0, float(unit_s * NS_PER_S),
        f"time from the start of the log, {unit}", MaxNLocator(8),
        FuncFormatter(lambda value, _: f"{value:,.10g}"), patience_ns,
    )  # fmt: skip


Shares = npt.NDArray[np.float64]


class LaneColumns(NamedTuple):
    """Shares of the width of each column, oldest first, 0 to 1.

    Attributes:
        observed: Covered by samples.
        busy: Busy.
        lost: Idle in stretches that were starved or are suspected.
    """

    observed: Shares
    busy: Shares
    lost: Shares


def columns_of(lane: Lane, lost: Sequence[Interval], span: Interval, count: int) -> LaneColumns:
    """Return the lane in ``count`` columns of equal width over ``span``.

    ``lost`` are stretches to mark, disjoint, oldest first.
    """
    edges = np.linspace(span.start_ns, span.end_ns, count + 1)
    width_ns = span.duration_ns / count
    observed = np.diff(_cells_up_to(edges, lane, lane.observed_ns)) / width_ns
    busy = np.diff(_cells_up_to(edges, lane, lane.busy_ns)) / width_ns
    marked = np.diff(_covered_up_to(edges, lost)) / width_ns
    return LaneColumns(observed, busy, np.minimum(marked, np.maximum(0.0, observed - busy)))


def unobserved_runs(columns: LaneColumns, longer_than: float = 0) -> Iterator[tuple[int, int]]:
    """Yield first and last + 1 of each longer run of columns that are mostly unobserved."""
    at = 0
    for is_seen, run in groupby(columns.observed >= 0.5):
        length = len(list(run))
        if not is_seen and length > longer_than:
            yield at, at + length
        at += length


def out_of_use(lane: Lane, patience_ns: int) -> Iterator[Interval]:
    """Yield stretches without a job: at the edges, and longer than ``patience_ns``."""
    at_ns = lane.start_ns
    for is_active, run in groupby(lane.active_ns, key=bool):
        start_ns, at_ns = at_ns, min(at_ns + lane.cell_ns * len(list(run)), lane.end_ns)
        at_edge = start_ns == lane.start_ns or at_ns == lane.end_ns
        if not is_active and (at_edge or at_ns - start_ns > patience_ns):
            yield Interval(start_ns, at_ns)


def in_training(lane: RunLane) -> Iterator[Interval]:
    """Yield stretches in which a run was in a phase that shows the use of its GPUs."""
    whole_ns = [*map(sum, zip(*lane.phase_ns.values(), strict=True))]
    silent_ns = [0] * len(whole_ns)
    for phase in (TrainingPhase.START_UP, TrainingPhase.OTHER):
        of_phase_ns = lane.phase_ns.get(phase, silent_ns)
        silent_ns = [*map(add, silent_ns, of_phase_ns)]
    starts_ns = range(lane.start_ns, lane.end_ns, lane.cell_ns)
    for start_ns, cell_ns, cell_silent_ns in zip(starts_ns, whole_ns, silent_ns, strict=False):
        if 2 * cell_silent_ns < cell_ns:
            yield Interval(start_ns, min(start_ns + lane.cell_ns, lane.end_ns))


def outside(intervals: Iterable[Interval], others: Sequence[Interval]) -> Iterator[Interval]:
    """Yield the parts of the stretches outside all others; both oldest first and disjoint."""
    for interval in intervals:
        at_ns = interval.start_ns
        for other in others:
            if other.start_ns > at_ns:
                yield Interval(at_ns, min(other.start_ns, interval.end_ns))
            at_ns = max(at_ns, other.end_ns)
            if at_ns >= interval.end_ns:
                break
        if at_ns < interval.end_ns:
            yield Interval(at_ns, interval.end_ns)


def close_together(intervals: Iterable[Interval], gap_ns: int) -> Iterator[Interval]:
    """Yield the stretches, joined where the gap is at most ``gap_ns``."""
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


def _cells_up_to(edges: Shares, lane: Lane, cells_ns: Sequence[int]) -> Shares:
    """Return the sum of all cells before each edge, a cell with an edge in part."""
    starts = [lane.start_ns + lane.cell_ns * number for number in range(len(cells_ns))]
    # The last cell ends at the lane's end.
    return np.interp(edges, [*starts, lane.end_ns], [0, *accumulate(cells_ns)])


def _covered_up_to(edges: Shares, intervals: Sequence[Interval]) -> Shares:
    if not intervals:
        return np.zeros_like(edges)
    bounds = [ns for interval in intervals for ns in (interval.start_ns, interval.end_ns)]
    sums = accumulate(ns for interval in intervals for ns in (0, interval.duration_ns))
    return np.interp(edges, bounds, [*sums])


_STRIP: Final = 0.22
"""Height of the strip for lost time beneath a lane, as a share of the lane."""
_LEAST_IN_STRIP: Final = 0.35
"""Least height in the strip, so that any loss is visible."""


class PaintedPhase(NamedTuple):
    """Phases with one colour.

    Attributes:
        title: Their name.
        colour: Its name in a ``Palette``.
        phases: The phases.
    """

    title: str
    colour: str
    phases: tuple[TrainingPhase, ...]

    def share_of(self, lane: RunLane) -> float:
        """Return their share of a run's time, 0 to 1."""
        whole_ns = sum(map(sum, lane.phase_ns.values()))
        own_ns = sum(sum(lane.phase_ns.get(phase, ())) for phase in self.phases)
        return own_ns / whole_ns if whole_ns else 0.0


PAINTED: Final = (
    PaintedPhase("training step", "busy", (TrainingPhase.TRAIN_STEP, TrainingPhase.DEVICE_SYNC)),
    PaintedPhase("copying to the GPU", "host_to_device", (TrainingPhase.HOST_TO_DEVICE,)),
    PaintedPhase("callbacks", "callbacks", (TrainingPhase.CALLBACKS,)),
    PaintedPhase("validation", "validation", (TrainingPhase.VALIDATION, TrainingPhase.PREDICT)),
    PaintedPhase("checkpoint", "checkpoint", (TrainingPhase.CHECKPOINT,)),
    PaintedPhase("compiling", "compile", (TrainingPhase.COMPILE,)),
    PaintedPhase("start-up", "start_up", (TrainingPhase.START_UP,)),
    PaintedPhase("between epochs", "between_epochs", (TrainingPhase.BETWEEN_EPOCHS,)),
    PaintedPhase("other", "other", (TrainingPhase.OTHER,)),
    PaintedPhase("waiting for input", "lost", (TrainingPhase.INPUT_WAIT,)),
)
"""From the bottom of a lane to its top."""


def draw_run_lane(axes: Axes, lane: RunLane, axis: ClockAxis, palette: Palette) -> None:
    """Draw a run's phases on top of each other, their height as shares of the time.

    In the strip beneath are the reasons for its input stalls.
    """
    edges_ns = np.array([*range(lane.start_ns, lane.end_ns, lane.cell_ns), lane.end_ns])
    widths_ns, edges = np.diff(edges_ns), np.array([axis.x(edge_ns) for edge_ns in edges_ns])
    phases = [
        (sum(np.array(lane.phase_ns.get(phase, 0)) for phase in one.phases) / widths_ns, one.colour)
        for one in PAINTED
    ]
    _stack(axes, phases, edges, palette)
    if has_reasons(lane):
        whole_ns = np.sum([*lane.reason_ns.values()], axis=0)
        height = _STRIP / np.maximum(1, whole_ns)
        reasons = [
            (np.array(cells_ns) * height, reason.value)
            for reason, cells_ns in lane.reason_ns.items()
        ]
        _stack(axes, reasons, edges, palette, baseline=-1.25 * _STRIP)


def has_reasons(lane: RunLane) -> bool:
    """Return whether any reason for waiting is known."""
    return any(reason is not InputWaitReason.UNKNOWN for reason in lane.reason_ns)


def _stack(
    axes: Axes,
    parts: Sequence[tuple[Shares, str]],
    edges: Shares,
    palette: Palette,
    baseline: float = 0.0,
) -> None:
    """Fill parts of columns, one on top of the other."""
    tops, top = [], np.zeros(len(edges) - 1)
    for part, colour in parts:
        top = np.minimum(1.0, top + part)
        tops.append((np.where(part > 0, top, 0.0), colour))
    # Lower parts are painted over higher ones.
    for heights, colour in reversed(tops):
        if heights.any():
            _fill(axes, baseline + heights, edges, getattr(palette, colour), baseline=baseline)


class GpuMarks(NamedTuple):
    """What is painted in the lane of one GPU.

    Attributes:
        columns: How busy it was.
        holes: Unobserved columns, as first and last + 1 of each run.
        lost: Stretches that were starved or are suspected.
        unused: Stretches in which it was not in use.
    """

    columns: LaneColumns
    holes: Sequence[tuple[int, int]]
    lost: Sequence[Interval]
    unused: Sequence[Interval]


def draw_gpu_lane(axes: Axes, marks: GpuMarks, axis: ClockAxis, palette: Palette) -> None:
    """Draw, bottom to top: out of use, lost, not observed, busy, and the strip beneath."""
    columns, lost = marks.columns, marks.lost
    span = axis.span
    edges = np.linspace(axis.x(span.start_ns), axis.x(span.end_ns), len(columns.busy) + 1)
    marked = close_together(lost, span.duration_ns // len(columns.busy))
    axes.axhspan(0, 1, color=palette.in_use, linewidth=0)
    axes.broken_barh(axis.bars(marks.unused), (0, 1), color=palette.not_in_use, linewidth=0)
    axes.broken_barh(axis.bars(marked), (0, 1), color=palette.lost_ground, linewidth=0.5)
    axes.broken_barh(
        [(edges[at], edges[end] - edges[at]) for at, end in marks.holes],
        (0, 1), facecolor=palette.in_use, edgecolor=palette.unobserved, hatch="////", linewidth=0,
    )  # fmt: skip
    _fill(axes, np.minimum(1.0, columns.busy), edges, palette.busy)
    if lost:
        strip = np.where(columns.lost > 0, np.maximum(columns.lost, _LEAST_IN_STRIP), 0.0)
        strip = (strip - 1.25) * _STRIP
        _fill(axes, strip, edges, palette.lost, baseline=-1.25 * _STRIP)


def _fill(axes: Axes, values: Shares, edges: Shares, colour: str, baseline: float = 0.0) -> None:
    """Fill columns; neighbours of equal height are one."""
    values = np.round(values, 3)
    kept = np.append(True, np.diff(values) != 0)
    heights, bounds = values[kept], edges[np.append(kept, True)]
    columns = StepPatch(heights, bounds, baseline=baseline, fill=True, color=colour, linewidth=0)
    axes.add_artist(columns)  # faster than add_patch, which searches the limits


def set_axes(
    axes: Axes, axis: ClockAxis, palette: Palette, *, has_strip: bool, is_last: bool
) -> None:
    """Set up the axes of a lane; the last one shows the time."""
    axes.set_facecolor("none")
    axes.set_xlim(axis.x(axis.span.start_ns), axis.x(axis.span.end_ns))
    axes.set_ylim(-1.25 * _STRIP if has_strip else 0.0, 1.0)
    axes.set_yticks([0, 1], ["0", "100 %"])
    axes.xaxis.set_major_locator(axis.locator)
    axes.xaxis.set_major_formatter(axis.formatter)
    axes.tick_params(
        colors=palette.quiet, length=2.5, width=0.6, labelsize=7.5, labelbottom=is_last
    )
    axes.tick_params(axis="x", labelsize=9.5)
    axes.grid(axis="x", color=palette.rule, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.axhline(0, color=palette.rule, linewidth=0.6)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.spines["top"].set(visible=True, color=palette.rule, linewidth=0.6)
    if is_last:
        axes.set_xlabel(axis.caption, fontsize=9.5, color=palette.quiet)
