"""The texts of a report on a live state, for the page: the same lines as in the terminal."""

from __future__ import annotations

from typing import Any

from gpumon.core.codecs.report_codec import encode_sentences
from gpumon.core.device.sm_utilisation import is_under_filled
from gpumon.core.report.report import Report
from gpumon.core.verdict import Severity, VerdictName
from gpumon.core.wording import capital, in_percent
from gpumon.outlets.text.headline import main_gpu, verdict_line, why_line
from gpumon.outlets.text.now_lines import is_over, stands_still
from gpumon.outlets.text.report_lines import next_advice, next_line
from gpumon.outlets.text.statements import verdict_word, waits_for_rank
from gpumon.outlets.text.trouble_lines import trouble_words, worst_of

_TONES = {Severity.NONE: "quiet", Severity.MODERATE: "warn", Severity.HIGH: "bad"}


def page_text(report: Report) -> dict[str, Any]:
    """The texts of a report for the page.

    Returns:
        ``notes`` and ``advice`` as in the complete document, and ``headline``: the lines
        ``verdict``, ``why`` and ``next``, a short ``title``, the ``tone`` (``bad``, ``warn``,
        ``good``, ``quiet``), and which ``advice`` the line ``next`` gives; ``None``: none.
    """
    advice = next_advice(report)
    return {
        "headline": {
            "tone": _tone(report),
            "title": _title(report),
            "verdict": capital(verdict_line(report)),
            "why": capital(why_line(report)),
            "next": capital(next_line(report)),
            "advice": None if advice is None else report.advice.index(advice),
        },
        **encode_sentences(report),
    }


def _tone(report: Report) -> str:
    gpu = main_gpu(report.at_present.gpus)
    broken = worst_of(report)
    if report.source_error is not None:
        return "bad"
    if broken is Severity.HIGH or gpu is None:
        return _TONES[broken]
    if gpu.is_suspended:
        return "warn"
    is_well = gpu.verdict.name is VerdictName.HEALTHY
    is_noted = broken is not Severity.NONE or (is_well and is_under_filled(gpu.fill))
    if gpu.verdict.severity is Severity.NONE:
        return "warn" if is_noted else "good" if is_well and not is_over(gpu) else "quiet"
    return _TONES[gpu.verdict.severity]


def _title(report: Report) -> str:
    if report.source_error is not None:
        return "no GPU can be read"
    gpus = report.at_present.gpus
    broken = [
        gpu for gpu in gpus if any(trouble.severity is Severity.HIGH for trouble in gpu.troubles)
    ]
    if broken:
        return f"GPU {broken[0].label}: {trouble_words(broken[0])}"
    gpu = main_gpu(gpus)
    if gpu is not None and stands_still(gpu, report.at_present):
        return f"GPU {gpu.label}: {'suspended' if gpu.is_suspended else verdict_word(gpu)}"
    if gpu is not None and gpu.waits_for is not None and waits_for_rank(gpu):
        return f"GPU {gpu.label} waits for rank {gpu.waits_for.rank}"
    at_work = [gpu for gpu in gpus if gpu.totals.in_use_ns and not is_over(gpu)]
    lost_ns = sum(gpu.totals.lost_ns for gpu in at_work)
    in_use_ns = sum(gpu.totals.in_use_ns for gpu in at_work)
    return f"{in_percent(lost_ns / in_use_ns)} lost" if at_work else ""
