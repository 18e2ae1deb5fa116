"""Specification of the picture of a log: everything is shown, at its time, and nothing overlaps."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from xml.etree import ElementTree

import pytest
from matplotlib import colors
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch

from gpumon.core.phase import InputWaitReason, TrainingPhase
from gpumon.core.report.lanes import Lanes, RunLane
from gpumon.core.sample import BusySample
from gpumon.core.view.palette import LIGHT
from gpumon.outlets.plot.figure import figure_of, picture
from tests.builders.cycles import late_waves, on_and_off
from tests.builders.plot import Logged, layout_faults, logged, text_on
from tests.builders.report import run
from tests.builders.time import every, rhythm, s

BURSTY = every(1.0, on_and_off(late_waves(30)))
WELL = every(1.0, [0.97] * 150)
HOLE = [*every(1.0, [1.0] * 50), *every(1.0, [1.0] * 50, start_s=100.0)]
LATE = every(1.0, [0.0] * 50 + [1.0] * 100)
HOSTILE = "<script>alert('x')</script> $\\frac{1}{$ & ]]> \x00\x1b[31m\ud800" + "W" * 500
DAY = 86_400


def stretches(axes: Axes, colour: str) -> Iterator[tuple[float, float]]:
    """Left and right edge of each bar of a colour, from 0 to 1 over the axis."""
    first, last = axes.get_xlim()
    for bars in axes.findobj(PolyCollection):
        if colors.to_hex(bars.get_facecolor()[0] if len(bars.get_facecolor()) else "k") == colour:
            for path in bars.get_paths():
                across = (path.vertices[:, 0] - first) / (last - first)
                yield across.min(), across.max()


def filled(axes: Axes, colour: str) -> StepPatch:
    (columns,) = (
        one for one in axes.findobj(StepPatch) if colors.to_hex(one.get_facecolor()) == colour
    )
    return columns


def many(count: int, name: str = "NVIDIA A40") -> Logged:
    """GPUs that lose more and more, in rounds of 23."""
    few = logged(
        *(every(1.0, ([1.0] + [0.0] * (index + 1)) * 4) for index in range(min(count, 23)))
    )
    indices = range(count)
    gpus = tuple(replace(few.report.gpus[index % 23], index=index, name=name) for index in indices)
    lanes = Lanes(tuple(few.lanes.gpus[index % 23] for index in indices))
    return Logged(replace(few.report, gpus=gpus), lanes)


def ticks(figure: Figure) -> list[str]:
    """The labels beneath the last lane."""
    figure.draw_without_rendering()
    axes = figure.axes[-1]
    first, last = axes.get_xlim()
    labels = axes.get_xticklabels()
    return [one.get_text() for one in labels if first <= one.get_position()[0] <= last]


def clock_of(span_s: float, started_at: str | None) -> tuple[list[str], str]:
    """Labels and caption of a log of that length."""
    figure = figure_of(*logged(every(span_s / 100, [1.0] * 100), started_at=started_at))
    return ticks(figure), figure.axes[-1].get_xlabel()


class TestWhatItSays:
    @pytest.mark.parametrize(
        ("samples", "message"), [(HOLE, "not observed"), (LATE, "not in use: 50 s")]
    )
    def test_has_in_its_legend_what_is_in_it_and_nothing_else(
        self, samples: list[BusySample], message: str
    ) -> None:
        assert message in text_on(figure_of(*logged(samples)))
        assert message[:10] not in text_on(figure_of(*logged(WELL)))

    def test_are_the_sixteen_that_lost_most_of_many_gpus(self) -> None:
        report, lanes = many(40)
        figure = figure_of(report, lanes)

        lost = sorted(range(40), key=lambda index: -report.gpus[index].totals.lost_ns)
        named = re.findall(r"GPU (\d+) \|", text_on(figure))
        assert {int(index) for index in named} == set(lost[:16])
        assert len(figure.axes) == 16
        assert " 16 of 40 GPUs " in text_on(figure)
        assert " of 16 GPUs " not in text_on(figure_of(*many(16)))

    def test_show_a_lost_gpu_before_those_that_lost_more_time(self) -> None:
        report, lanes = many(40)
        least = min(report.gpus, key=lambda gpu: gpu.totals.lost_ns).index
        gpus = [
            replace(gpu, error="the GPU is lost (NVML 15)") if gpu.index == least else gpu
            for gpu in report.gpus
        ]

        words = text_on(figure_of(replace(report, gpus=tuple(gpus)), lanes))

        assert f"GPU {least} |" in words
        assert "| lost |" in words
        assert " 16 of 40 GPUs that are in trouble or lost most time" in words


class TestALane:
    def test_marks_each_lost_stretch_at_its_time(self) -> None:
        shown = logged(BURSTY)
        (axes,) = figure_of(*shown).axes

        marked = [edge for pair in stretches(axes, LIGHT.lost_ground) for edge in pair]
        lost = shown.report.gpus[0].totals.starved_intervals
        times = [at_ns / s(251) for one in lost for at_ns in (one.start_ns, one.end_ns)]
        assert marked == pytest.approx(times)

    def test_is_as_high_as_the_gpu_was_busy(self) -> None:
        (axes,) = figure_of(*logged(every(1.0, [0.25] * 50 + [0.75] * 50))).axes
        values, edges, _ = filled(axes, LIGHT.busy).get_data()

        first, last = axes.get_xlim()
        assert (values[0], values[-1]) == pytest.approx((0.25, 0.75), abs=0.001)
        assert (edges[[1, -2]] - first) / (last - first) == pytest.approx(0.5, abs=0.01)

    @pytest.mark.parametrize(
        ("samples", "colour", "stretch"),
        [(HOLE, LIGHT.in_use, (1 / 3, 2 / 3)), (LATE, LIGHT.not_in_use, (0, 1 / 3))],
        ids=["not observed", "not in use"],
    )
    def test_shows_other_time_as_what_it_is(
        self, samples: list[BusySample], colour: str, stretch: tuple[float, float]
    ) -> None:
        (axes,) = figure_of(*logged(samples)).axes

        assert list(stretches(axes, colour)) == [pytest.approx(stretch, abs=0.002)]


class TestTheClock:
    @pytest.mark.parametrize(
        ("span_s", "unit", "last"),
        [(0.9, "s", 0.8), (45, "s", 40), (600, "min", 10), (4 * 3600, "h", 4), (40 * DAY, "d", 40)],
    )
    def test_counts_from_the_start_of_a_log_without_one(
        self, span_s: float, unit: str, last: float
    ) -> None:
        labels, caption = clock_of(span_s, None)

        assert caption.endswith(f"log, {unit}")
        assert labels[0] == "0"
        assert float(labels[-1]) == pytest.approx(last, rel=0.15)

    @pytest.mark.parametrize(
        ("span_s", "started_at", "label", "caption"),
        [
            (1_200, "2026-03-01T10:01:40", "10:06", "2026-03-01, by the clock of the log"),
            (50, "2026-03-01T10:01:40.500", "10:01:45", "2026-03-01, by the clock of the log"),
            (4 * 3600, "2026-03-01T22:00:00Z", "2026-03-02", "2026-03-01 to 2026-03-02, UTC"),
            (5 * DAY, "2026-02-26T13:00+05:30", "2026-03",
             "2026-02-26 to 2026-03-03, UTC+0530"),
        ],
    )  # fmt: skip
    def test_is_the_logs_own_where_there_is_one(
        self, span_s: float, started_at: str, label: str, caption: str
    ) -> None:
        if started_at.endswith("Z"):
            started_at = f"{started_at[:-1]}+00:00"  # Python 3.10 reads no Z
        labels, message = clock_of(span_s, started_at)

        assert label in labels
        assert message == caption

    @pytest.mark.parametrize("started_at", ["9999-12-01T00:00:00", "soon"])
    def test_is_none_beyond_the_calendar(self, started_at: str) -> None:
        _, caption = clock_of(400 * DAY, started_at)

        assert caption.endswith("log, d")


class TestNothingTouches:
    @pytest.mark.parametrize("count", [1, 5, 9, 17])
    @pytest.mark.parametrize("name", ["NVIDIA A40", HOSTILE], ids=["short", "long"])
    def test_however_many_gpus_with_whatever_names(self, count: int, name: str) -> None:
        assert layout_faults(figure_of(*many(count, name))) == []

    @pytest.mark.parametrize(
        "started_at",
        [None, "2026-03-01T23:59:58.123", "2026-03-01T10:00+02:00", "0001-01-01T00:00"],
    )
    @pytest.mark.parametrize("period_s", [0.001, 1.0, 60.0, 86_400.0])
    def test_however_long_the_log(self, period_s: float, started_at: str | None) -> None:
        shown = logged(every(period_s, rhythm(3, 2, 30)), started_at=started_at)

        assert layout_faults(figure_of(*shown)) == []

    @pytest.mark.parametrize("name", ["名" * 80, "a b " * 40, "", "\u202eevil", "😀" * 30])
    @pytest.mark.filterwarnings("ignore:Glyph")
    def test_whatever_names_are_in_it(self, name: str) -> None:
        shown = logged(BURSTY, WELL, names=[name, name], source=f"/logs/{name}.csv")

        assert layout_faults(figure_of(*shown)) == []

    @pytest.mark.parametrize(
        "samples",
        [[BusySample(0, 1, 1.0)], every(1.0, [0.0] * 150),
         [*BURSTY, BusySample(s(1e9), s(1e9 + 1), 1.0)]],
        ids=["one sample", "idle", "a hole of decades"],
    )  # fmt: skip
    def test_whatever_the_lane(self, samples: list[BusySample]) -> None:
        assert layout_faults(figure_of(*logged(samples))) == []


class TestTheFile:
    def test_of_an_svg_is_whole_and_alone_whatever_the_log_calls_its_gpus(self) -> None:
        svg = picture(*logged(BURSTY, names=[HOSTILE], source=HOSTILE), "svg")

        tags = {
            element.tag.partition("}")[2] for element in ElementTree.parse(io.BytesIO(svg)).iter()
        }
        assert not tags & {"script", "image", "foreignObject", "text"}  # outlines: no font needed
        assert not re.search(rb'href="(?!#)', svg)

    @pytest.mark.parametrize("kind", ["svg", "pdf", "png"])
    def test_is_the_same_of_the_same_log(self, kind: str) -> None:
        shown = logged(BURSTY)

        assert picture(*shown, kind) == picture(*shown, kind)


def trained(
    *names: str,
    gpus: int = 1,
    seconds: int = 100,
    reasons: Mapping[InputWaitReason, float] = MappingProxyType({}),
) -> Logged:
    """GPUs on which runs wait for input for the first half of their time, and then work."""
    log = logged(
        *[every(1.0, [0.0] * (seconds // 2) + [1.0] * (seconds // 2))] * gpus,
        started_at="2026-05-11T14:00:00+00:00",
    )
    half = seconds // 2
    phases = {
        TrainingPhase.INPUT_WAIT: (s(1),) * half + (0,) * half,
        TrainingPhase.TRAIN_STEP: (0,) * half + (s(1),) * half,
    }
    runs, lanes = [], []
    for number, name in enumerate(names):
        uuids = tuple(f"GPU-{index}" for index in range(gpus))
        runs.append(replace(run(wall_s=seconds), run=name, pid=number, gpu_uuids=uuids))
        by_reason = {reason: (s(share),) * half + (0,) * half for reason, share in reasons.items()}
        lanes.append(RunLane(name, number, s(0), s(seconds - number), s(1), phases, by_reason))
        phases = {phase: cells[:-1] for phase, cells in phases.items()}
    reports = [replace(one, uuid=f"GPU-{one.index}") for one in log.report.gpus]
    report = replace(log.report, gpus=tuple(reports), runs=tuple(runs))
    return Logged(report, Lanes(log.lanes.gpus, tuple(lanes)))


class TestTheRuns:
    def test_stand_above_the_gpus_with_the_share_of_each_phase(self) -> None:
        figure = figure_of(*trained("resnet"))

        above, below = figure.axes
        assert above.get_position().y0 > below.get_position().y1
        assert "training step: 50 %" in text_on(figure)
        assert "waiting for input: 50 %" in text_on(figure)
        assert "callbacks" not in text_on(figure)

    def test_are_drawn_when_they_did_what_they_did(self) -> None:
        lane = figure_of(*trained("resnet")).axes[0]

        first, last = lane.get_xlim()
        for colour, shares in ((LIGHT.lost, (0.0, 0.5)), (LIGHT.busy, (0.5, 1.0))):
            values, edges, _ = filled(lane, colour).get_data()
            painted = [
                (edge - first) / (last - first)
                for edge, value in zip(edges, values, strict=False) if value
            ] + [(edges[number + 1] - first) / (last - first)
                 for number, value in enumerate(values) if value]  # fmt: skip
            assert (min(painted), max(painted)) == pytest.approx(shares)

    def test_hold_a_gpu_that_waits_for_its_first_batch_in_use(self) -> None:
        shown = trained("resnet")
        alone = Logged(replace(shown.report, runs=()), Lanes(shown.lanes.gpus))

        (before,) = stretches(figure_of(*alone).axes[0], LIGHT.not_in_use)
        assert before == pytest.approx((0.0, 0.5), abs=0.01)
        assert not [*stretches(figure_of(*shown).axes[1], LIGHT.not_in_use)]

    @pytest.mark.parametrize("gpus", [1, 9])
    @pytest.mark.parametrize("names", [("a",), ("W" * 90, "<b>$x$</b>", "c", "d", "e")])
    def test_touch_nothing(self, names: tuple[str, ...], gpus: int) -> None:
        assert layout_faults(figure_of(*trained(*names, gpus=gpus))) == []

    def test_have_what_held_the_input_up_beneath_their_waits(self) -> None:
        reasons = {InputWaitReason.DISK_BOUND: 0.25, InputWaitReason.CPU_BOUND: 0.75}
        shown = trained("resnet", reasons=reasons)
        figure = figure_of(*shown)

        assert "late for preprocessing: 75 %" in text_on(figure)
        assert "late for the disk: 25 %" in text_on(figure)
        for reason, top in ((InputWaitReason.DISK_BOUND, 0.25), (InputWaitReason.CPU_BOUND, 1.0)):
            heights, edges, beneath = filled(
                figure.axes[0], getattr(LIGHT, reason.value)
            ).get_data()
            first, last = figure.axes[0].get_xlim()
            assert heights[0] - beneath == pytest.approx(top * 0.22, abs=0.001)
            assert (edges[1] - first) / (last - first) == pytest.approx(0.5)
            assert heights[1] == pytest.approx(beneath, abs=0.001)
        assert layout_faults(figure) == []
