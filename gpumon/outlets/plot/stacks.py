"""Draws stacks with matplotlib: those while the GPU was idle beside those while it worked.

Imports matplotlib, which is optional: import this module only if a picture is wanted.
"""

from __future__ import annotations

import io
import warnings
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from gpumon.core.stacks.frames import is_user_code
from gpumon.core.stacks.sample_join import SampleKind
from gpumon.core.stacks.stack import StackFrame
from gpumon.core.stacks.stack_counts import StackCounts
from gpumon.core.view.palette import LIGHT, Palette
from gpumon.core.wording import counted, label_text
from gpumon.outlets.plot.figure import STYLE

_WIDTH: Final = 13.6
_ROW: Final = 0.26
_DOTS_PER_INCH: Final = 144
_MOST_ROWS: Final = 40
_LEAST_WIDTH: Final = 0.004
_LETTER_WIDTH: Final = 0.0105
"""Of the width of a panel."""


def stack_picture(counts: StackCounts, headline: str, kind: str, palette: Palette = LIGHT) -> bytes:
    """Return the picture as the bytes of a file; ``kind``: ``png``, ``svg`` or ``pdf``."""
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # in a name; a box is drawn
        figure = stack_figure(counts, headline, palette)
        file = io.BytesIO()
        no_date: dict[str, Any] = {
            "png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None},
        }[kind]  # fmt: skip
        figure.savefig(file, format=kind, metadata={**no_date, "Title": headline})
    return file.getvalue()


def stack_figure(counts: StackCounts, headline: str, palette: Palette = LIGHT) -> Figure:
    """Return the figure: two panels, the outermost call at the top of each."""
    panels = [
        ("while the GPU was idle", counts.training_stacks(SampleKind.IDLE), palette.lost_ground),
        ("while it worked", counts.training_stacks(SampleKind.BUSY), palette.busy),
    ]
    rows = max([len(frames) for _, stacks, _ in panels for frames in stacks] or [1])
    rows = min(rows, _MOST_ROWS)
    figure = Figure((_WIDTH, 1.1 + rows * _ROW), dpi=_DOTS_PER_INCH, facecolor=palette.paper)
    axes = figure.subplots(1, 2)
    for panel, (title, stacks, colour) in zip(axes, panels, strict=True):
        samples = counted(sum(stacks.values()), "sample", "samples")
        panel.set_title(f"{title}: {samples}", loc="left", fontsize=10, color=palette.text)
        panel.set_xlim(0, 1)
        panel.set_ylim(rows, 0)
        panel.axis("off")
        total = sum(stacks.values())
        if total:
            _draw(panel, stacks, (0.0, 1.0 / total), 0, (colour, palette))
    figure.suptitle(
        label_text(headline), x=0.02, ha="left", fontsize=12, fontweight="bold", color=palette.text
    )
    figure.subplots_adjust(left=0.02, right=0.98, bottom=0.02, top=1 - 0.75 / (1.1 + rows * _ROW))
    return figure


def _draw(
    axes: Axes,
    stacks: Mapping[tuple[StackFrame, ...], int],
    place: tuple[float, float],
    row: int,
    colours: tuple[str, Palette],
) -> None:
    """Draw one row of calls, and below each call those that it makes.

    ``place``: the left edge, and the width of one sample.
    """
    left, width = place
    colour, palette = colours
    if row >= _MOST_ROWS:
        return
    by_call: Counter[tuple[str, str]] = Counter()
    for frames, count in stacks.items():
        if frames:
            by_call[frames[0].function, frames[0].path] += count
    for (function, path), count in by_call.most_common():
        if count * width < _LEAST_WIDTH:
            break
        is_own = is_user_code(StackFrame(function, path))
        axes.add_patch(
            Rectangle(
                (left, row), count * width, 0.94,
                facecolor=colour if is_own else palette.not_in_use, edgecolor=palette.rule,
            )
        )  # fmt: skip
        name = label_text(f"{function} ({path.rpartition('/')[2]})")
        letters = int(count * width / _LETTER_WIDTH)
        if letters >= 4:
            shown = name if len(name) <= letters else f"{name[: letters - 1]}…"
            axes.text(left + 0.004, row + 0.5, shown, fontsize=7.5, va="center", color=palette.text)
        inner: Counter[tuple[StackFrame, ...]] = Counter()
        for frames, times in stacks.items():
            if frames and (frames[0].function, frames[0].path) == (function, path):
                inner[frames[1:]] += times
        _draw(axes, inner, (left, width), row + 1, colours)
        left += count * width
