"""Specification of what is said of a GPU that is busy and under-filled: claim, figures, way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.core.board.fill import GpuFill
from gpumon.core.judge.advice import advise
from gpumon.core.judge.fill_texts import fill_claim, fill_figures, fill_reason, held_sentence
from gpumon.core.phase import IdleCause
from gpumon.core.report.report import UNDER_FILLED, Advice, GpuReport
from tests.builders_fill import gpm_fill, mean, power_fill
from tests.builders_report import gpu, run


def filled(fill: GpuFill | None, *, index: int = 0, idle_s: float = 3.0) -> GpuReport:
    """A healthy GPU, 97 % busy."""
    one = gpu(100.0 - idle_s, {IdleCause.WITHIN_STEP: idle_s}, index=index)
    return replace(one, fill=fill)


def only(*gpus: GpuReport, framework: str | None = None) -> Advice:
    runs = () if framework is None else (replace(run(), framework=framework),)
    (advice,) = advise(gpus, runs)
    return advice


class TestTheClaim:
    def test_names_the_share_of_the_multiprocessors(self) -> None:
        assert (
            fill_claim(filled(gpm_fill(0.24)))
            == "busy 97 %, but on average 24 % of its multiprocessors have work"
        )

    def test_only_suggests_where_it_rests_on_power(self) -> None:
        assert fill_claim(filled(power_fill(180.0))) == (
            "busy 97 %, but power 180 of 700 W suggests that little of it works"
        )

    def test_never_rounds_a_share_up_to_the_threshold(self) -> None:
        assert "49.8 %" in fill_claim(filled(gpm_fill(0.498)))


class TestTheAdvice:
    def test_costs_no_time_and_promises_no_speed(self) -> None:
        advice = only(filled(gpm_fill(0.24)))

        assert advice.cause == UNDER_FILLED
        assert advice.lost_seconds == 0.0
        assert advice.speedup_upper_bound == 1.0

    def test_has_its_figures(self) -> None:
        assert only(filled(gpm_fill(0.24))).evidence == (
            "GPU 0 is busy 97 %, but on average 24 % of its multiprocessors have work. "
            "Over 120.0 s in which it was busy more than 90 %: "
            "24 % of the multiprocessors had work, occupancy 12 %, tensor cores 3.0 %, "
            "memory bandwidth 20 %, power 180 of 700 W, clock 100 % of the highest."
        )

    def test_says_that_power_is_no_proof(self) -> None:
        evidence = only(filled(power_fill(180.0))).evidence

        assert "it drew 180 of 700 W on average" in evidence
        assert "a hint and no proof" in evidence

    def test_begins_with_a_larger_batch(self) -> None:
        text = only(filled(gpm_fill(0.24))).text

        assert text.startswith(
            "Give the GPU more to do at a time: first a larger batch; then fewer"
        )
        assert "CUDA graphs" in text
        assert "Mixed precision" in text

    @pytest.mark.parametrize(
        ("framework", "way"),
        [
            ("keras/tensorflow", "jit_compile=True"),
            ("keras/jax", "steps_per_execution"),
            ("lightning", "torch.compile"),
            ("huggingface", "torch_compile=True"),
            ("loop", "CUDA graphs"),
        ],
    )
    def test_speaks_the_language_of_the_framework(self, framework: str, way: str) -> None:
        text = only(filled(gpm_fill(0.24)), framework=framework).text

        assert way in text
        assert ("trainer-bench --find-batch" in text) == framework.startswith("keras/")

    def test_leaves_out_mixed_precision_where_the_tensor_cores_work(self) -> None:
        busy_tensors = gpm_fill(0.24)._replace(tensor_active=mean(0.2, 120.0))

        assert "Mixed precision" not in only(filled(busy_tensors)).text

    def test_names_every_gpu_that_it_is_about_and_gives_figures_of_the_emptiest(self) -> None:
        advice = only(filled(gpm_fill(0.4)), filled(gpm_fill(0.2), index=1))

        assert advice.evidence.startswith("GPU 1 is busy 97 %, but on average 20 %")
        assert "and GPU 0 is busy 97 %, but on average 40 %" in advice.evidence
        assert "GPU 1: Over 120.0 s" in advice.evidence

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

    def test_is_never_called_starvation(self) -> None:
        advice = only(filled(gpm_fill(0.24)))

        assert "starv" not in (advice.evidence + advice.text).lower()


class TestClocksThatAreHeldDown:
    def test_are_said_with_the_reason_in_words_and_by_its_name(self) -> None:
        assert held_sentence(gpm_fill(0.9, held=0.6)) == (
            "Its clocks were held down 60 % of its busy time by heat (hw_thermal_slowdown)."
        )

    def test_are_the_finding_where_that_was_most_of_the_time(self) -> None:
        assert fill_reason(filled(power_fill(180.0, held=0.6))).startswith("Its clocks were held")

    def test_are_no_word_worth_for_a_moment(self) -> None:
        assert held_sentence(gpm_fill(0.9, held=0.005)) == ""


class TestFigures:
    def test_are_none_where_nothing_is_known(self) -> None:
        assert fill_figures(GpuFill()) == ""
        assert fill_reason(filled(None)) == ""
