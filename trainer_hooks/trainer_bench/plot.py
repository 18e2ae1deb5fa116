"""What a bench measured as a picture, drawn by matplotlib."""

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
    """Points to be shown.

    Attributes:
        name: In the legend.
        points: ``(x, y)``, both 0 or more.
        is_line: Joined by a line; else points alone.
        is_faint: Something to compare with: grey and dashed.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    is_line: bool = True
    is_faint: bool = False


@dataclass(frozen=True, slots=True)
class Plot:
    """What is on it: a title, a line below that, and a name with its unit for each axis."""

    title: str
    below_title: str
    x_name: str
    y_name: str
    series: tuple[Series, ...]


def require_matplotlib() -> None:
    """See that a plot can be drawn here, before the runs, which may take minutes.

    Raises:
        UsageError: It cannot; says what to install.
    """
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"a plot needs matplotlib: `{sys.executable} -m pip install 'matplotlib>=3.8'`"
        ) from error


def write_plot(plot: Plot, path: Path) -> None:
    """Draw it into a file, whose ending says which kind it is.

    Raises:
        OSError: It cannot be written.
    """
    import matplotlib as mpl

    with mpl.rc_context(_STYLE):
        figure_of(plot).savefig(path, dpi=144)


def figure_of(plot: Plot) -> Figure:
    """The plot before it is a file."""
    from matplotlib.figure import Figure

    figure = Figure((7.6, 4.6), layout="constrained")
    figure.suptitle(plot.title, fontweight="bold")
    axes = figure.add_subplot(title=plot.below_title, xlabel=plot.x_name, ylabel=plot.y_name)
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
