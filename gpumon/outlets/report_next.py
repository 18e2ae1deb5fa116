"""The third line of a report: Next, what to do first. Written to be read aloud."""

from __future__ import annotations

from gpumon.core.fill.texts import held_remedy, held_sentence
from gpumon.core.report import BESIDE_CAUSES, Advice, GpuReport, Report
from gpumon.core.verdict import VerdictName
from gpumon.outlets.report_headline import greatest_proved, is_well, main_gpu
from gpumon.outlets.report_machine import TOLD_IN_WHY, first_finding


def next_line(report: Report) -> str:
    """What to do first."""
    advice = main_advice(report)
    gpu = main_gpu(report.gpus)
    lost = [other.index for other in report.gpus if other.error is not None]
    if lost and (gpu is None or is_well(gpu)):
        return (
            f"find out what became of it: `gpumon doctor`, `nvidia-smi -q -i {lost[0]}`, "
            "and Xid messages in `dmesg`."
        )
    if gpu is None and report.runs:
        return (
            "say which GPU it trains on, with GPUMON_GPUS=0 in its environment or "
            "PhaseTagger(gpus=[0]); if that is said, it names none that is watched, or "
            "did next to nothing there."
        )
    if advice is None and gpu is None:
        return "run `gpumon doctor`: it says what can be read."
    if advice is None:
        return next(map(cooling_sentence, hot(report)), _of_the_log(report))
    if advice.lost_seconds <= 0.0:
        return advice.text
    return f"{advice.text} {gain_sentence(advice)}".strip()


def hot(report: Report) -> list[GpuReport]:
    """The GPUs whose clocks are held down by what somebody can mend."""
    return [gpu for gpu in report.gpus if held_remedy(gpu.fill)]


def cooling_sentence(gpu: GpuReport) -> str:
    """What holds the clocks of such a GPU down, and where to look."""
    remedy = held_remedy(gpu.fill)
    return f"GPU {gpu.label}: {held_sentence(gpu.fill)} {remedy[:1].upper()}{remedy[1:]}."


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
