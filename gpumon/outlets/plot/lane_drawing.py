"""Draws one lane, of a GPU or of a run, and the axes it lies in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import StepPatch

from gpumon.core.accounting.intervals import Interval
from gpumon.core.phase import InputWaitReason, TrainingPhase
from gpumon.core.report.lanes import RunLane
from gpumon.outlets.plot.clock_axis import ClockAxis
from gpumon.outlets.plot.lane_columns import LaneColumns, Shares, close_together
from gpumon.outlets.plot.palette import Palette

_STRIP: Final = 0.22
"""The strip of what was lost lies beneath a lane, so high in shares of it."""
_LEAST_IN_STRIP: Final = 0.35
"""Of the strip, whatever little was lost: it has to be seen."""


class PaintedPhase(NamedTuple):
    """Phases that have a colour together.

    Attributes:
        title: What they are called.
        colour: Name of their colour in a ``Palette``.
        phases: The phases.
    """

    title: str
    colour: str
    phases: tuple[TrainingPhase, ...]

    def share_of(self, lane: RunLane) -> float:
        """Their share of a run's time, 0 to 1."""
        whole_ns = sum(map(sum, lane.phase_ns.values()))
        own_ns = sum(sum(lane.phase_ns.get(phase, ())) for phase in self.phases)
        return own_ns / whole_ns if whole_ns else 0.0


PAINTED: Final = (
    PaintedPhase("training step", "busy", (TrainingPhase.TRAIN_STEP, TrainingPhase.DEVICE_SYNC)),
    PaintedPhase("copying to the GPU", "host_to_device", (TrainingPhase.HOST_TO_DEVICE,)),
    PaintedPhase("callbacks", "callbacks", (TrainingPhase.CALLBACKS,)),
    PaintedPhase("validation", "validation", (TrainingPhase.VALIDATION, TrainingPhase.PREDICT)),
    PaintedPhase("checkpoint", "checkpoint", (TrainingPhase.CHECKPOINT,)),
    PaintedPhase("compiling", "compiling", (TrainingPhase.COMPILE,)),
    PaintedPhase("start-up", "start_up", (TrainingPhase.START_UP,)),
    PaintedPhase("between epochs", "between_epochs", (TrainingPhase.BETWEEN_EPOCHS,)),
    PaintedPhase("other", "other", (TrainingPhase.OTHER,)),
    PaintedPhase("waiting for input", "lost", (TrainingPhase.INPUT_WAIT,)),
)
"""From the bottom of a lane to its top."""


def draw_run_lane(axes: Axes, lane: RunLane, axis: ClockAxis, palette: Palette) -> None:
    """A run's phases, one on top of the other: by height, their shares of the time.

    Beneath its waits for input, in the strip: the reasons, by their shares of the wait.
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
    """Whether anything is known of why the run waited."""
    return any(reason is not InputWaitReason.UNKNOWN for reason in lane.reason_ns)


def _stack(
    axes: Axes,
    parts: Sequence[tuple[Shares, str]],
    edges: Shares,
    palette: Palette,
    baseline: float = 0.0,
) -> None:
    """Fill parts of columns, one on top of the other, each in its colour of the palette."""
    tops, top = [], np.zeros(len(edges) - 1)
    for part, colour in parts:
        top = np.minimum(1.0, top + part)
        tops.append((np.where(part > 0, top, 0.0), colour))
    # What is beneath is painted over what is above it.
    for heights, colour in reversed(tops):
        if heights.any():
            _fill(axes, baseline + heights, edges, getattr(palette, colour), baseline=baseline)


class GpuMarks(NamedTuple):
    """What is painted in the lane of one GPU.

    Attributes:
        columns: How busy it was.
        holes: Columns that were not observed, as first and last + 1 of each run.
        lost: Stretches that were starved or are suspected.
        unused: Stretches in which it was not in use.
    """

    columns: LaneColumns
    holes: Sequence[tuple[int, int]]
    lost: Sequence[Interval]
    unused: Sequence[Interval]


def draw_gpu_lane(axes: Axes, marks: GpuMarks, axis: ClockAxis, palette: Palette) -> None:
    """From the lowest to the uppermost: away, lost, not observed, busy, and the strip beneath."""
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
    """Filled columns, neighbours of one height as one."""
    values = np.round(values, 3)
    kept = np.append(True, np.diff(values) != 0)
    heights, bounds = values[kept], edges[np.append(kept, True)]
    columns = StepPatch(heights, bounds, baseline=baseline, fill=True, color=colour, linewidth=0)
    axes.add_artist(columns)  # the limits are set: to seek them in it takes most of the time


def set_axes(
    axes: Axes, axis: ClockAxis, palette: Palette, *, has_strip: bool, is_last: bool
) -> None:
    """The room of a lane; beneath the last one stands when it was."""
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
