"""Specification of what is said of a GPU that is busy and under-filled, and of clocks held down.

The words are in ``tests/golden``.
"""

from __future__ import annotations

import pytest

from gpumon.core.device.fill import GpuFill
from gpumon.core.diagnosis.advice import advise
from gpumon.core.diagnosis.fill_texts import fill_figures, fill_reason, held_sentence
from gpumon.core.phase import IdleCause
from gpumon.core.report.report import UNDER_FILLED
from tests.builders.report import filled, gpm_fill, gpu, power_fill


class TestTheAdvice:
    def test_costs_no_time_and_promises_no_speed(self) -> None:
        (advice,) = advise([filled(gpm_fill(0.24))], ())

        assert (advice.cause, advice.gpus) == (UNDER_FILLED, ("0",))
        assert (advice.lost_seconds, advice.speedup_upper_bound) == (0.0, 1.0)

    def test_comes_after_every_real_loss_and_before_gpus_without_work(self) -> None:
        starved = gpu(50, {IdleCause.INPUT_WAIT: 30, IdleCause.CHECKPOINT: 20}, index=1)
        unused = gpu(0, {IdleCause.NOT_IN_USE: 100}, index=2)

        causes = [one.cause for one in advise([filled(gpm_fill(0.24)), starved, unused], ())]

        assert causes == ["input_wait", "checkpoint", UNDER_FILLED, "not_in_use"]

    @pytest.mark.parametrize(
        "fill", [None, gpm_fill(0.9), power_fill(600.0), gpm_fill(0.2, held=0.7)]
    )
    def test_is_not_given_on_a_gpu_that_is_full_or_throttled_or_does_not_tell(
        self, fill: GpuFill | None
    ) -> None:
        assert advise([filled(fill)], ()) == ()


class TestClocksThatAreHeldDown:
    def test_are_the_finding_where_that_was_most_of_the_time(self) -> None:
        fill = power_fill(180.0, held=0.6)

        assert fill_reason(filled(fill)) == held_sentence(fill)

    def test_are_no_word_worth_for_a_moment(self) -> None:
        assert held_sentence(gpm_fill(0.9, held=0.005)) == ""


def test_no_figure_is_told_where_nothing_is_known() -> None:
    assert fill_figures(GpuFill()) == ""
    assert fill_reason(filled(None)) == ""
