"""What a report says after its first advice: what else is to be done."""

from __future__ import annotations

from gpumon.core.report import Report
from gpumon.core.verdict import Severity
from gpumon.outlets.report_next import main_advice
from gpumon.outlets.report_troubles import first_remedy
from gpumon.outlets.text_style import wrapped


def after_that(report: Report) -> str:
    """The other advice as a block.

    Returns:
        Lines of at most 80 columns; empty where there is nothing more.
    """
    lines = [line for text in other_advice(report) for line in wrapped(text, first="  - ")]
    return "\n".join(["After that:", *lines]) if lines else ""


def other_advice(report: Report) -> list[str]:
    """The other advice, a paragraph each.

    Args:
        report: What to say. Where its headline is on a GPU in trouble, none was given yet.
    """
    first = main_advice(report)
    if first is None:
        return []
    told = None if first_remedy(report, Severity.HIGH) else first
    # The main one comes first, as in the headline.
    more = [advice for advice in (first, *report.advice) if advice is not told]
    return [f"{advice.evidence} {advice.text}" for advice in dict.fromkeys(more)]
