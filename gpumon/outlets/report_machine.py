"""What a report says of all GPUs together, and of a log beside its verdicts."""

from __future__ import annotations

from typing import Final

from gpumon.core.figures import counted, in_gpu_time, in_percent, in_seconds
from gpumon.core.log_findings import LogFinding, log_findings
from gpumon.core.machine import MachineTime, machine_time
from gpumon.core.report import GpuReport, Report
from gpumon.core.sampling import Sampling
from gpumon.core.settings import DEFAULT_SETTINGS
from gpumon.core.totals import GapTotals
from gpumon.outlets.text_style import wrapped

TOLD_IN_WHY: Final = "sampling_too_coarse"
"""The rule whose finding is a part of the line Why."""


def machine_line(report: Report) -> str:
    """Where the GPU-time of several GPUs went; empty of fewer than two.

    Returns:
        Lines of at most 80 columns.
    """
    machine = machine_time(report.gpus)
    if machine.gpus < 2 or not machine.observed_ns:
        return ""
    return "\n".join(wrapped(_shares(machine)))


def findings_block(report: Report, told: str) -> str:
    """What the log shows beside the verdicts, each with what to do.

    Args:
        report: What to say.
        told: The line Next: what it says is not told again.

    Returns:
        Lines of at most 80 columns; empty where there is nothing.
    """
    said = findings_beside(report, told)
    lines = [line for text in said for line in wrapped(text, first="  - ")]
    return "\n".join(["Besides:", *lines]) if lines else ""


def findings_beside(report: Report, told: str) -> list[str]:
    """The paragraphs of that block."""
    return [
        _sentences(finding, report)
        for finding in log_findings(report)
        if finding.remedy not in told
    ]


def _sentences(finding: LogFinding, report: Report) -> str:
    if finding.rule == TOLD_IN_WHY:
        return finding.remedy
    used = [gpu.label for gpu in report.gpus if gpu.totals.in_use_ns]
    if report.advice and not any(label in used for label in finding.gpus):
        return finding.text  # there is an advice on GPUs that nobody uses
    return f"{finding.text} {finding.remedy}"


def first_finding(report: Report) -> LogFinding | None:
    """What to act on where no verdict asks for anything; ``None``: nothing."""
    return next(iter(log_findings(report)), None)


def levels_lines(gpu: GpuReport, sampling: Sampling | None) -> list[str]:
    """At which levels a GPU that no tag explains was used, and how it paused.

    Args:
        gpu: Of a log.
        sampling: How finely it was sampled; ``None``: it is no log's, and nothing is said.
    """
    totals = gpu.totals
    if sampling is None or not totals.in_use_ns:
        return []
    low, high = totals.low_ns / totals.in_use_ns, totals.high_ns / totals.in_use_ns
    limits = DEFAULT_SETTINGS.low_below, DEFAULT_SETTINGS.high_above
    text = (
        f"levels: {in_percent(low)} of the time in use below {in_percent(limits[0])}, "
        f"{in_percent(max(0.0, 1.0 - low - high))} between, "
        f"{in_percent(high)} above {in_percent(limits[1])}"
    )
    pauses = _pauses(totals.pauses, sampling)
    return wrapped(f"{text}; {pauses}." if pauses else f"{text}.", first="  ")


def _pauses(gaps: GapTotals, sampling: Sampling) -> str:
    """How many pauses there were, and how long; no length that so few samples cannot show."""
    if not gaps.count:
        return ""
    least_ns = sampling.shortest_visible_pause_ns if sampling.is_coarse else 0
    count = counted(gaps.count, "pause", "pauses")
    if gaps.longest_ns < least_ns:
        return f"{count} too short to measure"
    if gaps.count == 1:
        return f"{count} of {in_seconds(gaps.longest_ns)}"
    longest = f"the longest {in_seconds(gaps.longest_ns)}"
    if gaps.p50_ns is None:
        return f"{count}, {longest}"
    if gaps.p50_ns < least_ns:
        return f"{count}, half of them too short to measure, {longest}"
    return f"{count}, half of them up to {in_seconds(gaps.p50_ns)}, {longest}"


def _shares(machine: MachineTime) -> str:
    parts = [
        (machine.busy_ns, "busy"),
        (machine.lost_ns, "lost in use"),
        (machine.out_of_use_ns, "not in use"),
        (machine.pending_ns, "not decided yet"),
    ]
    said = ", ".join(
        f"{in_percent(machine.share(part_ns))} {word}" for part_ns, word in parts if part_ns
    )
    return f"{machine.gpus:,} GPUs, {in_gpu_time(machine.observed_ns)} observed: {said}."
