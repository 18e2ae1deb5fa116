"""The files of the live page: scripts and style as they are, the rest written from the view.

The document itself has the headline, all advice and a table of the GPUs, so that it can be read
without a script; the script replaces the table. All names in it come from outside.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from string import Template
from typing import Final

from gpumon.core.diagnosis.messages import WORD_OF_REASON
from gpumon.core.phase import InputWaitReason
from gpumon.core.view.palette import DARK, LIGHT, Palette
from gpumon.core.view.status import Tone
from gpumon.core.view.view import PARTS, AdviceView, GpuView, Headline, MonitorView
from gpumon.core.wording import in_percent

_WEB: Final = Path(__file__).parent.with_name("web")
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_SCRIPTS: Final = (
    "page", "cells", "details", "dom", "drawing", "figures", "lanes", "runs", "tiles", "window",
)  # fmt: skip
_AS_THEY_ARE: Final = ("page.css", *(f"{name}.js" for name in _SCRIPTS))
_GONE: Final = "gone"
_ICONS: Final = {
    f"favicon-{tone}.svg": tone for tone in (*(tone.value for tone in Tone), _GONE)
}  # fmt: skip

PAGE_PATHS: Final = frozenset(
    {"/", "/palette.css", "/favicon.ico"}
    | {f"/{name}" for name in (*_AS_THEY_ARE, *_ICONS)}
)  # fmt: skip
"""All paths of the page: no part of a request is ever used as a path of a file."""

GAPS: Final = {
    "not_watched": "not watched",
    "not_kept": "older than is kept",
    "not_running": "gpumon was not running",
    "not_yet": "not observed yet",
}
"""Why there is no data of a time, and how a lane calls it."""

_WAITING: Final = Headline(
    tone=Tone.QUIET,
    title="",
    line="Waiting for the first sample…",
    verdict="",
    why="nothing has been observed yet",
    next="wait a few seconds",
    advice=None,
)
_PAPERS: Final = ("ground", "paper", "text", "quiet", "rule", "unobserved")


_ESCAPED: Final = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"}
)


def escape(text: str) -> str:
    """As ``html.escape``, whose module takes half a megabyte in each daemon.

    >>> escape("<b title='&'>")
    '&lt;b title=&#x27;&amp;&#x27;&gt;'
    """
    return text.translate(_ESCAPED)


def page_file(path: str, view: MonitorView | None) -> tuple[str, bytes]:
    """The content type and the body of one of ``PAGE_PATHS``, when this view is the newest."""
    if path == "/":
        return _TYPES[".html"], _document(view).encode()
    if path == "/palette.css":
        return _TYPES[".css"], palette_css().encode()
    name = path.removeprefix("/")
    if name in _AS_THEY_ARE:
        return _TYPES[Path(name).suffix], _read(name)
    return _TYPES[".svg"], _icon(_ICONS.get(name, Tone.QUIET.value)).encode()


@cache
def _read(name: str) -> bytes:
    return (_WEB / name).read_bytes()


# -- the palette -----------------------------------------------------------------------


@cache
def palette_css() -> str:
    """The palette as variables, and the colour of each part of time as a class."""
    dark = "".join(_variables(DARK))
    classes = "".join(
        f".part-{_dashed(part)}{{background:var(--part-{_dashed(part)})}}\n" for part in PARTS
    )
    return (
        f":root{{color-scheme:light dark;{''.join(_variables(LIGHT))}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n{classes}"
    )


def _variables(palette: Palette) -> Iterator[str]:
    colours = palette._asdict()
    for name in _PAPERS:
        yield f"--{name}:{colours[name]};"
    for part in PARTS:
        yield f"--part-{_dashed(part)}:{colours[part]};"
    for tone in Tone:
        yield f"--tone-{tone.value}:{colours[tone.value]};"


def _dashed(name: str) -> str:
    return name.replace("_", "-")


@cache
def _icon(tone: str) -> str:
    """A disc in the colour of a tone; a broken ring when the daemon is gone."""
    if tone == _GONE:
        return _SVG.format(
            f'<circle cx="8" cy="8" r="5.5" fill="none" stroke="{LIGHT.quiet}" '
            'stroke-width="3" stroke-dasharray="6 3"/>'
        )
    colour = LIGHT._asdict()[tone]
    shapes = {
        Tone.BAD.value: '<path d="M8 1 15.5 15H.5z" fill="{}"/>',
        Tone.WARN.value: '<path d="M8 .5 15.5 8 8 15.5.5 8z" fill="{}"/>',
    }
    return _SVG.format(shapes.get(tone, '<circle cx="8" cy="8" r="7" fill="{}"/>').format(colour))


_SVG: Final = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">{}</svg>\n'


# -- the document ----------------------------------------------------------------------


@cache
def _frame() -> Template:
    return Template(_read("index.html").decode())


def _document(view: MonitorView | None) -> str:
    headline = _WAITING if view is None else view.headline
    advice = () if view is None else view.advice
    return _frame().substitute(
        title=escape(" · ".join(word for word in (headline.title, "gpumon") if word)),
        tone=headline.tone.value,
        simulated=_shown_if(view is not None and view.simulated),
        replayed=_shown_if(view is not None and view.replayed),
        source="" if view is None else escape(view.source),
        age="" if view is None else f"as of {_clock(view.wall_time_s)} UTC",
        line=escape(headline.line),
        why=escape(headline.why),
        next=escape(headline.next),
        gpus="" if view is None else _table(view.gpus),
        advice="".join(map(_advice, advice)),
        legend=_legend(),
    )


def _shown_if(condition: bool) -> str:
    return "" if condition else " hidden"


def _clock(wall_time_s: float) -> str:
    return time.strftime("%H:%M:%S", time.gmtime(wall_time_s))


@cache
def _legend() -> str:
    """Every part, reason and gap with its word, in the order in which parts are stacked."""
    parts = [
        f'<li data-part="{part}" hidden><span class="swatch part-{_dashed(part)}"></span>'
        f"{escape(word)}</li>"
        for part, word in PARTS.items()
    ]
    gaps = [
        f'<li data-gap="{gap}" hidden><span class="swatch gap-{_dashed(gap)}"></span>'
        f"{escape(word)}</li>"
        for gap, word in GAPS.items()
    ]
    reasons = [
        f'<li data-reason="{reason.value}" hidden>{escape(WORD_OF_REASON[reason])}</li>'
        for reason in InputWaitReason
    ]
    return "".join([*parts, *gaps, *reasons])


_NONE: Final = "\N{EN DASH}"
_TITLES: Final = ("GPU", "state", "busy", "user", "what is the matter", "what to do")


def _table(gpus: tuple[GpuView, ...]) -> str:
    head = "".join(f'<th scope="col">{title}</th>' for title in _TITLES)
    rows = "".join(map(_row, gpus))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _row(gpu: GpuView) -> str:
    busy = _NONE if gpu.utilization_ratio is None else in_percent(gpu.utilization_ratio)
    who = gpu.user or _NONE
    state = f"{gpu.status.shape} {gpu.status.word} {gpu.since_text}".strip()
    cells = (state, busy, who, " ".join((gpu.line, gpu.hint)).strip(), gpu.first_advice)
    return (
        f'<tr data-tone="{gpu.status.tone.value}"><th scope="row">GPU {escape(gpu.label)} '
        f"<bdi>{escape(gpu.name or '')}</bdi></th>"
        + "".join(f"<td><bdi>{escape(cell)}</bdi></td>" for cell in cells)
        + "</tr>"
    )


def _advice(advice: AdviceView) -> str:
    return (
        f"<li><b>{escape(advice.heading)}</b> {escape(advice.text)} "
        f"<small>{escape(advice.evidence)}</small></li>"
    )
