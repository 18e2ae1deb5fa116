"""The plots of the benchmark."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from matplotlib.axes import Axes

from gpumon.errors import UsageError
from trainer_hooks.trainer_bench.plot import (
    Plot,
    Series,
    figure_of,
    require_matplotlib,
    write_plot,
)

Points = tuple[tuple[float, float], ...]
SPEED: Points = ((64, 684), (256, 1129))


def plot_of(*series: Series) -> Plot:
    return Plot("Speed <1> $x$", "& more", "samples", "samples per second", series)


def axes_of(*series: Series) -> Axes:
    (axes,) = figure_of(plot_of(*series)).axes
    return axes


class TestAPlot:
    @pytest.mark.parametrize(
        "points", [SPEED, ((64.0, 684.0), (1e6, 3e5)), ((0.0, 0.0),), ((3.0, 1e-3),), ()]
    )
    def test_shows_every_point_from_zero_on(self, points: Points) -> None:
        axes = axes_of(Series("a", points), Series("ideal", points, is_faint=True))

        for line in axes.lines:
            assert [tuple(point) for point in line.get_xydata()] == list(points)
        (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
        assert (left, bottom) == (0, 0)
        assert all(x <= right and y <= top for x, y in points)

    def test_dashes_lines_for_comparison_and_joins_no_single_points(self) -> None:
        axes = axes_of(
            Series("a", SPEED),
            Series("ideal", SPEED, is_faint=True),
            Series("best", SPEED, is_line=False),
        )

        assert [line.get_linestyle() for line in axes.lines] == ["-", "--", "None"]


def test_a_title_is_text_in_a_readable_svg(tmp_path: Path) -> None:
    write_plot(plot_of(Series("a", SPEED)), tmp_path / "a.svg")

    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    ElementTree.fromstring(text)
    assert "Speed &lt;1&gt; $x$" in text


def test_missing_matplotlib_is_reported_with_the_command_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)

    with pytest.raises(UsageError, match=r"pip install 'matplotlib>=3\.8'"):
        require_matplotlib()
