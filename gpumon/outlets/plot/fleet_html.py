"""Writes a report on many machines as one self-contained page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from gpumon.core.clock import nanoseconds
from gpumon.core.fleet.fleet_report import FleetReport, Ranking
from gpumon.core.wording import capital, in_percent, in_unit_of, label_text
from gpumon.outlets.plot.page_frame import framed
from gpumon.outlets.text.fleet_text import (
    headline,
    loser_name,
    price_cell,
    ranking_title,
    rest_rows,
    scope_sentence,
    time_rows,
    word_of_cause,
)

_NO_BREAK = "\N{NO-BREAK SPACE}"


def fleet_page(report: FleetReport) -> bytes:
    """Return one page: what was lost and what to do, where the time went, and who lost most."""
    (_, verdict), *more = headline(report)
    lines = [
        f"<h1>{escape(capital(verdict))}</h1>",
        *(f"<p><b>{escape(label)}:</b> {escape(capital(text))}</p>" for label, text in more),
        f'<p class="quiet">{escape(scope_sentence(report))}</p>',
        *_time_table(report),
    ]
    for ranking in report.rankings:
        lines += _ranking_table(ranking, report)
    notes = [f"<li>{escape(note)}</li>" for note in report.notes]
    lines += ["<h2>Notes</h2>", "<ul>", *notes, "</ul>"] if notes else []
    return framed(f"{label_text(report.source, 100)}: GPU time lost", lines)


def _time_table(report: FleetReport) -> Iterator[str]:
    rows = [
        [
            title,
            _bar(amount_s, report.observed_seconds, is_lost=cause is not None),
            *_figures(amount_s, report),
            in_percent(amount_s / report.observed_seconds),
        ]
        for title, amount_s, cause in time_rows(report)
    ]
    heads = ["", "", "GPU time", *_price_head(report), "share"]
    yield from _table("Where the GPU time went", heads, rows)


def _ranking_table(ranking: Ranking, report: FleetReport) -> Iterator[str]:
    most = max((loser.lost_seconds for loser in ranking.worst), default=0.0)
    rows = [
        [
            loser_name(loser),
            _bar(loser.lost_seconds, most, is_lost=True),
            *_figures(loser.lost_seconds, report),
            "-" if loser.lost_ratio is None else in_percent(loser.lost_ratio),
            word_of_cause(loser.main_cause),
        ]
        for loser in ranking.worst
    ]
    rows += [[name, "", *_figures(lost, report), "", ""] for name, lost in rest_rows(ranking)]
    heads = [ranking.dimension.name, "", "lost", *_price_head(report)]
    yield from _table(ranking_title(ranking), [*heads, "share of the time in use", "mainly"], rows)


def _price_head(report: FleetReport) -> list[str]:
    return [] if report.prices.gpu_hour is None else ["price"]


def _figures(amount_s: float, report: FleetReport) -> list[str]:
    whole_ns = nanoseconds(report.observed_seconds)
    price = price_cell(amount_s, report)
    return [in_unit_of(whole_ns, nanoseconds(amount_s)), *([price] if price else [])]


def _bar(part: float, whole: float, *, is_lost: bool) -> str:
    """A bar; it needs no style of its own, which the page's policy forbids."""
    width = 100 * part / whole if whole else 0.0
    kind = "bar lost" if is_lost else "bar"
    return (
        f'<svg class="{kind}" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect width="{width:.1f}" height="8"/></svg>'
    )


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table whose second column has bars, all else being text."""
    yield f"<h2>{escape(title)}</h2>"
    yield '<div class="wide"><table>'
    yield f"<thead><tr>{''.join(f'<th>{escape(head)}</th>' for head in heads)}</tr></thead>"
    yield "<tbody>"
    for name, bar, *more in rows:
        cells = "".join(f"<td>{escape(cell.replace(' ', _NO_BREAK))}</td>" for cell in more)
        yield f"<tr><th>{escape(name)}</th><td>{bar}</td>{cells}</tr>"
    yield "</tbody></table></div>"
