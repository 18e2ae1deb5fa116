"""From a report and its lanes to a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

from gpumon.core.busy_lane import Lane
from gpumon.core.figures import counted, in_percent, in_seconds, plainly
from gpumon.core.label_text import label_text
from gpumon.core.report import GpuReport, Report
from gpumon.core.settings import DEFAULT_SETTINGS
from gpumon.core.units import seconds
from gpumon.outlets.log_plot.drawing import Anchor, Box, Drawing, Ink, Line, Mark, Steps, Text
from gpumon.outlets.log_plot.frame import LANE_LEFT, LANE_RIGHT, MARGIN, WIDTH, Frame
from gpumon.outlets.log_plot.lane_row import STRIP_GAP, lane_row
from gpumon.outlets.log_plot.legend import legend_items, legend_marks
from gpumon.outlets.log_plot.text_fit import in_lines
from gpumon.outlets.log_plot.time_axis import TICK_SIZE, axis_of
from gpumon.outlets.report_headline import verdict_line, verdict_word, why_line

MOST_LANES: Final = 16
_ROOM: Final = WIDTH - 2 * MARGIN
_TITLE_SIZE: Final = 16.0
_WORDS_SIZE: Final = 11.0
_NOTE_SIZE: Final = 10.0


def picture(report: Report, lanes: Sequence[Lane]) -> Drawing:
    """A picture that stands for itself: the verdict, and under it the lanes.

    Args:
        report: What is said of the log.
        lanes: How busy each GPU was, in the order of ``report.gpus``.
    """
    marks, top = _headline(report)
    return _on_paper(report, [*marks, *_lanes_from(report, lanes, top)])


def lanes_picture(report: Report, lanes: Sequence[Lane]) -> Drawing:
    """The lanes alone, for a page that says the rest; arguments as of ``picture``."""
    return _on_paper(report, _lanes_from(report, lanes, MARGIN / 2))


def _headline(report: Report) -> tuple[list[Mark], float]:
    marks: list[Mark] = []
    baseline = MARGIN + _TITLE_SIZE
    for line in in_lines(_capital(verdict_line(report)), _ROOM, _TITLE_SIZE, bold=True):
        marks.append(Text(MARGIN, baseline, line, _TITLE_SIZE, bold=True))
        baseline += _TITLE_SIZE * 1.3
    baseline -= 2
    for words in (_capital(why_line(report)), _origin(report)):
        for line in in_lines(words, _ROOM, _WORDS_SIZE, most=2):
            marks.append(Text(MARGIN, baseline, line, _WORDS_SIZE, Ink.QUIET))
            baseline += _WORDS_SIZE * 1.4
    return marks, baseline - 4


def _lanes_from(report: Report, lanes: Sequence[Lane], top: float) -> list[Mark]:
    shown = _shown(report.gpus, lanes)
    gpus = [gpu for gpu, _ in shown]
    frame = _frame(report, shown)
    each = frame.lane_height + (STRIP_GAP + frame.strip_height if frame.strip_height else 0) + 10
    # The legend names what is painted, and how tall it is decides where the lanes begin.
    inks = {
        mark.ink
        for gpu, lane in shown
        for mark in lane_row(gpu, lane, frame, 0)
        if isinstance(mark, (Box, Steps))
    }
    marks, top = legend_marks(legend_items(gpus, inks), top)
    first = top + 10
    bottom = first + each * len(shown)
    marks += _axis(frame, first, bottom)
    for number, (gpu, lane) in enumerate(shown):
        marks += lane_row(gpu, lane, frame, first + number * each)
    if len(shown) < len(report.gpus):
        said = (
            f"The {len(shown)} of {counted(len(report.gpus), 'GPU', 'GPUs')} that lost most time "
            "while in use; the report has all of them."
        )
        marks.append(Text(MARGIN, bottom + 58, said, _NOTE_SIZE, Ink.QUIET))
    return marks


def _shown(gpus: Sequence[GpuReport], lanes: Sequence[Lane]) -> list[tuple[GpuReport, Lane]]:
    """The GPUs that lost most, in the order of the report."""
    both = list(zip(gpus, lanes, strict=True))
    ranked = sorted(range(len(both)), key=lambda number: -both[number][0].totals.lost_ns)
    return [both[number] for number in sorted(ranked[:MOST_LANES])]


def _frame(report: Report, shown: Sequence[tuple[GpuReport, Lane]]) -> Frame:
    seen = [lane for _, lane in shown if lane.observed_ns]
    start_ns = min([report.origin_ns, *(lane.start_ns for lane in seen)])
    end_ns = max([start_ns + 1, *(lane.end_ns for lane in seen)])
    has_lost = any(gpu.totals.starved_intervals for gpu, _ in shown)
    few = len(shown) <= 4
    return Frame(
        axis=axis_of(report, start_ns, end_ns),
        lane_height=52.0 if few else 34.0 if len(shown) <= 8 else 26.0,
        strip_height=(9.0 if few else 6.0) if has_lost else 0.0,
        patience_ns=max(
            DEFAULT_SETTINGS.idle_job_ends_after_ns,
            DEFAULT_SETTINGS.idle_job_ends_after_samples * report.period_ns,
        ),
    )


def _axis(frame: Frame, first: float, bottom: float) -> list[Mark]:
    """Tick marks behind the lanes, their labels beneath, and what they are."""
    marks: list[Mark] = [Line(LANE_LEFT, bottom, LANE_RIGHT, bottom, Ink.RULE)]
    baseline = bottom + TICK_SIZE + 6
    has_dates = False
    for tick in frame.axis.ticks(LANE_RIGHT - LANE_LEFT):
        at = frame.x(tick.at_ns)
        marks.append(Line(at, first, at, bottom + 4, Ink.RULE))
        for words, below in ((tick.label, 0.0), (tick.date, TICK_SIZE + 3)):
            if words:
                marks.append(Text(at, baseline + below, words, TICK_SIZE, Ink.QUIET, Anchor.MIDDLE))
        has_dates = has_dates or bool(tick.date)
    under = baseline + TICK_SIZE + 3 + (TICK_SIZE + 3 if has_dates else 0)
    middle = (LANE_LEFT + LANE_RIGHT) / 2
    caption = frame.axis.caption()
    marks.append(Text(middle, under, caption, TICK_SIZE, Ink.QUIET, Anchor.MIDDLE))
    return marks


def _on_paper(report: Report, marks: Sequence[Mark]) -> Drawing:
    lowest = max(mark.baseline + 4 for mark in marks if isinstance(mark, Text))
    height = lowest + MARGIN - 6
    paper = Box(0, 0, WIDTH, height, Ink.PAPER)
    return Drawing(WIDTH, height, _description(report), (paper, *marks))


def _description(report: Report) -> str:
    """The picture in words."""
    said = [_capital(verdict_line(report))]
    for gpu in report.gpus[:MOST_LANES]:
        totals = gpu.totals
        busy = totals.busy_ns / totals.observed_ns if totals.observed_ns else None
        said.append(f"GPU {gpu.label}: {verdict_word(gpu)}, busy {in_percent(busy)}.")
    return " ".join(said)


def _origin(report: Report) -> str:
    name = label_text(PurePath(report.source).name or report.source, 100)
    every = f"{plainly(seconds(report.period_ns), 3)} s"
    return f"{name}: {in_seconds(report.observed_ns)} observed, one sample every {every}."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
