"""Specification of the report's first lines: which GPU they are about, and how figures are rounded.

Their text is in ``tests/golden``.
"""

from __future__ import annotations

import pytest

from gpumon.core.phase import IdleCause, InputWaitReason
from gpumon.core.report.report import GpuReport
from gpumon.outlets.text.headline import main_gpu, verdict_line, why_line
from tests.builders.report import gpu, report
from tests.unit.outlets.report_lines import line_with

UNKNOWN, SAVE, WAIT = IdleCause.UNKNOWN, IdleCause.CHECKPOINT, IdleCause.INPUT_WAIT
NOT_IN_USE, CPU = IdleCause.NOT_IN_USE, InputWaitReason.CPU_BOUND
WORKED_FOR_A_MOMENT = gpu(6, {UNKNOWN: 3, NOT_IN_USE: 1791})


class TestTheGpuTheyAreAbout:
    @pytest.mark.parametrize(
        ("gpus", "index"),
        [
            ([gpu(90, {WAIT: 10}), gpu(50, {SAVE: 50}, index=1)], 1),
            ([gpu(55, {UNKNOWN: 45}), gpu(70, {UNKNOWN: 30}, pauses=9, index=1)], 1),
            ([gpu(55, {UNKNOWN: 45}), gpu(90, {SAVE: 10}, index=1)], 1),
            ([gpu(60, {UNKNOWN: 40}), gpu(55, {UNKNOWN: 45}, index=1)], 1),
            ([WORKED_FOR_A_MOMENT, gpu(1800, index=1)], 1),
            ([gpu(0, {NOT_IN_USE: 60}), gpu(6, {UNKNOWN: 2}, index=1)], 1),
        ],
        ids=[
            "that lost most",
            "that pauses and not a low level",
            "that tags prove to lose",
            "of low levels that lost most",
            "that works",
            "that worked",
        ],
    )
    def test_is_the_one_that_matters_most(self, gpus: list[GpuReport], index: int) -> None:
        assert main_gpu(gpus) is gpus[index]


class TestFigures:
    @pytest.mark.parametrize(("explained_s", "words"), [(89.7, "89.7 %"), (89.9996, "89.9996 %")])
    def test_of_what_is_explained_are_never_rounded_up_to_what_is_asked_for(
        self, explained_s: float, words: str
    ) -> None:
        wait_s = explained_s - 40
        one = report(gpu(40, {UNKNOWN: 60 - wait_s, WAIT: wait_s}))

        assert line_with("coverage of the time", one).endswith(words)

    def test_of_a_loss_are_never_rounded_to_a_share_that_it_does_not_reach(self) -> None:
        assert " 19.8 % " in verdict_line(report(gpu(80.2, {SAVE: 19.8})))
        assert "(4.97 %)" in why_line(report(gpu(95.03, {UNKNOWN: 4.97})))
