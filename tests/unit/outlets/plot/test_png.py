"""Specification of the PNG, looked at as pixels."""

from __future__ import annotations

import io
import sys
from itertools import groupby

import pytest
from PIL import Image, ImageFont

from gpumon.errors import UsageError
from gpumon.outlets.plot import png
from gpumon.outlets.plot.drawing import LIGHT, Ink
from gpumon.outlets.plot.lane_row import LANE_LEFT, LANE_WIDTH
from gpumon.outlets.plot.layout import picture
from gpumon.outlets.plot.png import SCALE, png_bytes, require_pillow
from tests.builders_log_plot import Logged, logged
from tests.builders_time import every, rhythm, s

Pixel = tuple[int, int, int]
BURSTY = every(1.0, rhythm(6, 4, 15))


def painted(shown: Logged) -> Image.Image:
    return Image.open(io.BytesIO(png_bytes(picture(*shown)))).convert("RGB")


def rgb(ink: Ink) -> Pixel:
    red, green, blue = bytes.fromhex(LIGHT[ink][1:])
    return red, green, blue


def runs_of(image: Image.Image, ink: Ink) -> list[tuple[int, int]]:
    """First pixel and last + 1 of each run of an ink in the lanes, half way up what it fills."""
    left, right = round(LANE_LEFT * SCALE), round((LANE_LEFT + LANE_WIDTH) * SCALE)
    lines = [image.crop((left, y, right, y + 1)).tobytes() for y in range(image.height)]
    rows = [
        [line[at : at + 3] == bytes(rgb(ink)) for at in range(0, len(line), 3)]
        for line in lines
        if bytes(rgb(ink)) in line
    ]
    most = max(map(sum, rows))
    filled = [row for row in rows if sum(row) > most / 2]
    runs, at = [], 0
    for is_ink, run in groupby(filled[len(filled) // 2]):
        length = len(list(run))
        if is_ink:
            runs.append((at, at + length))
        at += length
    return runs


class TestAPng:
    def test_has_two_pixels_to_a_point(self) -> None:
        shown = logged(BURSTY)
        drawing = picture(*shown)

        assert painted(shown).size == (round(drawing.width * 2), round(drawing.height * 2))

    @pytest.mark.parametrize("ink", [Ink.LOST, Ink.LOST_GROUND])
    def test_marks_each_starved_stretch_to_the_pixel(self, ink: Ink) -> None:
        shown = logged(BURSTY)
        stretches = shown.report.gpus[0].totals.starved_intervals

        runs = runs_of(painted(shown), ink)

        width = LANE_WIDTH * SCALE / s(150)
        assert len(runs) == len(stretches) == 14
        for (first, end), stretch in zip(runs, stretches, strict=True):
            assert abs(first - stretch.start_ns * width) <= 1.5
            assert abs(end - stretch.end_ns * width) <= 1.5

    def test_shows_busy_time_where_it_was(self) -> None:
        runs = runs_of(painted(logged(BURSTY)), Ink.BUSY)

        width = LANE_WIDTH * SCALE / 150
        for number, (first, end) in enumerate(runs):
            assert abs(first - number * 10 * width) <= 1.5
            assert abs(end - (number * 10 + 6) * width) <= 1.5
        assert len(runs) == 15

    def test_hatches_time_that_was_not_observed(self) -> None:
        hole = [*every(1.0, [1.0] * 50), *every(1.0, [1.0] * 50, start_s=100.0)]
        runs = runs_of(painted(logged(hole)), Ink.UNOBSERVED)

        third = LANE_WIDTH * SCALE / 3
        assert len(runs) > 20
        assert all(third - 2 <= first and end <= 2 * third + 2 for first, end in runs)

    def test_shows_letters_that_the_usual_font_lacks(self) -> None:
        try:
            ImageFont.truetype("DejaVuSans.ttf", 10)
        except OSError:
            pytest.skip("no font with such letters is on this machine")
        umlauts = (
            painted(logged(BURSTY, names=["Ümläüt"])),
            painted(logged(BURSTY, names=["Ömlöüt"])),
        )

        assert umlauts[0].tobytes() != umlauts[1].tobytes()

    def test_is_small(self) -> None:
        assert len(png_bytes(picture(*logged(BURSTY, BURSTY)))) < 120_000


class TestWithoutPillow:
    def test_says_what_to_install_and_what_needs_nothing(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "PIL", None)

        with pytest.raises(UsageError) as raised:
            require_pillow()

        assert f"{sys.executable} -m pip install 'pillow>=10.1'" in str(raised.value)
        assert "`--plot FILE.svg` and `--html FILE` need nothing" in str(raised.value)

    @pytest.mark.parametrize("error", [TypeError("no size"), ImportError("no FreeType")])
    def test_that_can_do_it_says_so_too(
        self, error: Exception, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(size: float) -> None:
            raise error

        monkeypatch.setattr(ImageFont, "load_default", refuse)

        with pytest.raises(UsageError, match="newer, built with FreeType"):
            png_bytes(picture(*logged(BURSTY)))

    def test_it_is_imported_by_nothing_else(self) -> None:
        assert not hasattr(png, "Image")
