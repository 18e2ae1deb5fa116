"""What a report says after its first advice: what else is to be done."""

from __future__ import annotations

from gpumon.core.report import Report
from gpumon.outlets.report_headline import main_gpu
from gpumon.outlets.report_next import cooling_sentence, hot, main_advice
from gpumon.outlets.text_style import wrapped


def after_that(report: Report) -> str:
    """The other advice as a block.

    Returns:
        Lines of at most 80 columns; empty where there is nothing more.
    """
    lines = [line for text in other_advice(report) for line in wrapped(text, first="  - ")]
    return "\n".join(["After that:", *lines]) if lines else ""


def other_advice(report: Report) -> list[str]:
    """The other advice, and the GPUs whose clocks are held down: a paragraph each.

    Args:
        report: What to say; the GPU of its headline is not told of again.
    """
    first = main_advice(report)
    more = [advice for advice in report.advice if advice is not first and first is not None]
    said = [f"{advice.evidence} {advice.text}" for advice in more]
    main = main_gpu(report.gpus)
    # Where there is no advice, the headline told of the first of them.
    rest = hot(report) if first is not None else hot(report)[1:]
    return [*said, *(cooling_sentence(gpu) for gpu in rest if gpu is not main)]
