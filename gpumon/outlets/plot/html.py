"""Writes a report and its picture as one self-contained page."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from pathlib import PurePath
from typing import Final

from gpumon.core.diagnosis.messages import WORD_OF_CAUSE, WORD_OF_REASON
from gpumon.core.phase import CAUSES, IdleCause, InputWaitReason
from gpumon.core.report.lanes import Lanes
from gpumon.core.report.report import GpuReport, Report
from gpumon.core.view.palette import DARK, LIGHT
from gpumon.core.wording import (
    capital,
    in_about,
    in_percent,
    in_unit_of,
    is_next_to_nothing,
    label_text,
    listed,
    parts_in_unit_of,
)
from gpumon.outlets.plot.figure import description, picture
from gpumon.outlets.plot.page_frame import framed
from gpumon.outlets.text.headline import verdict_line, why_line
from gpumon.outlets.text.report_lines import (
    machine_line,
    next_line,
    observed_sentences,
    other_advice,
    other_findings,
    run_sentences,
    shown_notes,
)
from gpumon.outlets.text.statements import word_in_table
from gpumon.outlets.text.trouble_lines import title_of_troubles, trouble_paragraphs

_NO_PICTURE: Final = (
    "There is no picture: a saved report has no time line, and the daemon keeps one only for its "
    "newest runs. A recording, made by `gpumon record`, always has one."
)


def html_page(report: Report, lanes: Lanes | None) -> bytes:
    """Return one page: verdict, why, next, the picture, reasons for input stalls, times, notes.

    It runs no script and loads nothing, and its policy forbids both. ``lanes`` is ``None`` if what
    the GPUs and the runs did over time is unknown.
    """
    report = replace(report, runs=report.observed_runs)
    name = label_text(PurePath(report.source).name or report.source, 100)
    lines = [
        f"<h1>{escape(capital(verdict_line(report)))}</h1>",
        f"<p><b>Why:</b> {escape(capital(why_line(report)))}</p>",
        f"<p><b>Next:</b> {escape(capital(next_line(report)))}</p>",
        f'<p class="quiet">{escape(observed_sentences(report))}</p>',
        *_picture(report, lanes),
        *_list(title_of_troubles(report), trouble_paragraphs(report)),
        *_list("Why input was late", _reasons(report.gpus)),
        *([f"<p>{escape(machine)}</p>"] if (machine := machine_line(report)) else []),
        *_list("Other losses", other_advice(report)),
        *_list("Also noted", other_findings(report, next_line(report))),
        *_table(report.gpus),
        *_list("Runs", [" ".join(sentences) for sentences in run_sentences(report)]),
        *_list("Notes", shown_notes(report)),
    ]
    return framed(f"{name}: GPU time", lines)


def _picture(report: Report, lanes: Lanes | None) -> list[str]:
    if lanes is None:
        return [f'<p class="quiet">{escape(_NO_PICTURE)}</p>']
    if not lanes.runs and not any(lane.observed_ns for lane in lanes.gpus):
        return []
    light, dark = (
        "data:image/svg+xml;base64,"
        + base64.b64encode(picture(report, lanes, "svg", palette, headline=False)).decode()
        for palette in (LIGHT, DARK)
    )
    return [
        '<div class="wide"><picture>'
        f'<source media="screen and (prefers-color-scheme: dark)" srcset="{dark}">'
        f'<img src="{light}" alt="{escape(description(report, lanes))}"></picture></div>'
    ]


def _reasons(gpus: Sequence[GpuReport]) -> list[str]:
    sentences = []
    for gpu in gpus:
        waited_ns = gpu.totals.idle_ns.get(IdleCause.INPUT_WAIT, 0)
        reasons_ns, unknown = Counter(gpu.totals.input_wait_by_reason_ns), InputWaitReason.UNKNOWN
        reasons_ns[unknown.value] += max(0, waited_ns - reasons_ns.total()) if reasons_ns else 0
        by_reason = reasons_ns.most_common()
        cells = parts_in_unit_of(waited_ns, [part_ns for _, part_ns in by_reason])
        shares = [
            f"{cell} for {WORD_OF_REASON.get(reason, label_text(reason))} "
            f"({in_percent(part_ns / waited_ns)})"
            for cell, (reason, part_ns) in zip(cells, by_reason, strict=True)
            if cell is not None and waited_ns
        ]
        if shares:
            waited = f"GPU {gpu.label} waited {in_unit_of(waited_ns, waited_ns)} for input"
            sentences.append(f"{waited}: {listed(shares, most=len(InputWaitReason))}.")
    return sentences


def _list(title: str, texts: Sequence[str]) -> list[str]:
    items = [f"<li>{escape(text)}</li>" for text in texts]
    return [f"<h2>{title}</h2>", "<ul>", *items, "</ul>"] if items else []


def _table(gpus: Sequence[GpuReport]) -> list[str]:
    if not gpus:
        return []
    heads, rows = _seconds_table(gpus)
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
    """Return the column heads, and a row for each GPU: busy and idle add up to observed.

    Causes that are negligible on every GPU are left out.
    """
    causes = [
        cause
        for cause in CAUSES
        if not all(
            is_next_to_nothing(gpu.totals.idle_ns.get(cause, 0), gpu.totals.observed_ns)
            for gpu in gpus
        )
    ]
    has_pending = any(gpu.totals.pending_ns for gpu in gpus)
    heads = [
        "GPU",
        "verdict",
        "observed",
        "busy",
        *(f"idle, {WORD_OF_CAUSE[cause]}" for cause in causes),
    ]
    heads += ["pending"] if has_pending else []
    heads += ["starved or suspected", "pauses", "the longest"]
    longest_ns = max((gpu.totals.observed_ns for gpu in gpus), default=0)
    return heads, [_cells(gpu, causes, longest_ns, has_pending=has_pending) for gpu in gpus]


def _cells(
    gpu: GpuReport, causes: Sequence[IdleCause], longest_ns: int, *, has_pending: bool
) -> list[str]:
    totals, whole_ns = gpu.totals, gpu.totals.observed_ns

    def cell(part_ns: int) -> str:
        time = _unbroken(in_unit_of(longest_ns, part_ns))
        if not part_ns or not whole_ns:
            return time
        return f"{time} ({_unbroken(in_percent(part_ns / whole_ns))})"

    name = f"{gpu.label}, {label_text(gpu.name, 64)}" if gpu.name else gpu.label
    parts = [totals.busy_ns, *(totals.idle_ns.get(cause, 0) for cause in causes)]
    parts += [totals.pending_ns] if has_pending else []
    return [
        name,
        word_in_table(gpu),
        _unbroken(in_unit_of(longest_ns, whole_ns)),
        *map(cell, parts),
        cell(totals.starved_ns + totals.suspected_ns),
        f"{totals.pauses.count:,}",
        _unbroken(in_about(totals.pauses.longest_ns)) if totals.pauses.count else "-",
    ]


def _unbroken(figure: str) -> str:
    return figure.replace(" ", "\N{NO-BREAK SPACE}")
