"""Specification of the plot: a well-formed picture that says what it shows."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from trainer_hooks.trainer_bench.svg_plot import Plot, Series, svg_of

SVG = "{http://www.w3.org/2000/svg}"


def drawn(*series: Series) -> ElementTree.Element:
    plot = Plot("Speed <1>", "& more", "samples", "samples a second", series)
    return ElementTree.fromstring(svg_of(plot))


def texts(svg: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in svg.iter(f"{SVG}text")]


class TestAPlot:
    def test_names_title_axes_and_series(self) -> None:
        svg = drawn(Series("GPU:0", ((64, 684), (256, 1129))))

        assert {"Speed <1>", "& more", "samples", "samples a second", "GPU:0"} <= set(texts(svg))

    def test_has_round_numbers_at_its_axes_beyond_the_largest_values(self) -> None:
        svg = drawn(Series("GPU:0", ((64, 684), (256, 1129))))

        assert {"0", "100", "300", "250", "1,250"} <= set(texts(svg))

    @pytest.mark.parametrize(
        "points", [((64.0, 684.0), (1e6, 3e5)), ((0.0, 0.0),), ((3.0, 1e-3),), ()]
    )
    def test_keeps_every_point_on_the_paper(self, points: tuple[tuple[float, float], ...]) -> None:
        svg = drawn(Series("a", points), Series("ideal", points, is_faint=True))

        for circle in svg.iter(f"{SVG}circle"):
            assert 0 <= float(circle.get("cx", "-1")) <= 760
            assert 0 <= float(circle.get("cy", "-1")) <= 460

    def test_dashes_the_line_that_is_there_for_comparison_and_no_other(self) -> None:
        points = ((1.0, 1.0), (2.0, 2.0))
        svg = drawn(Series("a", points), Series("ideal", points, is_faint=True))

        dashes = [line.get("stroke-dasharray") for line in svg.iter(f"{SVG}polyline")]
        assert [dash is not None for dash in dashes] == [False, True]

    def test_shows_a_value_under_the_pointer(self) -> None:
        svg = drawn(Series("GPU:0", ((64, 684),)))

        assert "GPU:0: 64, 684" in [title.text for title in svg.iter(f"{SVG}title")]
