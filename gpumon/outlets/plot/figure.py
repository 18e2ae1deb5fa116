"""Draws a report with matplotlib: the phases of runs above, the GPUs below, on one time axis.

Imports matplotlib, which is optional: import this module only if a picture is wanted.
"""

from __future__ import annotations

import io
import re
import textwrap
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from typing import Any, Final, NamedTuple
from unicodedata import east_asian_width

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.text import Text

from gpumon.core.accounting.intervals import Interval
from gpumon.core.device.troubles import worst
from gpumon.core.diagnosis.messages import WORD_OF_REASON
from gpumon.core.log_summary.busy_lane import Lane
from gpumon.core.owner_quotas import choose_fairly
from gpumon.core.phase import IdleCause, InputWaitReason
from gpumon.core.report.lanes import Lanes, RunLane
from gpumon.core.report.report import GpuReport, Report, RunReport, runs_on
from gpumon.core.verdict import Severity
from gpumon.core.view.palette import LIGHT, Palette
from gpumon.core.wording import capital, counted, in_percent, label_text
from gpumon.outlets.plot.lane_drawing import (
    PAINTED,
    ClockAxis,
    GpuMarks,
    clock_axis_of,
    columns_of,
    draw_gpu_lane,
    draw_run_lane,
    has_reasons,
    in_training,
    out_of_use,
    outside,
    set_axes,
    unobserved_runs,
)
from gpumon.outlets.text.headline import verdict_line, why_line
from gpumon.outlets.text.report_lines import in_all, observed
from gpumon.outlets.text.statements import word_in_table
from gpumon.outlets.text.trouble_lines import has_trouble

MOST_LANES: Final = 16
MOST_RUNS: Final = 4
COLUMNS: Final = 1_280
_DOTS_PER_INCH: Final = 144

# Lengths in points, from here on.
_WIDTH: Final = 980.0
_MARGIN: Final = 20.0
_LANE_LEFT: Final = 184.0
_LANE_WIDTH: Final = 640.0
_NAME_WIDTH: Final = 130.0
_GAP: Final = 10.0
_RUN_LANE_HEIGHT: Final = 44.0
_LEGEND_LINE: Final = 18.0
_LEGEND_COLUMNS: Final = 6
_LEAST_SHARE: Final = 0.001
"""Phases with a smaller share of a run's time are invisible."""
_UNDER_LANES: Final = 40.0
_WORD_LENGTH: Final = 26
"""Letters of the text to the right of a lane."""

_NO_BREAK_HERE: Final = re.compile(r"(?<=\d) (?=(?:s|%|min|h|d)(?!\w))|(?<=\bGPU) (?=\d)")
STYLE: Final = {
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "svg.fonttype": "path",  # needs no font
    "svg.hashsalt": "gpumon",  # reproducible files
    "text.parse_math": False,  # a dollar sign in a name is no formula
    "hatch.linewidth": 0.7,
}


def picture(
    report: Report,
    lanes: Lanes,
    kind: str,
    palette: Palette = LIGHT,
    *,
    headline: bool = True,
) -> bytes:
    """Return the picture of a report as the bytes of a file.

    Args:
        report: Where the time went.
        lanes: What its GPUs and its runs did over time.
        kind: ``png``, ``svg`` or ``pdf``.
        palette: The colours.
        headline: Whether the verdict is above it; a page prints it itself.
    """
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # in a name; a box is drawn
        figure = figure_of(report, lanes, palette, headline=headline)
        file = io.BytesIO()
        no_date = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
        figure.savefig(file, format=kind, metadata={**no_date, "Title": description(report, lanes)})
    return file.getvalue()


def description(report: Report, lanes: Lanes) -> str:
    """Return the picture in words, for people who cannot see it."""
    parts = [capital(verdict_line(report))]
    for run, lane in _shown_runs(report.runs, lanes.runs):
        shares = [
            f"{painted.title} {in_percent(painted.share_of(lane))}"
            for painted in PAINTED
            if painted.share_of(lane) >= _LEAST_SHARE
        ]
        parts.append(f"Run {label_text(run.run)}: {', '.join(shares)}.")
    parts += [
        f"GPU {gpu.label}: {word_in_table(gpu)}, busy {in_percent(_busy_ratio(gpu))}."
        for gpu in report.gpus[:MOST_LANES]
    ]
    return " ".join(parts)


def figure_of(
    report: Report, lanes: Lanes, palette: Palette = LIGHT, *, headline: bool = True
) -> Figure:
    """Return the figure: a pair of axes for each run and each GPU that is shown."""
    with mpl.rc_context(STYLE):
        return _drawn(report, lanes, palette, headline=headline)


def _drawn(report: Report, lanes: Lanes, palette: Palette, *, headline: bool) -> Figure:
    shown, runs = _shown(report.gpus, lanes.gpus), _shown_runs(report.runs, lanes.runs)
    seen: list[Lane | RunLane] = [*(lane for _, lane in runs), *(lane for _, lane in shown)]
    axis = clock_axis_of(report, _span_of(report, seen))
    blocks = [_line_block(line) for line in (_headline(report, palette) if headline else [])]
    if runs:
        blocks += _run_blocks(runs, len(report.runs), axis, palette, is_last=not shown)
    if shown:
        blocks += _gpu_blocks(report, shown, lanes.runs, axis, palette)
    height = _MARGIN + sum(block.height for block in blocks)
    figure = Figure((_WIDTH / 72, height / 72), dpi=_DOTS_PER_INCH, facecolor=palette.paper)
    top = _MARGIN
    for block in blocks:
        block.draw(_Position(figure, height, top))
        top += block.height
    return figure


# -- one under the other --------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Position:
    """Where something is drawn: points below the upper edge of a figure."""

    figure: Figure
    height: float
    top: float

    def write(self, line: _Line) -> None:
        left, upper = _MARGIN / _WIDTH, 1 - self.top / self.height
        self.figure.text(left, upper, line.words, va="top", **line.look)

    def explain(self, handles: Sequence[Patch], columns: int, palette: Palette) -> None:
        """Write a legend in columns."""
        self.figure.legend(
            handles=handles, ncols=columns, loc="upper left", frameon=False, borderaxespad=0,
            columnspacing=1.5, fontsize=9, labelcolor=palette.quiet,
            bbox_to_anchor=((_MARGIN - 4) / _WIDTH, 1 - self.top / self.height),
        )  # fmt: skip

    def lane(self, lane_height: float) -> Axes:
        bottom = 1 - (self.top + lane_height) / self.height
        size = (_LANE_WIDTH / _WIDTH, lane_height / self.height)
        return self.figure.add_axes((_LANE_LEFT / _WIDTH, bottom, *size))


class _Block(NamedTuple):
    """A part of a picture across its width: its height in points, and what draws it."""

    height: float
    draw: Callable[[_Position], None]


def _line_block(line: _Line) -> _Block:
    return _Block(line.height, lambda position: position.write(line))


def _text_block(words: str, palette: Palette) -> _Block:
    return _line_block(_Line(words, 16.0, {"fontsize": 9.5, "color": palette.quiet}))


def _gap_block(height: float) -> _Block:
    return _Block(height, lambda _: None)


def _run_blocks(
    runs: Sequence[tuple[RunReport, RunLane]],
    known: int,
    axis: ClockAxis,
    palette: Palette,
    *,
    is_last: bool,
) -> list[_Block]:

    def drawn(run: RunReport, lane: RunLane, *, is_lowest: bool) -> _Block:
        def draw(position: _Position) -> None:
            axes = position.lane(_RUN_LANE_HEIGHT)
            draw_run_lane(axes, lane, axis, palette)
            set_axes(axes, axis, palette, has_strip=has_reasons(lane), is_last=is_lowest)
            pid = f"{label_text(run.framework)}, pid {run.pid}"
            most = max(PAINTED, key=lambda painted: painted.share_of(lane))
            share = in_percent(most.share_of(lane))
            labels = _Labels(label_text(run.run, 20), pid, share, most.title)
            _write_labels(axes, labels, palette.quiet, palette)

        return _Block(_RUN_LANE_HEIGHT + _GAP, draw)

    lanes = [lane for _, lane in runs]
    handles = [*_phase_legend(lanes, palette), *_reason_legend(lanes, palette)]
    lines = -(-len(handles) // _LEGEND_COLUMNS)
    blocks = [
        _Block(
            lines * _LEGEND_LINE + _GAP,
            lambda position: position.explain(handles, _LEGEND_COLUMNS, palette),
        ),
        *(drawn(*one, is_lowest=is_last and one is runs[-1]) for one in runs),
    ]
    blocks.append(_gap_block(_UNDER_LANES if is_last else _GAP))
    if len(runs) < known:
        note = f"{len(runs)} of {counted(known, 'run', 'runs')}: the longest of each user."
        blocks.append(_text_block(note, palette))
    return blocks


def _gpu_blocks(
    report: Report,
    shown: Sequence[tuple[GpuReport, Lane]],
    runs: Sequence[RunLane],
    axis: ClockAxis,
    palette: Palette,
) -> list[_Block]:
    columns = [
        columns_of(lane, gpu.totals.starved_intervals, axis.span, COLUMNS) for gpu, lane in shown
    ]
    has_lost = any(gpu.totals.starved_intervals for gpu, _ in shown)
    # The first samples of GPUs come a little apart.
    period = COLUMNS * report.period_ns / axis.span.duration_ns
    holes = [[*unobserved_runs(column, longer_than=period)] for column in columns]
    runs_of = {gpu.uuid: _on(gpu, report.runs, runs) for gpu, _ in shown}
    lane_height = 62.0 if len(shown) <= 4 else 40.0 if len(shown) <= 8 else 32.0

    def drawn(number: int) -> _Block:
        def draw(position: _Position) -> None:
            axes, (gpu, lane) = position.lane(lane_height), shown[number]
            trained = sorted(stretch for run in runs_of[gpu.uuid] for stretch in in_training(run))
            unused = outside(out_of_use(lane, axis.patience_ns), trained)
            lost = gpu.totals.starved_intervals
            marks = GpuMarks(columns[number], holes[number], lost, tuple(unused))
            draw_gpu_lane(axes, marks, axis, palette)
            set_axes(axes, axis, palette, has_strip=has_lost, is_last=number == len(shown) - 1)
            is_well = gpu.verdict.severity is Severity.NONE and not has_trouble(gpu)
            colour = palette.quiet if is_well else palette.lost
            _write_labels(axes, _labels_of(gpu), colour, palette)

        return _Block(lane_height + _GAP, draw)

    legend = _legend([gpu for gpu, _ in shown], palette, has_holes=any(holes))
    blocks = [
        _Block(
            _LEGEND_LINE + _GAP, lambda position: position.explain(legend, len(legend), palette)
        ),
        *map(drawn, range(len(shown))),
        _gap_block(_UNDER_LANES),
    ]
    if len(shown) < len(report.gpus):
        broken = "are in trouble or " if any(map(has_trouble, report.gpus)) else ""
        note = (
            f"The {len(shown)} of {counted(len(report.gpus), 'GPU', 'GPUs')} that {broken}lost "
            "most time while in use; the report has all of them."
        )
        blocks.append(_text_block(note, palette))
    return blocks


@dataclass(frozen=True, slots=True)
class _Line:
    words: str
    height: float
    look: dict[str, Any]


def _headline(report: Report, palette: Palette) -> list[_Line]:
    name = label_text(PurePath(report.source).name or report.source, 100)
    title = {"fontsize": 15, "fontweight": "bold", "color": palette.text}
    quiet = {"fontsize": 10.5, "color": palette.quiet}
    return [
        *(_Line(line, 20.0, title) for line in _wrapped(capital(verdict_line(report)), 95, most=3)),
        *(_Line(line, 15.0, quiet) for line in _wrapped(capital(why_line(report)), 145, most=2)),
        *(_Line(line, 15.0, quiet) for line in _wrapped(f"{observed(name, report)}.", 145, most=2)),
        _Line("", 8.0, quiet),
    ]


def _wrapped(words: str, width: int, most: int) -> list[str]:
    """Wrap text without separating a number from its unit or its GPU.

    The width is halved for wide letters, as of Chinese.
    """
    kept = _NO_BREAK_HERE.sub("\N{NO-BREAK SPACE}", words)
    if any(east_asian_width(letter) in "WF" for letter in words):
        width //= 2
    return textwrap.wrap(kept, width, max_lines=most, placeholder=" …")


def _shown(gpus: Sequence[GpuReport], lanes: Sequence[Lane]) -> list[tuple[GpuReport, Lane]]:
    """Return the GPUs in trouble and those that lost most, in the order of the report."""
    both = list(zip(gpus, lanes, strict=True))

    def rank(number: int) -> tuple[int, int]:
        gpu = both[number][0]
        return -worst(gpu.troubles).gravity, -gpu.totals.lost_ns

    ranked = sorted(range(len(both)), key=rank)
    return [both[number] for number in sorted(ranked[:MOST_LANES])]


def _shown_runs(
    runs: Sequence[RunReport], lanes: Sequence[RunLane]
) -> list[tuple[RunReport, RunLane]]:
    """Return the longest runs, a fair part for each owner, in the order of the report."""
    lane_of = {(lane.run, lane.pid): lane for lane in lanes}
    both = [(run, lane_of[key]) for run in runs if (key := (run.run, run.pid)) in lane_of]
    longest_first = sorted(both, key=lambda pair: pair[1].start_ns - pair[1].end_ns)
    shown = choose_fairly(longest_first, lambda pair: pair[0].owner_uid, MOST_RUNS)
    return [pair for pair in both if pair in shown]


def _span_of(report: Report, lanes: Iterable[Lane | RunLane]) -> Interval:
    seen = [lane for lane in lanes if lane.end_ns > lane.start_ns]
    start_ns = min([report.origin_ns, *(lane.start_ns for lane in seen)])
    return Interval(start_ns, max([start_ns + 1, *(lane.end_ns for lane in seen)]))


def _on(gpu: GpuReport, runs: Sequence[RunReport], lanes: Sequence[RunLane]) -> list[RunLane]:
    keys = {(run.run, run.pid) for run in runs_on([gpu], runs)}
    return [lane for lane in lanes if (lane.run, lane.pid) in keys]


# -- left and right of a lane ---------------------------------------------------


class _Labels(NamedTuple):
    """Name and details to the left of a lane, amount and verdict to the right."""

    name: str
    more: str
    amount: str
    verdict: str


def _labels_of(gpu: GpuReport) -> _Labels:
    name, busy = label_text(f"GPU {gpu.label}", 20), in_percent(_busy_ratio(gpu))
    return _Labels(name, label_text(gpu.name), f"busy {busy}", word_in_table(gpu, _WORD_LENGTH))


def _write_labels(axes: Axes, labels: _Labels, colour: str, palette: Palette) -> None:
    more = _wrapped(labels.more, 24, most=2)
    left, right = (_MARGIN - _LANE_LEFT) / _LANE_WIDTH, 1 + _GAP / _LANE_WIDTH
    write = partial(axes.text, y=0.6, transform=axes.transAxes)
    title = {"fontsize": 11, "fontweight": "bold", "color": palette.text}
    _shorten(write(left, s=labels.name, va="bottom" if more else "center", **title))
    write(left, s="\n".join(more), va="top", fontsize=8, color=palette.quiet)
    write(right, s=labels.amount, va="bottom", **title)
    write(right, s=labels.verdict, va="top", fontsize=9, color=colour)


def _shorten(name: Text) -> None:
    """Cut a name that would run into its lane."""
    while name.get_window_extent().width > _NAME_WIDTH * _DOTS_PER_INCH / 72:
        name.set_text(f"{name.get_text()[:-2]}…")


def _busy_ratio(gpu: GpuReport) -> float | None:
    totals = gpu.totals
    return totals.busy_ns / totals.observed_ns if totals.observed_ns else None


# -- the legends ----------------------------------------------------------------


def _phase_legend(lanes: Sequence[RunLane], palette: Palette) -> list[Patch]:
    """Return the painted phases; of a single run, with their shares of its time."""
    handles = []
    for painted in PAINTED:
        shares = [painted.share_of(lane) for lane in lanes]
        if max(shares) >= _LEAST_SHARE:
            label = (
                f"{painted.title}: {in_percent(shares[0])}" if len(lanes) == 1 else painted.title
            )
            handles.append(Patch(facecolor=getattr(palette, painted.colour), label=label))
    return handles


def _reason_legend(lanes: Sequence[RunLane], palette: Palette) -> list[Patch]:
    """Return the reasons for input stalls, with their shares of all waiting that is shown."""
    explained = [lane for lane in lanes if has_reasons(lane)]
    waited_ns = Counter[InputWaitReason]()
    for lane in explained:
        waited_ns.update({reason: sum(cells) for reason, cells in lane.reason_ns.items()})
    return [
        Patch(
            facecolor=getattr(palette, reason.value),
            label=f"late for {WORD_OF_REASON[reason]}: {in_percent(ns / waited_ns.total())}",
        )
        for reason, ns in waited_ns.most_common()
    ]


def _legend(gpus: Sequence[GpuReport], palette: Palette, *, has_holes: bool) -> list[Patch]:
    items = [
        Patch(facecolor=palette.busy, label="busy: share of the time, by height"),
        Patch(facecolor=palette.in_use, edgecolor=palette.rule, label="in use and idle"),
    ]
    if any(gpu.totals.starved_intervals for gpu in gpus):
        items.append(
            Patch(facecolor=palette.lost_ground, edgecolor=palette.lost, label=_lost_label(gpus))
        )
    away_ns, start_up_ns = (
        sum(gpu.totals.idle_ns.get(cause, 0) for gpu in gpus)
        for cause in (IdleCause.NOT_IN_USE, IdleCause.START_UP)
    )
    if away_ns or start_up_ns:
        text = "not in use, or not yet" if start_up_ns else "not in use"
        label = f"{text}: {in_all(away_ns + start_up_ns, gpus)}"
        items.append(Patch(facecolor=palette.not_in_use, edgecolor=palette.rule, label=label))
    if has_holes:
        items.append(
            Patch(facecolor=palette.in_use, edgecolor=palette.unobserved, hatch="////",
                  linewidth=0, label="not observed")
        )  # fmt: skip
    return items


def _lost_label(gpus: Sequence[GpuReport]) -> str:
    starved_ns = sum(gpu.totals.starved_ns for gpu in gpus)
    suspected_ns = sum(gpu.totals.suspected_ns for gpu in gpus)
    count = sum(len(gpu.totals.starved_intervals) + gpu.totals.merged_intervals for gpu in gpus)
    marked_ns = sum(
        interval.duration_ns for gpu in gpus for interval in gpu.totals.starved_intervals
    )
    word = "suspected starvation"
    if starved_ns:
        word = "starved or suspected" if suspected_ns else "starved"
    stretches = counted(count, "stretch", "stretches")
    lost = f"{word}: {in_all(starved_ns + suspected_ns, gpus)}"
    if marked_ns < starved_ns + suspected_ns:  # the rest is in waits shorter than a sample
        return f"{lost}; marked: {stretches} long enough to be seen"
    return f"{lost} in {stretches}"
