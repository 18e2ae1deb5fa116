"""The third line of a report: Next, what to do first. Written to be read aloud."""

from __future__ import annotations

from gpumon.core.report import BESIDE_CAUSES, Advice, Report
from gpumon.core.verdict import Severity, VerdictName
from gpumon.outlets.report_headline import greatest_proved, main_gpu
from gpumon.outlets.report_machine import TOLD_IN_WHY, first_finding
from gpumon.outlets.report_troubles import first_remedy


def next_line(report: Report) -> str:
    """What to do first: about a GPU in trouble, then about the time that is lost."""
    return first_remedy(report, Severity.HIGH) or time_line(report)


def time_line(report: Report) -> str:
    """What to do first about the time that is lost."""
    advice = main_advice(report)
    gpu = main_gpu(report.gpus)
    if gpu is None and report.runs:
        return (
            "say which GPU it trains on, with GPUMON_GPUS=0 in its environment or "
            "PhaseTagger(gpus=[0]); if that is said, it names none that is watched, or "
            "did next to nothing there."
        )
    if advice is None and gpu is None:
        return "run `gpumon doctor`: it says what can be read."
    if advice is None:
        return first_remedy(report, Severity.MODERATE) or _of_the_log(report)
    if advice.lost_seconds <= 0.0:
        return advice.text
    return f"{advice.text} {gain_sentence(advice)}".strip()


def gain_sentence(advice: Advice) -> str:
    """The most an advice can gain, as a sentence; empty where that is little, or nobody knows."""
    bound = advice.speedup_upper_bound
    if bound is None or bound < 1.005:
        return ""
    return f"At most {bound:.{2 if bound < 10 else 0}f} times as fast."


def main_advice(report: Report) -> Advice | None:
    """The advice on the main cause; else the first there is."""
    gpu = main_gpu(report.gpus)
    if gpu is None:
        return None
    if gpu.verdict.name is VerdictName.HEALTHY:
        # Nothing was lost: it stays healthy, and there may be something to gain all the same.
        return next((one for one in report.advice if one.cause in BESIDE_CAUSES), None)
    cause = gpu.verdict.main_cause
    if gpu.verdict.name in (VerdictName.STARVED, VerdictName.STALLED):
        cause = greatest_proved(gpu)  # even where more is unknown: that can be changed today
    fitting = [advice for advice in report.advice if cause and advice.cause == cause.value]
    return next(iter(fitting or report.advice), None)


def _of_the_log(report: Report) -> str:
    """What to do about what a log shows beside verdicts that ask for nothing."""
    finding = first_finding(report)
    if finding is None:
        return "nothing needs to change."
    about = "" if finding.rule == TOLD_IN_WHY else f"{finding.text} "
    return f"{about}{finding.remedy}"
