"""Specification of the legend: in as many lines as it takes."""

from __future__ import annotations

import pytest

from gpumon.outlets.plot.drawing import Drawing, Ink
from gpumon.outlets.plot.lane_row import WIDTH
from gpumon.outlets.plot.layout import LINE_HEIGHT, legend_items, legend_marks
from tests.builders_log_plot import faults_of, logged, texts_of
from tests.builders_time import every, rhythm


class TestALegend:
    @pytest.mark.parametrize(("length", "lines"), [(10, 1), (40, 2), (65, 3), (1_000, 5)])
    def test_takes_as_many_lines_as_it_needs(self, length: int, lines: int) -> None:
        inks = (Ink.BUSY, Ink.IN_USE, Ink.LOST, Ink.NOT_IN_USE, Ink.UNOBSERVED)
        marks, bottom = legend_marks([(ink, "n" * length) for ink in inks], top=10.0)

        drawing = Drawing(WIDTH, bottom, "", tuple(marks))
        assert bottom == 10.0 + lines * LINE_HEIGHT
        assert len({text.baseline for text in texts_of(drawing)}) == lines
        assert faults_of(drawing) == []

    def test_says_how_much_was_not_in_use(self) -> None:
        gpus = logged(every(1.0, [0.0] * 20 + rhythm(3, 2, 9))).report.gpus

        items = dict(legend_items(gpus, {Ink.NOT_IN_USE, Ink.LOST}))

        assert items[Ink.NOT_IN_USE] == "not in use: 22.0 s"
        assert items[Ink.LOST].startswith("suspected starvation: ")
        assert Ink.UNOBSERVED not in items
