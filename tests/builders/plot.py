"""Reports of synthetic logs with their lanes, as plots need them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from matplotlib.figure import Figure
from matplotlib.text import Text

from gpumon.core.diagnosis.advice import advise
from gpumon.core.diagnosis.verdict_rules import diagnose
from gpumon.core.log_summary.busy_lane import BusyLane
from gpumon.core.report.lanes import Lanes
from gpumon.core.report.report import GpuReport, Report, sampling_of
from gpumon.core.sample import BusySample
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from tests.builders.time import settled


class Logged(NamedTuple):
    """A log's report, and the busy lane of each GPU."""

    report: Report
    lanes: Lanes


def logged(
    *gpus: Sequence[BusySample],
    names: Sequence[str] = (),
    started_at: str | None = None,
    source: str = "gpu.csv",
    notes: tuple[str, ...] = (),
) -> Logged:
    """A log with these samples of each GPU, whose clock begins at 0."""
    reports, lanes = [], []
    for index, samples in enumerate(gpus):
        lane = BusyLane()
        lane.observe(samples)
        lanes.append(lane.snapshot())
        totals = settled(samples)
        name = names[index] if index < len(names) else None
        reports.append(
            GpuReport(index=index, uuid=None, name=name, totals=totals, verdict=diagnose(totals))
        )
    first = gpus[0][0]
    report = Report(
        source=source,
        simulated=False,
        started_at=started_at,
        origin_ns=min(samples[0].start_ns for samples in gpus),
        observed_ns=max(gpu.totals.observed_ns for gpu in reports),
        period_ns=first.end_ns - first.start_ns,
        skipped_lines=0,
        gpus=tuple(reports),
        runs=(),
        advice=advise(reports, ()),
        notes=notes,
        sampling=sampling_of(first.end_ns - first.start_ns, DEFAULT_SETTINGS),
    )
    return Logged(report, Lanes(tuple(lanes)))


def texts_of(figure: Figure) -> list[Text]:
    """Every visible text, including the labels of axes and legend."""
    figure.draw_without_rendering()
    return [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]


def text_on(figure: Figure) -> str:
    """All text, without line breaks."""
    printed = " | ".join(text.get_text() for text in texts_of(figure))
    return printed.replace("\n", " ").replace("\N{NO-BREAK SPACE}", " ")


def layout_faults(figure: Figure) -> list[str]:
    """Texts that leave the figure, or overlap each other or a lane."""
    # A font's lines have a margin above and below their letters.
    places = [
        (text.get_text(), text.get_window_extent().padded(0, -2)) for text in texts_of(figure)
    ]
    faults = [
        f"{words!r} runs out of the picture"
        for words, place in places
        if place.x0 < 0 or place.y0 < 0
        or place.x1 > figure.bbox.width or place.y1 > figure.bbox.height
    ]  # fmt: skip
    faults += [
        f"{one!r} touches {other!r}"
        for (one, place), (other, beside) in combinations(places, 2)
        if place.overlaps(beside)
    ]
    return faults + [
        f"{words!r} lies on a lane"
        for words, place in places
        if any(place.overlaps(axes.bbox) for axes in figure.axes)
    ]
