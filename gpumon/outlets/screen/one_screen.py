"""The view of one tick as lines: what ``gpumon top -1`` prints."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Final, NamedTuple

from rich.text import Text

from gpumon.core.view.status import Tone
from gpumon.core.view.view import MonitorView
from gpumon.core.wording import capital
from gpumon.errors import GpumonError
from gpumon.outlets.screen.details import Details
from gpumon.outlets.screen.gpu_rows import RowLayout
from gpumon.outlets.screen.ink import NARROW, Ink

_CALLS: Final = (Tone.BAD, Tone.WARN)
MAX_EXPLAINED: Final = 4
"""GPUs that are explained below the table: those with the greatest need."""
_WIDEST_TEXT: Final = 110
"""Longer lines are hard to read."""


class Screenful(NamedTuple):
    """What there is to show.

    Attributes:
        view: The newest view; ``None``: there is none yet.
        origin: Where it comes from, in words.
        trouble: Why it is not the present, as a sentence; empty: it is.
        trouble_since_s: Since when, in seconds since the epoch.
        is_local: Whether its processes are of this machine.
        error: Why there will be no more views.
    """

    view: MonitorView | None
    origin: str
    trouble: str = ""
    trouble_since_s: float = 0.0
    is_local: bool = False
    error: GpumonError | None = None


def one_screen(shown: Screenful, width: int, ink: Ink) -> list[Text]:
    """The whole screen in lines of at most ``width`` columns, as long as it is."""
    view = shown.view
    if view is None:
        return ink.paragraph(shown.trouble or "nothing yet: no GPU has been read", width)
    indent = "  " if width >= NARROW else " " * (width > 1)
    rows = RowLayout(view.gpus, width, ink)
    details = Details(view, min(width - len(indent), _WIDEST_TEXT), ink)
    lines = [*head_lines(shown, width, ink), Text(), rows.heading(), *map(rows.row, view.gpus)]
    calling = [gpu for gpu in view.gpus if gpu.status.tone in _CALLS]
    explained: set[tuple[int, ...]] = set()
    for gpu in calling:
        if len(explained) == MAX_EXPLAINED:
            break
        key = gpu.advice or (-1 - view.gpus.index(gpu),)
        if key in explained:
            continue
        explained.add(key)
        about = [details.title(gpu), *details.what_and_next(gpu)]
        lines += [Text(), *(Text(indent).append_text(line) for line in about)]
    for note in view.notes:
        lines += [Text(), *ink.paragraph(note, min(width, _WIDEST_TEXT), first="Note: ")]
    return lines


def head_lines(shown: Screenful, width: int, ink: Ink, *, most: int | None = None) -> list[Text]:
    """Verdict, why and next, and where they come from.

    Args:
        shown: What there is to show.
        width: Columns of the terminal.
        ink: How to draw.
        most: Lines of each of the three; ``None``: all.
    """
    view = shown.view
    if view is None:
        return ink.paragraph(shown.trouble or shown.origin, width)
    head = view.headline
    text_width = min(width, _WIDEST_TEXT) if most is None else width
    tone = f"bold {ink.colour(head.tone.value)}"
    lines = [_source_line(shown, view, width, ink)]
    sentences = (
        ("Verdict: ", head.line, tone),
        ("Why:     ", head.why, ""),
        ("Next:    ", head.next, ""),
    )
    for name, sentence, style in sentences:
        if sentence:
            paragraph = ink.paragraph(sentence, text_width, first=name, style=style)
            lines += _at_most(most, paragraph, text_width, ink)
    if shown.trouble:
        lines += ink.paragraph(
            f"{capital(shown.trouble)} (since {clock_time(shown.trouble_since_s)})",
            text_width,
            style=f"bold {ink.colour('bad')}",
        )
    return lines


def _at_most(most: int | None, lines: Sequence[Text], width: int, ink: Ink) -> list[Text]:
    if most is None or len(lines) <= most:
        return [*lines]
    last = lines[most - 1].copy()
    last.append(" " * width)
    return [*lines[: most - 1], ink.fitted(last, width)]


def _source_line(shown: Screenful, view: MonitorView, width: int, ink: Ink) -> Text:
    counts: dict[str, int] = {}
    for gpu in view.gpus:
        counts[gpu.status.word] = counts.get(gpu.status.word, 0) + 1
    words = ", ".join(f"{count} {word}" for word, count in counts.items())
    kind = "simulated GPUs; " if view.simulated else ""
    kind += "a recording, not live; " if view.replayed else ""
    line = ink.text(
        f"gpumon {clock_time(view.wall_time_s)}  {words or 'no GPU'}  ({kind}{shown.origin})",
        ink.colour("quiet"),
    )
    return ink.fitted(line, width)


def clock_time(wall_time_s: float) -> str:
    """A time of day, to the second; empty: it is in no year of a calendar."""
    try:
        return f"{datetime.fromtimestamp(wall_time_s, timezone.utc):%H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return ""
