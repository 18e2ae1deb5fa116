"""Specification of the picture's layout: everything is said, and nothing touches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.core.sample import BusySample
from gpumon.core.wording import in_seconds
from gpumon.outlets.plot.drawing import Box, Drawing, Ink, Steps
from gpumon.outlets.plot.lane_row import LANE_LEFT, LANE_WIDTH, MARGIN
from gpumon.outlets.plot.layout import lanes_picture, picture
from tests.builders_log_plot import Logged, faults_of, logged, texts_of
from tests.builders_time import every, rhythm, s

BURSTY = every(1.0, rhythm(3, 2, 30))
WELL = every(1.0, [0.97] * 150)
HOSTILE = "<script>alert('x')</script>\x1b[31m" + "W" * 500
EMPTY_LANE = every(1.0, [0.0] * 150)


def words_of(drawing: Drawing) -> str:
    return " | ".join(text.words for text in texts_of(drawing))


def boxes(drawing: Drawing, ink: Ink) -> list[Box]:
    """Boxes of an ink in the lanes, without the legend's."""
    return [
        mark
        for mark in drawing.marks
        if isinstance(mark, Box) and mark.ink is ink and mark.left >= LANE_LEFT and mark.height > 10
    ]


def many(count: int, name: str = "NVIDIA A40") -> Logged:
    """GPUs that lose more and more, in rounds of 23."""
    few = logged(
        *(every(1.0, ([1.0] + [0.0] * (index + 1)) * 4) for index in range(min(count, 23)))
    )
    indices = range(count)
    gpus = tuple(replace(few.report.gpus[index % 23], index=index, name=name) for index in indices)
    return Logged(replace(few.report, gpus=gpus), tuple(few.lanes[index % 23] for index in indices))


class TestAPicture:
    def test_begins_with_the_verdict_and_why(self) -> None:
        said = words_of(picture(*logged(BURSTY)))

        assert said.startswith("Starvation suspected (high loss): GPU 0 loses 39 % of its time")
        assert "It was idle for" in said

    def test_names_each_gpu_with_its_model_and_how_busy_it_was(self) -> None:
        said = words_of(picture(*logged(BURSTY, WELL, names=["Tesla V100", "NVIDIA A40"])))

        assert "GPU 0 | Tesla V100" in said
        assert "GPU 1 | NVIDIA A40" in said
        assert "busy 60 %" in said
        assert "busy 97 %" in said

    def test_counts_what_it_marks(self) -> None:
        report, lanes = logged(BURSTY)
        totals = report.gpus[0].totals

        said = words_of(picture(report, lanes))

        count = len(totals.starved_intervals)
        assert count == 29
        assert f"suspected starvation: {in_seconds(totals.suspected_ns)} in 29 stretches" in said

    def test_marks_a_stretch_where_it_was(self) -> None:
        report, lanes = logged(BURSTY)
        drawing = picture(report, lanes)

        marked = boxes(drawing, Ink.LOST_GROUND)
        for stretch, box in zip(report.gpus[0].totals.starved_intervals, marked, strict=True):
            assert box.left == pytest.approx(LANE_LEFT + LANE_WIDTH * stretch.start_ns / s(150))
            assert box.width == pytest.approx(LANE_WIDTH * stretch.duration_ns / s(150))

    def test_marks_nothing_on_a_healthy_gpu(self) -> None:
        drawing = picture(*logged(WELL))

        assert not any(mark.ink in (Ink.LOST, Ink.LOST_GROUND) for mark in drawing.marks)
        assert "starvation" not in words_of(drawing).casefold()

    def test_shows_time_that_was_not_observed_as_such(self) -> None:
        hole = [*every(1.0, [1.0] * 50), *every(1.0, [1.0] * 50, start_s=100.0)]
        drawing = picture(*logged(hole))

        (box,) = boxes(drawing, Ink.UNOBSERVED)
        assert box.left == pytest.approx(LANE_LEFT + LANE_WIDTH / 3, abs=1)
        assert box.width == pytest.approx(LANE_WIDTH / 3, abs=1)
        assert "not observed" in words_of(drawing)

    def test_shows_time_out_of_use_as_such(self) -> None:
        drawing = picture(*logged(every(1.0, [0.0] * 50 + [1.0] * 100)))

        (box,) = boxes(drawing, Ink.NOT_IN_USE)
        assert box.left == LANE_LEFT
        assert box.width == pytest.approx(LANE_WIDTH / 3, abs=1)
        assert "not in use: 50.0 s" in words_of(drawing)

    def test_has_no_legend_for_what_is_not_in_it(self) -> None:
        said = words_of(picture(*logged(WELL)))

        assert "not observed" not in said
        assert "not in use" not in said

    def test_draws_as_much_strip_as_was_lost(self) -> None:
        report, lanes = logged(BURSTY)
        (strip,) = (
            mark
            for mark in picture(report, lanes).marks
            if isinstance(mark, Steps) and mark.ink is Ink.LOST
        )
        drawn = sum(strip.heights) / max(strip.heights) / len(strip.heights)

        assert drawn * s(150) == pytest.approx(report.gpus[0].totals.suspected_ns, rel=0.03)

    def test_tells_the_pointer_what_was_going_on(self) -> None:
        titles = [box.title for box in picture(*logged(BURSTY)).marks if isinstance(box, Box)]

        assert any("GPU 0, 0.0 s to 1.9 s: busy 100 %" in title for title in titles)
        assert any("starved or suspected" in title for title in titles)

    def test_is_told_in_words_to_who_cannot_see_it(self) -> None:
        said = picture(*logged(BURSTY, WELL)).description

        assert "Starvation suspected" in said
        assert "GPU 1: healthy, busy 97 %." in said

    def test_is_the_lanes_alone_on_a_page_that_says_the_rest(self) -> None:
        assert "Starvation suspected (" not in words_of(lanes_picture(*logged(BURSTY)))


class TestManyGpus:
    def test_are_the_sixteen_that_lost_most_and_that_is_said(self) -> None:
        report, lanes = many(40)
        drawing = picture(report, lanes)

        shown = {
            int(text.words.removeprefix("GPU "))
            for text in texts_of(drawing)
            if text.left == MARGIN and text.size == 12
        }
        lost = sorted(range(40), key=lambda index: -report.gpus[index].totals.lost_ns)
        assert len(shown) == 16
        assert shown == set(lost[:16])
        assert "The 16 of 40 GPUs that lost most time" in words_of(drawing)

    def test_are_all_there_up_to_sixteen(self) -> None:
        drawing = picture(*many(16))

        assert sum(1 for text in texts_of(drawing) if text.bold and "busy" in text.words) == 16
        assert "GPUs that lost most" not in words_of(drawing)


class TestNothingTouches:
    @pytest.mark.parametrize("count", [1, 4, 8, 16])
    def test_however_long_the_names_of_so_many(self, count: int) -> None:
        assert faults_of(picture(*many(count, HOSTILE))) == []

    @pytest.mark.parametrize("count", [1, 2, 4, 5, 8, 9, 16, 17, 1_000])
    def test_however_many_gpus(self, count: int) -> None:
        assert faults_of(picture(*many(count))) == []

    @pytest.mark.parametrize(
        "started_at", [None, "2026-03-01T23:59:58.123", "2026-03-01T10:00+02:00"]
    )
    @pytest.mark.parametrize("period_s", [0.001, 0.2, 1.0, 15.0, 60.0, 3_600.0, 86_400.0])
    def test_however_long_the_log(self, period_s: float, started_at: str | None) -> None:
        shown = logged(every(period_s, rhythm(3, 2, 30)), started_at=started_at)

        assert faults_of(picture(*shown)) == []
        assert faults_of(lanes_picture(*shown)) == []

    @pytest.mark.parametrize("name", [HOSTILE, "名" * 80, "a b " * 40, "", "\u202eevil", "😀" * 30])
    def test_whatever_names_are_in_it(self, name: str) -> None:
        shown = logged(BURSTY, WELL, names=[name, name], source=f"/logs/{name}.csv")

        assert faults_of(picture(*shown)) == []

    @pytest.mark.parametrize(
        "samples",
        [[BusySample(0, 1, 1.0)], EMPTY_LANE, [*BURSTY, BusySample(s(1e9), s(1e9 + 1), 1.0)]],
        ids=["one sample", "idle", "a hole of decades"],
    )  # fmt: skip
    def test_whatever_the_lane(self, samples: list[BusySample]) -> None:
        assert faults_of(picture(*logged(samples))) == []
