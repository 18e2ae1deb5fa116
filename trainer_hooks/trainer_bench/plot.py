"""Plots of the results, drawn by matplotlib."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpumon.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS: Final = (".png", ".svg", ".pdf")
_STYLE: Final = {"svg.fonttype": "path", "text.parse_math": False}
_FAINT: Final = "#9ca3af"


@dataclass(frozen=True, slots=True)
class Series:
    """Points to plot.

    Attributes:
        points: ``(x, y)``, both 0 or more.
        is_line: Whether a line joins them.
        is_faint: Grey and dashed, for comparison.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    is_line: bool = True
    is_faint: bool = False


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot: title, subtitle, and the axes' names with units."""

    title: str
    subtitle: str
    x_name: str
    y_name: str
    series: tuple[Series, ...]


def require_matplotlib() -> None:
    """Check that plots can be drawn, before the runs, which may take minutes.

    Raises:
        UsageError: matplotlib is missing.
    """
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"a plot needs matplotlib: `{sys.executable} -m pip install 'matplotlib>=3.8'`"
        ) from error


def write_plot(plot: Plot, path: Path) -> None:
    """Write the plot to a file of the kind that its suffix names."""
    import matplotlib as mpl

    with mpl.rc_context(_STYLE):
        figure_of(plot).savefig(path, dpi=144)


def figure_of(plot: Plot) -> Figure:
    """The plot as a figure of matplotlib."""
    from matplotlib.figure import Figure

    figure = Figure((7.6, 4.6), layout="constrained")
    figure.suptitle(plot.title, fontweight="bold")
    axes = figure.add_subplot(title=plot.subtitle, xlabel=plot.x_name, ylabel=plot.y_name)
    for series in plot.series:
        x, y = zip(*series.points, strict=True) if series.points else ((), ())
        if series.is_faint:
            axes.plot(x, y, "--", color=_FAINT, label=series.name)
        else:
            axes.plot(x, y, "o-" if series.is_line else "o", label=series.name)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", alpha=0.4)
    axes.ticklabel_format(style="plain", useOffset=False)
    axes.legend()
    return figure
