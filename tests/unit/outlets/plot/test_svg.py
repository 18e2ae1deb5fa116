"""Specification of the SVG: well-formed, alone, and true to the drawing."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from gpumon.outlets.plot.drawing import LIGHT, Box, Drawing, Ink, Steps, Text
from gpumon.outlets.plot.lane_row import LANE_LEFT, LANE_WIDTH
from gpumon.outlets.plot.layout import picture
from gpumon.outlets.plot.svg import svg_text
from tests.builders_log_plot import logged, texts_of
from tests.builders_time import every, rhythm, s

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "<script>alert(1)</script> & \"q\" 'a' ]]> \x00\x1b[31m\ud800"
BURSTY = every(1.0, rhythm(3, 2, 30))


def parsed(drawing: Drawing) -> ElementTree.Element:
    return ElementTree.fromstring(svg_text(drawing).encode())


def drawn(*marks: Box | Steps | Text) -> list[ElementTree.Element]:
    return list(parsed(Drawing(100, 50, "a picture", marks)))[1:]


class TestAnSvg:
    def test_is_well_formed_whatever_the_log_calls_its_gpus(self) -> None:
        root = parsed(picture(*logged(BURSTY, names=[HOSTILE], source=HOSTILE)))

        assert root.tag == f"{SVG}svg"
        assert root.find(f".//{SVG}script") is None

    def test_has_every_text_of_the_drawing(self) -> None:
        drawing = picture(*logged(BURSTY, names=['Tesla "T4" <2>']))

        said = [element.text for element in parsed(drawing).iter(f"{SVG}text")]
        assert said == [text.words for text in texts_of(drawing)]

    def test_refers_to_nothing_outside_and_runs_nothing(self) -> None:
        text = svg_text(picture(*logged(BURSTY, names=[HOSTILE])))

        assert re.findall(r"https?://[^\"]+", text) == ["http://www.w3.org/2000/svg"]
        assert re.findall(r"url\(([^)]*)\)", text) in ([], ["#gpumon-unobserved"])
        for forbidden in ("href", "<style", "<image", "<foreignObject", " on", "style="):
            found = re.sub(r">[^<]*<", "><", text)  # in elements, not in what they say
            assert forbidden not in re.sub(r'aria-label="[^"]*"', "", found)

    def test_is_told_in_words_to_who_cannot_see_it(self) -> None:
        root = parsed(picture(*logged(BURSTY)))

        assert root.get("role") == "img"
        assert "GPU 0: starvation suspected, busy 60 %." in (root.get("aria-label") or "")

    def test_marks_a_starved_stretch_at_its_time(self) -> None:
        report, lanes = logged(BURSTY)
        root = parsed(picture(report, lanes))

        marked = [
            (float(rect.attrib["x"]), float(rect.attrib["width"]))
            for rect in root.iter(f"{SVG}rect")
            if rect.get("fill") == LIGHT[Ink.LOST_GROUND]
        ][1:]  # the first is the legend's
        stretches = report.gpus[0].totals.starved_intervals
        assert len(marked) == len(stretches) == 29
        for (left, width), stretch in zip(marked, stretches, strict=True):
            assert abs(left - LANE_LEFT - LANE_WIDTH * stretch.start_ns / s(150)) < 0.01
            assert abs(width - LANE_WIDTH * stretch.duration_ns / s(150)) < 0.01


class TestSteps:
    def test_are_one_outline(self) -> None:
        (path,) = drawn(Steps(10, 20, 2, (0.0, 5.0, 5.0, 8.0, 0.0, 1.0), Ink.BUSY))

        assert path.get("d") == "M12 20v-5h4v-3h2v8zM20 20v-1h2v1z"

    def test_without_height_are_nothing(self) -> None:
        assert drawn(Steps(10, 20, 2, (0.0, 0.0), Ink.BUSY)) == []


class TestABox:
    def test_tells_the_pointer_its_title(self) -> None:
        (rect,) = drawn(Box(1, 2, 3, 4, Ink.NONE, "GPU 0: busy & <b>"))

        assert rect.findtext(f"{SVG}title") == "GPU 0: busy & <b>"
        assert (rect.get("fill"), rect.get("pointer-events")) == ("none", "all")
