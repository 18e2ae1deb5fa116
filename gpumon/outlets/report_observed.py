"""What a report is of: how much was observed, how finely, and from when."""

from __future__ import annotations

from datetime import datetime

from gpumon.core.figures import in_seconds, plainly
from gpumon.core.label_text import label_text
from gpumon.core.report import Report
from gpumon.core.units import seconds


def observed_sentence(report: Report) -> str:
    """Source, time observed, period and start, in one sentence."""
    facts = [f"{label_text(report.source, 400)}: {in_seconds(report.observed_ns)} observed"]
    facts.append(f"one sample every {plainly(seconds(report.period_ns), 3)} s")
    if report.started_at is not None:
        facts.append(f"from {_moment(report.started_at)}")
    return f"{', '.join(facts)}."


def _moment(started_at: str) -> str:
    """An ISO 8601 time as people write it; whatever else it is, as it is."""
    try:
        moment = datetime.fromisoformat(started_at)
    except ValueError:
        return label_text(started_at)
    zone = f" {moment.strftime('%z')}" if moment.utcoffset() else " UTC"
    return f"{moment:%Y-%m-%d %H:%M:%S}{zone if moment.tzinfo is not None else ''}"
