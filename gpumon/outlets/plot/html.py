"""Writes a report and its picture as one page that needs nothing from anywhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from pathlib import PurePath
from typing import Final

from gpumon import __version__
from gpumon.core.judge.advice import WORD_OF_CAUSE
from gpumon.core.log.busy_lane import Lane
from gpumon.core.phase import CAUSES, IdleCause
from gpumon.core.report.report import GpuReport, Report
from gpumon.core.wording import in_about, in_percent, in_unit_of, label_text
from gpumon.outlets.plot.figure import description, picture
from gpumon.outlets.plot.palette import DARK, LIGHT, Palette
from gpumon.outlets.text.headline import verdict_line, verdict_word, why_line
from gpumon.outlets.text.report_lines import (
    findings_beside,
    machine_line,
    next_line,
    notes_beside,
    observed_sentence,
    other_advice,
)
from gpumon.outlets.text.style import capital


def _variables(palette: Palette) -> str:
    used = ("paper", "text", "quiet", "rule")
    return " ".join(f"--{name}: {getattr(palette, name)};" for name in used)


_STYLE: Final = f"""
:root {{ color-scheme: light dark; {_variables(LIGHT)} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_variables(DARK)} }} }}
* {{ box-sizing: border-box; }}
body {{ margin: 0 auto; max-width: 72rem; padding: 1.2rem; background: var(--paper);
  color: var(--text);
  font: 15px/1.5 Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif;
  font-variant-numeric: tabular-nums; }}
h1 {{ margin: 0 0 .5rem; font-size: 1.45rem; line-height: 1.3; overflow-wrap: anywhere; }}
h2 {{ margin: 1.6rem 0 .4rem; font-size: 1rem; }}
p {{ margin: .25rem 0; overflow-wrap: anywhere; }}
.quiet, footer {{ color: var(--quiet); }}
.wide {{ overflow-x: auto; margin: .8rem 0; }}
.wide img {{ display: block; width: 100%; min-width: 44rem; height: auto; }}
table {{ border-collapse: collapse; font-size: .87rem; }}
th, td {{ padding: .3rem .7rem; text-align: right; vertical-align: bottom;
  border-bottom: 1px solid var(--rule); }}
td {{ white-space: nowrap; }}
th:nth-child(-n+2), td:nth-child(-n+2) {{ text-align: left; }}
thead th {{ color: var(--quiet); font-weight: 600; }}
tbody th {{ font-weight: 600; min-width: 11rem; }}
ul {{ margin: .2rem 0; padding-left: 1.2rem; overflow-wrap: anywhere; }}
footer {{ margin-top: 2rem; font-size: .85rem; }}
@media print {{ .wide {{ overflow: visible; }} }}
"""
_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; img-src data:; base-uri 'none'; "
    "form-action 'none'"
)


def html_page(report: Report, lanes: Sequence[Lane]) -> bytes:
    """One page: verdict, why, next, a lane of each GPU reported, their seconds, the notes.

    It runs no script, asks for nothing, and its policy would not let it.
    """
    name = label_text(PurePath(report.source).name or report.source, 100)
    lines = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>{escape(name)}: GPU time</title>",
        f"<style>{_STYLE}</style>",
        "</head>",
        "<body>",
        *_headline(report),
        f'<div class="wide">{_picture(report, lanes)}</div>',
        *_besides(report),
        *_table(report),
        *_list("Notes", notes_beside(report)),
        f"<footer>Made by gpumon {escape(__version__)} (gpumon analyze --html).</footer>",
        "</body>",
        "</html>",
        "",
    ]
    return "\n".join(lines).encode()


def _picture(report: Report, lanes: Sequence[Lane]) -> str:
    """The lanes, for light paper and for dark."""
    light, dark = (
        "data:image/svg+xml;base64,"
        + base64.b64encode(picture(report, lanes, "svg", palette, headline=False)).decode()
        for palette in (LIGHT, DARK)
    )
    return (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">'
        f'<img src="{light}" alt="{escape(description(report))}"></picture>'
    )


def _headline(report: Report) -> list[str]:
    return [
        f"<h1>{escape(capital(verdict_line(report)))}</h1>",
        f"<p><b>Why:</b> {escape(capital(why_line(report)))}</p>",
        f"<p><b>Next:</b> {escape(capital(next_line(report)))}</p>",
        f'<p class="quiet">{escape(observed_sentence(report))}</p>',
    ]


def _besides(report: Report) -> list[str]:
    """What else to do, and what the log shows beside the verdict."""
    together = machine_line(report)
    lines = [f"<p>{escape(together)}</p>"] if together else []
    findings = findings_beside(report, told=next_line(report))
    return [*lines, *_list("After that", other_advice(report)), *_list("Besides", findings)]


def _list(title: str, texts: Sequence[str]) -> list[str]:
    """Paragraphs under a title; nothing where there is none."""
    items = [f"<li>{escape(text)}</li>" for text in texts]
    return [f"<h2>{title}</h2>", "<ul>", *items, "</ul>"] if items else []


def _table(report: Report) -> list[str]:
    heads, rows = _seconds_table(report.gpus)
    return [
        "<h2>Where the seconds went</h2>",
        '<div class="wide"><table>',
        f"<thead><tr>{''.join(f'<th>{escape(head)}</th>' for head in heads)}</tr></thead>",
        "<tbody>",
        *(
            f"<tr><th>{escape(first)}</th>{''.join(f'<td>{escape(cell)}</td>' for cell in more)}"
            "</tr>"
            for first, *more in rows
        ),
        "</tbody></table></div>",
        '<p class="quiet">Busy and idle add up to observed; starved or suspected is a part of '
        "the idle time. Shares are of the time observed.</p>",
    ]


def _seconds_table(gpus: Sequence[GpuReport]) -> tuple[list[str], list[list[str]]]:
    """The columns' heads, and a row for each GPU: busy and idle add up to observed.

    Causes that no GPU has are left out.
    """
    causes = [cause for cause in CAUSES if any(gpu.totals.idle_ns.get(cause) for gpu in gpus)]
    has_pending = any(gpu.totals.pending_ns for gpu in gpus)
    heads = [
        "GPU",
        "verdict",
        "observed",
        "busy",
        *(f"idle, {WORD_OF_CAUSE[cause]}" for cause in causes),
    ]
    heads += ["not decided yet"] if has_pending else []
    heads += ["starved or suspected", "pauses", "the longest"]
    longest_ns = max((gpu.totals.observed_ns for gpu in gpus), default=0)
    return heads, [_cells(gpu, causes, longest_ns, has_pending=has_pending) for gpu in gpus]


def _cells(
    gpu: GpuReport, causes: Sequence[IdleCause], longest_ns: int, *, has_pending: bool
) -> list[str]:
    totals, whole_ns = gpu.totals, gpu.totals.observed_ns

    def cell(part_ns: int) -> str:
        said = in_unit_of(longest_ns, part_ns)
        return f"{said} ({in_percent(part_ns / whole_ns)})" if part_ns and whole_ns else said

    name = f"{gpu.label}, {label_text(gpu.name, 64)}" if gpu.name else gpu.label
    parts = [totals.busy_ns, *(totals.idle_ns.get(cause, 0) for cause in causes)]
    parts += [totals.pending_ns] if has_pending else []
    return [
        name,
        verdict_word(gpu),
        in_unit_of(longest_ns, whole_ns),
        *map(cell, parts),
        cell(totals.starved_ns + totals.suspected_ns),
        f"{totals.pauses.count:,}",
        in_about(totals.pauses.longest_ns) if totals.pauses.count else "-",
    ]
