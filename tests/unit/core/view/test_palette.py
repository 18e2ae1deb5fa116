"""Specification of the palette: everybody can distinguish what stands side by side."""

from __future__ import annotations

from itertools import combinations
from typing import Final

import pytest

from gpumon.core.view.palette import DARK, LIGHT, Palette
from gpumon.core.view.view import PARTS

Colour = tuple[float, float, float]

_DEUTERANOPIA: Final = (
    (0.367322, 0.860646, -0.227968),
    (0.280085, 0.672501, 0.047413),
    (-0.011820, 0.042940, 0.968881),
)
"""Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB."""
_TO_XYZ: Final = (
    (0.4124, 0.3576, 0.1805),
    (0.2126, 0.7152, 0.0722),
    (0.0193, 0.1192, 0.9505),
)
_WHITE: Final = (0.9505, 1.0, 1.089)
_MAIN: Final = ("busy", "input_wait", "suspected", "unknown", "not_in_use")
"""Parts that most lanes have, next to each other."""
_DISTINCT_FROM: Final = 12.0
"""CIE76; a just noticeable difference is about 2.3."""
_READABLE: Final = 4.5
"""WCAG 2 AA for text."""


def linear(colour: str) -> Colour:
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return _linear(red), _linear(green), _linear(blue)


def _linear(value: float) -> float:
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4


def times(matrix: tuple[Colour, ...], colour: Colour) -> Colour:
    first, second, third = (
        sum(factor * value for factor, value in zip(row, colour, strict=True)) for row in matrix
    )
    return first, second, third


def without_green_cones(colour: Colour) -> Colour:
    red, green, blue = (min(1.0, max(0.0, one)) for one in times(_DEUTERANOPIA, colour))
    return red, green, blue


def lab(colour: Colour) -> Colour:
    def curve(value: float) -> float:
        return value ** (1 / 3) if value > 0.008856 else 7.787 * value + 16 / 116

    x, y, z = (
        curve(value / white) for value, white in zip(times(_TO_XYZ, colour), _WHITE, strict=True)
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def distance(one: Colour, other: Colour) -> float:
    pairs = zip(lab(one), lab(other), strict=True)
    return float(sum((a - b) ** 2 for a, b in pairs) ** 0.5)


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((times(_TO_XYZ, linear(c))[1] for c in (one, other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
class TestThePalette:
    def test_has_a_colour_for_every_part(self, palette: Palette) -> None:
        assert set(PARTS) <= set(palette._fields)

    @pytest.mark.parametrize("sees", [tuple, without_green_cones], ids=["all", "deuteranopia"])
    def test_distinguishes_the_main_parts(self, palette: Palette, sees: type) -> None:
        colours = {name: sees(linear(getattr(palette, name))) for name in (*_MAIN, "paper")}

        near = {
            pair: round(distance(colours[pair[0]], colours[pair[1]]), 1)
            for pair in combinations(colours, 2)
        }

        assert {pair: one for pair, one in near.items() if one < _DISTINCT_FROM} == {}

    @pytest.mark.parametrize("sees", [tuple, without_green_cones], ids=["all", "deuteranopia"])
    def test_distinguishes_the_tones(self, palette: Palette, sees: type) -> None:
        colours = [sees(linear(getattr(palette, name))) for name in ("good", "warn", "bad")]

        assert min(distance(one, other) for one, other in combinations(colours, 2)) > 8.0

    def test_has_text_that_can_be_read(self, palette: Palette) -> None:
        for name in ("text", "quiet", "good", "warn", "bad"):
            for on in (palette.paper, palette.ground):
                assert contrast(getattr(palette, name), on) >= _READABLE, (name, on)
