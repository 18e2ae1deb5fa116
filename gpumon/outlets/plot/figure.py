"""Draws a log with matplotlib: a lane for each GPU over one clock, what was lost marked.

Imports matplotlib, which is an extra: it is imported only where a picture is asked for.
"""

from __future__ import annotations

import io
import re
import textwrap
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, datetime, timedelta
from functools import partial
from pathlib import PurePath
from typing import Any, Final
from unicodedata import east_asian_width

import matplotlib as mpl
import numpy as np
from matplotlib import dates
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import Formatter, FuncFormatter, Locator, MaxNLocator

from gpumon.core.clock import NS_PER_S
from gpumon.core.log.busy_lane import Lane
from gpumon.core.phase import IdleCause
from gpumon.core.report.report import GpuReport, Report
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.time.intervals import Interval
from gpumon.core.time.job_end import job_patience_ns
from gpumon.core.verdict import Severity
from gpumon.core.wording import counted, in_percent, label_text
from gpumon.outlets.plot.lane_columns import (
    LaneColumns,
    Shares,
    close_together,
    columns_of,
    out_of_use,
    unobserved_runs,
)
from gpumon.outlets.plot.palette import LIGHT, Palette
from gpumon.outlets.text.headline import verdict_line, verdict_word, why_line
from gpumon.outlets.text.report_lines import in_all, observed
from gpumon.outlets.text.style import capital

MOST_LANES: Final = 16
COLUMNS: Final = 1_280
_DOTS_PER_INCH: Final = 144

# Lengths in points, from here on.
_WIDTH: Final = 980.0
_MARGIN: Final = 20.0
_LANE_LEFT: Final = 184.0
_LANE_WIDTH: Final = 640.0
_GAP: Final = 10.0
_LEGEND_LINE: Final = 18.0
_UNDER_LANES: Final = 40.0
_STRIP: Final = 0.22
"""The strip of what was lost lies beneath a lane, so high in shares of it."""
_LEAST_IN_STRIP: Final = 0.35
"""Of the strip, whatever little was lost: it has to be seen."""

_NO_BREAK_HERE: Final = re.compile(r"(?<=\d) (?=(?:s|%|min|h|d)(?!\w))|(?<=\bGPU) (?=\d)")
_STYLE: Final = {
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "svg.fonttype": "path",  # so that a reader needs no font
    "svg.hashsalt": "gpumon",  # the same log gives the same file
    "text.parse_math": False,  # a dollar in somebody's name is one
    "hatch.linewidth": 0.7,
}


def picture(
    report: Report,
    lanes: Sequence[Lane],
    kind: str,
    palette: Palette = LIGHT,
    *,
    headline: bool = True,
) -> bytes:
    """A picture of a log, as a file.

    Args:
        report: Where its time went.
        lanes: How busy each GPU of the report was.
        kind: ``png``, ``svg`` or ``pdf``.
        palette: Its colours.
        headline: Whether the verdict stands above it; a page says it itself.
    """
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # in a name; a box says as much
        figure = figure_of(report, lanes, palette, headline=headline)
        file = io.BytesIO()
        no_date = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
        figure.savefig(file, format=kind, metadata={**no_date, "Title": description(report)})
    return file.getvalue()


def description(report: Report) -> str:
    """The picture in words, for who cannot see it."""
    said = [capital(verdict_line(report))]
    said += [
        f"GPU {gpu.label}: {verdict_word(gpu)}, busy {in_percent(_busy_ratio(gpu))}."
        for gpu in report.gpus[:MOST_LANES]
    ]
    return " ".join(said)


def figure_of(
    report: Report, lanes: Sequence[Lane], palette: Palette = LIGHT, *, headline: bool = True
) -> Figure:
    """The picture before it is a file: one pair of axes for each GPU that is shown."""
    with mpl.rc_context(_STYLE):
        return _drawn(report, lanes, palette, headline=headline)


def _drawn(report: Report, lanes: Sequence[Lane], palette: Palette, *, headline: bool) -> Figure:
    shown = _shown(report.gpus, lanes)
    clock = _clock_of(report, _span_of(report, shown))
    columns = [
        columns_of(lane, gpu.totals.starved_intervals, clock.span, COLUMNS) for gpu, lane in shown
    ]
    has_lost = any(gpu.totals.starved_intervals for gpu, _ in shown)
    has_holes = any(any(unobserved_runs(one)) for one in columns)
    lane_height = 62.0 if len(shown) <= 4 else 40.0 if len(shown) <= 8 else 32.0
    words = _headline(report, palette) if headline else []
    legend = _legend([gpu for gpu, _ in shown], palette, has_holes=has_holes)
    is_cut = len(shown) < len(report.gpus)
    top = _MARGIN + sum(line.height for line in words)
    first = top + _LEGEND_LINE + _GAP
    height = first + (lane_height + _GAP) * len(shown) + _UNDER_LANES + (16.0 if is_cut else 0.0)

    figure = Figure((_WIDTH / 72, height / 72), dpi=_DOTS_PER_INCH, facecolor=palette.paper)
    at = _MARGIN
    for line in words:
        figure.text(_MARGIN / _WIDTH, 1 - at / height, line.words, va="top", **line.look)
        at += line.height
    figure.legend(
        handles=legend, ncols=len(legend), loc="upper left", frameon=False, borderaxespad=0,
        columnspacing=1.5, fontsize=9, labelcolor=palette.quiet,
        bbox_to_anchor=((_MARGIN - 4) / _WIDTH, 1 - top / height),
    )  # fmt: skip
    for number, (gpu, lane) in enumerate(shown):
        bottom = first + number * (lane_height + _GAP) + lane_height
        axes = figure.add_axes(
            (_LANE_LEFT / _WIDTH, 1 - bottom / height, _LANE_WIDTH / _WIDTH, lane_height / height)
        )
        _draw_lane(axes, gpu, lane, columns[number], clock, palette)
        _set_axes(axes, clock, palette, has_lost=has_lost, is_last=number == len(shown) - 1)
        _write_beside(axes, gpu, palette)
    if is_cut:
        said = (
            f"The {len(shown)} of {counted(len(report.gpus), 'GPU', 'GPUs')} that lost most time "
            "while in use; the report has all of them."
        )
        figure.text(_MARGIN / _WIDTH, 6 / height, said, fontsize=9.5, color=palette.quiet)
    return figure


@dataclass(frozen=True, slots=True)
class _Line:
    """A line above the lanes, its height in points, and how matplotlib is to write it."""

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
    """Lines of so many letters, no number parted from its unit or its GPU.

    Half as many where some are twice as wide, as those of Chinese are.
    """
    kept = _NO_BREAK_HERE.sub("\N{NO-BREAK SPACE}", words)
    if any(east_asian_width(letter) in "WF" for letter in words):
        width //= 2
    return textwrap.wrap(kept, width, max_lines=most, placeholder=" …")


def _shown(gpus: Sequence[GpuReport], lanes: Sequence[Lane]) -> list[tuple[GpuReport, Lane]]:
    """The GPUs that lost most, in the order of the report."""
    both = list(zip(gpus, lanes, strict=True))
    ranked = sorted(range(len(both)), key=lambda number: -both[number][0].totals.lost_ns)
    return [both[number] for number in sorted(ranked[:MOST_LANES])]


def _span_of(report: Report, shown: Sequence[tuple[GpuReport, Lane]]) -> Interval:
    seen = [lane for _, lane in shown if lane.observed_ns]
    start_ns = min([report.origin_ns, *(lane.start_ns for lane in seen)])
    return Interval(start_ns, max([start_ns + 1, *(lane.end_ns for lane in seen)]))


# -- the clock ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Clock:
    """Where an instant is on the axis: a date by the log's clock, or a time since it began."""

    span: Interval
    zero_ns: int
    zero: float
    unit_ns: float
    caption: str
    locator: Locator
    formatter: Formatter
    patience_ns: int

    def x(self, at_ns: float) -> float:
        """On the axis; an instant that is not shown, at the edge."""
        at_ns = min(max(at_ns, self.span.start_ns), self.span.end_ns)
        return self.zero + (at_ns - self.zero_ns) / self.unit_ns

    def bars(self, stretches: Iterable[Interval]) -> list[tuple[float, float]]:
        """Left edge and width of each, as ``broken_barh`` takes them."""
        edges = ((self.x(one.start_ns), self.x(one.end_ns)) for one in stretches)
        return [(left, right - left) for left, right in edges]


def _clock_of(report: Report, span: Interval) -> _Clock:
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
    return _Clock(
        span, report.origin_ns, float(dates.date2num(zero)), 86_400.0 * NS_PER_S,
        f"{days}, {_zone(moment)}", locator, formatter, patience_ns,
    )  # fmt: skip


def _zone(moment: datetime) -> str:
    if moment.tzinfo is None:
        return "by the clock of the log"
    return f"UTC{moment:%z}" if moment.utcoffset() else "UTC"


def _clock_from_start(report: Report, span: Interval, patience_ns: int) -> _Clock:
    units = ((2 * 86_400, 86_400, "d"), (7_200, 3_600, "h"), (120, 60, "min"), (0, 1, "s"))
    unit_s, unit = next(
        (unit_s, unit) for least_s, unit_s, unit in units if span.duration_ns >= least_s * NS_PER_S
    )
    return _Clock(
        span, report.origin_ns, 0.0, float(unit_s * NS_PER_S),
        f"time from the start of the log, {unit}", MaxNLocator(8), FuncFormatter(_plain),
        patience_ns,
    )  # fmt: skip


def _plain(value: float, _: int | None) -> str:
    return f"{value:,.10g}"


# -- one lane -------------------------------------------------------------------


def _draw_lane(
    axes: Axes, gpu: GpuReport, lane: Lane, columns: LaneColumns, clock: _Clock, palette: Palette
) -> None:
    """From the lowest to the uppermost: away, lost, not observed, busy, and the strip beneath."""
    span, lost = clock.span, gpu.totals.starved_intervals
    edges = np.linspace(clock.x(span.start_ns), clock.x(span.end_ns), COLUMNS + 1)
    marked = close_together(lost, span.duration_ns // COLUMNS)
    away = clock.bars(out_of_use(lane, clock.patience_ns))
    axes.axhspan(0, 1, color=palette.in_use, linewidth=0)
    axes.broken_barh(away, (0, 1), color=palette.not_in_use, linewidth=0)
    axes.broken_barh(clock.bars(marked), (0, 1), color=palette.lost_ground, linewidth=0.5)
    axes.broken_barh(
        [(edges[at], edges[end] - edges[at]) for at, end in unobserved_runs(columns)],
        (0, 1), facecolor=palette.in_use, edgecolor=palette.unobserved, hatch="////", linewidth=0,
    )  # fmt: skip
    _fill(axes, np.minimum(1.0, columns.busy), edges, palette.busy)
    if lost:
        strip = np.where(columns.lost > 0, np.maximum(columns.lost, _LEAST_IN_STRIP), 0.0)
        _fill(axes, (strip - 1.25) * _STRIP, edges, palette.lost, baseline=-1.25 * _STRIP)


def _fill(axes: Axes, values: Shares, edges: Shares, colour: str, baseline: float = 0.0) -> None:
    """Filled columns, neighbours of one height as one."""
    values = np.round(values, 3)
    kept = np.append(True, np.diff(values) != 0)
    axes.stairs(
        values[kept], edges[np.append(kept, True)], baseline=baseline, fill=True, color=colour,
        linewidth=0,
    )  # fmt: skip


def _set_axes(
    axes: Axes, clock: _Clock, palette: Palette, *, has_lost: bool, is_last: bool
) -> None:
    axes.set_facecolor("none")
    axes.set_xlim(clock.x(clock.span.start_ns), clock.x(clock.span.end_ns))
    axes.set_ylim(-1.25 * _STRIP if has_lost else 0.0, 1.0)
    axes.set_yticks([0, 1], ["0", "100 %"])
    axes.xaxis.set_major_locator(clock.locator)
    axes.xaxis.set_major_formatter(clock.formatter)
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
        axes.set_xlabel(clock.caption, fontsize=9.5, color=palette.quiet)


def _write_beside(axes: Axes, gpu: GpuReport, palette: Palette) -> None:
    """Its name to the left, what it amounts to to the right."""
    model = _wrapped(label_text(gpu.name), 24, most=2)
    name = label_text(f"GPU {gpu.label}", 20)
    left, right = (_MARGIN - _LANE_LEFT) / _LANE_WIDTH, 1 + _GAP / _LANE_WIDTH
    write = partial(axes.text, y=0.6, transform=axes.transAxes)
    title = {"fontsize": 11, "fontweight": "bold", "color": palette.text}
    write(left, s=name, va="bottom" if model else "center", **title)
    write(left, s="\n".join(model), va="top", fontsize=8, color=palette.quiet)
    write(right, s=f"busy {in_percent(_busy_ratio(gpu))}", va="bottom", **title)
    colour = palette.quiet if gpu.verdict.severity is Severity.NONE else palette.lost
    write(right, s=verdict_word(gpu), va="top", fontsize=9, color=colour)


def _busy_ratio(gpu: GpuReport) -> float | None:
    totals = gpu.totals
    return totals.busy_ns / totals.observed_ns if totals.observed_ns else None


# -- the legend -----------------------------------------------------------------


def _legend(gpus: Sequence[GpuReport], palette: Palette, *, has_holes: bool) -> list[Patch]:
    """What is painted, and how much of it there is."""
    items = [
        Patch(facecolor=palette.busy, label="busy: share of the time, by height"),
        Patch(facecolor=palette.in_use, edgecolor=palette.rule, label="in use and idle"),
    ]
    if any(gpu.totals.starved_intervals for gpu in gpus):
        items.append(
            Patch(facecolor=palette.lost_ground, edgecolor=palette.lost, label=_lost_words(gpus))
        )
    away_ns = sum(gpu.totals.idle_ns.get(IdleCause.NOT_IN_USE, 0) for gpu in gpus)
    if away_ns:
        said = f"not in use: {in_all(away_ns, gpus)}"
        items.append(Patch(facecolor=palette.not_in_use, edgecolor=palette.rule, label=said))
    if has_holes:
        items.append(
            Patch(facecolor=palette.in_use, edgecolor=palette.unobserved, hatch="////",
                  linewidth=0, label="not observed")
        )  # fmt: skip
    return items


def _lost_words(gpus: Sequence[GpuReport]) -> str:
    """How much is marked, and how often."""
    starved_ns = sum(gpu.totals.starved_ns for gpu in gpus)
    suspected_ns = sum(gpu.totals.suspected_ns for gpu in gpus)
    count = sum(len(gpu.totals.starved_intervals) + gpu.totals.merged_intervals for gpu in gpus)
    word = "suspected starvation"
    if starved_ns:
        word = "starved or suspected" if suspected_ns else "starved"
    stretches = counted(count, "stretch", "stretches")
    return f"{word}: {in_all(starved_ns + suspected_ns, gpus)} in {stretches}"
