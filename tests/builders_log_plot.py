"""Reports of made-up logs together with their lanes, as pictures need them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from gpumon.core.judge.advice import advise
from gpumon.core.judge.verdict_rules import judge
from gpumon.core.log.busy_lane import BusyLane, Lane
from gpumon.core.report.report import GpuReport, Report, sampling_of
from gpumon.core.sample import BusySample
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.outlets.plot.drawing import Anchor, Drawing, Ink, Text, text_width
from gpumon.outlets.plot.drawing import Box as DrawnBox
from tests.builders_time import settled


class Logged(NamedTuple):
    """A log's report, and how busy each GPU was."""

    report: Report
    lanes: tuple[Lane, ...]


def logged(
    *gpus: Sequence[BusySample],
    names: Sequence[str] = (),
    started_at: str | None = None,
    source: str = "gpu.csv",
    notes: tuple[str, ...] = (),
) -> Logged:
    """A log with those samples of each GPU, whose clock begins at 0."""
    reports, lanes = [], []
    for index, samples in enumerate(gpus):
        lane = BusyLane()
        lane.extend(samples)
        lanes.append(lane.snapshot())
        totals = settled(samples)
        name = names[index] if index < len(names) else None
        reports.append(
            GpuReport(index=index, uuid=None, name=name, totals=totals, verdict=judge(totals))
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
    return Logged(report, tuple(lanes))


class Place(NamedTuple):
    """Where something is, in points."""

    left: float
    top: float
    right: float
    bottom: float

    def touches(self, other: Place) -> bool:
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom


def place_of(text: Text) -> Place:
    """The room that a text takes at most."""
    width = text_width(text.words, text.size, bold=text.bold)
    left = text.left - {Anchor.START: 0.0, Anchor.MIDDLE: width / 2, Anchor.END: width}[text.anchor]
    return Place(left, text.baseline - 0.76 * text.size, left + width, text.baseline + 1)


def texts_of(drawing: Drawing) -> list[Text]:
    return [mark for mark in drawing.marks if isinstance(mark, Text)]


def faults_of(drawing: Drawing) -> list[str]:
    """Texts that run out of the picture, over each other, or into a lane."""
    places = [(text.words, place_of(text)) for text in texts_of(drawing)]
    faults = [
        f"{words!r} runs out of the picture"
        for words, place in places
        if min(place.left, place.top) < 0
        or place.right > drawing.width
        or place.bottom > drawing.height
    ]
    faults += [
        f"{one!r} touches {other!r}"
        for (one, place), (other, beside) in combinations(places, 2)
        if place.touches(beside)
    ]
    lanes = [
        Place(box.left, box.top, box.left + box.width, box.top + box.height)
        for box in drawing.marks
        if isinstance(box, DrawnBox) and box.ink not in (Ink.PAPER, Ink.NONE)
    ]
    return faults + [
        f"{words!r} lies on a lane"
        for words, place in places
        if any(place.touches(lane) for lane in lanes)
    ]
