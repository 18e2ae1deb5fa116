"""From a report and its lanes to a picture, with a legend of what is in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Final

from gpumon.core.log.busy_lane import Lane
from gpumon.core.phase import IdleCause
from gpumon.core.report.report import GpuReport, Report
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.time.job_end import job_patience_ns
from gpumon.core.wording import counted, in_percent, in_seconds, label_text
from gpumon.outlets.plot.drawing import (
    Anchor,
    Box,
    Drawing,
    Ink,
    Line,
    Mark,
    Steps,
    Text,
    fitted,
    in_lines,
    text_width,
)
from gpumon.outlets.plot.lane_row import (
    LANE_LEFT,
    LANE_RIGHT,
    MARGIN,
    STRIP_GAP,
    WIDTH,
    LaneScale,
    lane_row,
)
from gpumon.outlets.plot.time_axis import TICK_SIZE, axis_of
from gpumon.outlets.text.headline import verdict_line, verdict_word, why_line
from gpumon.outlets.text.report_lines import observed
from gpumon.outlets.text.style import capital

MOST_LANES: Final = 16
_ROOM: Final = WIDTH - 2 * MARGIN
_TITLE_SIZE: Final = 16.0
_WORDS_SIZE: Final = 11.0
_NOTE_SIZE: Final = 10.0
LINE_HEIGHT: Final = 18.0
_SWATCH_WIDTH, _SWATCH_HEIGHT = 18.0, 10.0
_GAP: Final = 18.0


def picture(report: Report, lanes: Sequence[Lane]) -> Drawing:
    """A picture that stands for itself: the verdict, and under it a lane of each GPU reported."""
    marks, top = _headline(report)
    return _on_paper(report, [*marks, *_lanes_from(report, lanes, top)])


def lanes_picture(report: Report, lanes: Sequence[Lane]) -> Drawing:
    """The lanes alone, for a page that says the rest."""
    return _on_paper(report, _lanes_from(report, lanes, MARGIN / 2))


def _headline(report: Report) -> tuple[list[Mark], float]:
    marks: list[Mark] = []
    baseline = MARGIN + _TITLE_SIZE
    for line in in_lines(capital(verdict_line(report)), _ROOM, _TITLE_SIZE, bold=True):
        marks.append(Text(MARGIN, baseline, line, _TITLE_SIZE, bold=True))
        baseline += _TITLE_SIZE * 1.3
    baseline -= 2
    for words in (capital(why_line(report)), _origin(report)):
        for line in in_lines(words, _ROOM, _WORDS_SIZE, most=2):
            marks.append(Text(MARGIN, baseline, line, _WORDS_SIZE, Ink.QUIET))
            baseline += _WORDS_SIZE * 1.4
    return marks, baseline - 4


def _lanes_from(report: Report, lanes: Sequence[Lane], top: float) -> list[Mark]:
    shown = _shown(report.gpus, lanes)
    gpus = [gpu for gpu, _ in shown]
    scale = _scale(report, shown)
    each = scale.lane_height + (STRIP_GAP + scale.strip_height if scale.strip_height else 0) + 10
    # The legend names what is painted, and how tall it is decides where the lanes begin.
    inks = {
        mark.ink
        for gpu, lane in shown
        for mark in lane_row(gpu, lane, scale, 0)
        if isinstance(mark, (Box, Steps))
    }
    marks, top = legend_marks(legend_items(gpus, inks), top)
    first = top + 10
    bottom = first + each * len(shown)
    marks += _axis(scale, first, bottom)
    for number, (gpu, lane) in enumerate(shown):
        marks += lane_row(gpu, lane, scale, first + number * each)
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


def _scale(report: Report, shown: Sequence[tuple[GpuReport, Lane]]) -> LaneScale:
    seen = [lane for _, lane in shown if lane.observed_ns]
    start_ns = min([report.origin_ns, *(lane.start_ns for lane in seen)])
    end_ns = max([start_ns + 1, *(lane.end_ns for lane in seen)])
    has_lost = any(gpu.totals.starved_intervals for gpu, _ in shown)
    few = len(shown) <= 4
    return LaneScale(
        axis=axis_of(report, start_ns, end_ns),
        lane_height=52.0 if few else 34.0 if len(shown) <= 8 else 26.0,
        strip_height=(9.0 if few else 6.0) if has_lost else 0.0,
        patience_ns=job_patience_ns(report.period_ns, DEFAULT_SETTINGS),
    )


def _axis(scale: LaneScale, first: float, bottom: float) -> list[Mark]:
    """Tick marks behind the lanes, their labels beneath, and what they are."""
    marks: list[Mark] = [Line(LANE_LEFT, bottom, LANE_RIGHT, bottom, Ink.RULE)]
    baseline = bottom + TICK_SIZE + 6
    has_dates = False
    for tick in scale.axis.ticks(LANE_RIGHT - LANE_LEFT):
        at = scale.x(tick.at_ns)
        marks.append(Line(at, first, at, bottom + 4, Ink.RULE))
        for words, below in ((tick.label, 0.0), (tick.date, TICK_SIZE + 3)):
            if words:
                marks.append(Text(at, baseline + below, words, TICK_SIZE, Ink.QUIET, Anchor.MIDDLE))
        has_dates = has_dates or bool(tick.date)
    under = baseline + TICK_SIZE + 3 + (TICK_SIZE + 3 if has_dates else 0)
    middle = (LANE_LEFT + LANE_RIGHT) / 2
    caption = scale.axis.caption()
    marks.append(Text(middle, under, caption, TICK_SIZE, Ink.QUIET, Anchor.MIDDLE))
    return marks


def _on_paper(report: Report, marks: Sequence[Mark]) -> Drawing:
    lowest = max(mark.baseline + 4 for mark in marks if isinstance(mark, Text))
    height = lowest + MARGIN - 6
    paper = Box(0, 0, WIDTH, height, Ink.PAPER)
    return Drawing(WIDTH, height, _description(report), (paper, *marks))


def _description(report: Report) -> str:
    """The picture in words."""
    said = [capital(verdict_line(report))]
    for gpu in report.gpus[:MOST_LANES]:
        totals = gpu.totals
        busy = totals.busy_ns / totals.observed_ns if totals.observed_ns else None
        said.append(f"GPU {gpu.label}: {verdict_word(gpu)}, busy {in_percent(busy)}.")
    return " ".join(said)


def _origin(report: Report) -> str:
    name = label_text(PurePath(report.source).name or report.source, 100)
    return f"{observed(name, report)}."


# -- the legend -----------------------------------------------------------------


def legend_items(gpus: Sequence[GpuReport], inks: set[Ink]) -> list[tuple[Ink, str]]:
    """Which entries a legend has, and what they say of the GPUs shown."""
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
        words = fitted(said, room, _NOTE_SIZE)
        width = _SWATCH_WIDTH + 6 + text_width(words, _NOTE_SIZE)
        if left > MARGIN and left + width > WIDTH - MARGIN:
            left, top = MARGIN, top + LINE_HEIGHT
        marks += _swatch(ink, left, top + 3)
        marks.append(Text(left + _SWATCH_WIDTH + 6, top + 12, words, _NOTE_SIZE, Ink.QUIET))
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
