"""Specification of the colours: told apart by every eye, on light paper and on dark."""

from __future__ import annotations

from itertools import combinations

import pytest

from gpumon.outlets.plot.palette import DARK, LIGHT, Palette

# How eyes that lack one kind of cone see linear RGB (Machado, Oliveira and Fernandes 2009).
EYES = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red": ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052)),
    "no green": ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969)),
    "no blue": ((1.256, -0.077, -0.179), (-0.078, 0.931, 0.148), (0.005, 0.691, 0.304)),
    "no hue": ((0.213, 0.715, 0.072),) * 3,
}
SIDE_BY_SIDE = [
    ("busy", "lost"), ("busy", "lost_ground"), ("busy", "in_use"),
    ("busy", "not_in_use"), ("lost", "paper"), ("unobserved", "in_use"),
]  # fmt: skip


def linear(colour: str) -> tuple[float, ...]:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return tuple(
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )


def seen(colour: str, eye: str) -> tuple[float, ...]:
    light = linear(colour)
    return tuple(
        min(1.0, max(0.0, sum(share * part for share, part in zip(row, light, strict=True))))
        for row in EYES[eye]
    )


def lightness(light: tuple[float, ...]) -> float:
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), light, strict=True))


def distance(one: str, other: str, eye: str) -> float:
    """How far apart two colours look: about 2 is just seen (CIE 1976)."""

    def lab(colour: str) -> tuple[float, float, float]:
        red, green, blue = seen(colour, eye)
        x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
        y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
        z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089
        fx, fy, fz = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
        return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)

    pairs = zip(lab(one), lab(other), strict=True)
    return float(sum((here - there) ** 2 for here, there in pairs) ** 0.5)


def contrast(one: str, other: str) -> float:
    """As WCAG 2 counts it."""
    darker, lighter = sorted(lightness(linear(colour)) for colour in (one, other))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
class TestColours:
    @pytest.mark.parametrize("eye", EYES)
    @pytest.mark.parametrize(("one", "other"), SIDE_BY_SIDE)
    def test_side_by_side_look_different(
        self, palette: Palette, one: str, other: str, eye: str
    ) -> None:
        assert distance(getattr(palette, one), getattr(palette, other), eye) > 15

    @pytest.mark.parametrize("name", ["text", "quiet", "lost"])
    def test_of_text_can_be_read(self, palette: Palette, name: str) -> None:
        assert contrast(getattr(palette, name), palette.paper) >= 4.5

    def test_of_marks_are_all_different(self, palette: Palette) -> None:
        marks = [palette.busy, palette.lost, palette.lost_ground, palette.not_in_use,
                 palette.unobserved]  # fmt: skip

        assert all(one != other for one, other in combinations(marks, 2))
