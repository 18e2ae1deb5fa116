"""A report as the terminal would show it, for the tests of its text."""

from __future__ import annotations

from gpumon.core.phase import IdleCause
from gpumon.core.report.report import Report
from gpumon.outlets.text.report_text import render_report
from gpumon.outlets.text.style import TextStyle
from tests.builders.report import gpu, report, run

PLAIN = TextStyle()

STARVED = report(
    gpu(
        35.4,
        {IdleCause.INPUT_WAIT: 22.1, IdleCause.CHECKPOINT: 2.3, IdleCause.NOT_IN_USE: 4.2},
        hidden_s=7.5,
        pauses=12,
    ),
    runs=(run(steps=1200, wall_s=61.5, workers=1),),
)


def shown(one: Report, style: TextStyle = PLAIN) -> list[str]:
    return render_report(one, style).splitlines()


def line_with(word: str, one: Report, style: TextStyle = PLAIN) -> str:
    (line,) = [line for line in shown(one, style) if word in line]
    return line
