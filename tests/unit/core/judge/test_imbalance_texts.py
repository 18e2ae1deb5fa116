"""Specification of the advice on a GPU that waits for a slower one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.core.judge.advice import advise
from gpumon.core.phase import IdleCause
from gpumon.core.report.report import Advice, GpuReport, RunReport
from tests.builders_report import gpu, rank_of, shared_run

FAST = gpu(40, {IdleCause.IMBALANCE: 20})
SLOW = gpu(60, index=1)
PAIR = (FAST, SLOW)
EVEN = shared_run([2 / 3, 1.0], shares=[0.5, 0.5])


def advice(*runs: RunReport, gpus: tuple[GpuReport, ...] = PAIR) -> Advice:
    (one,) = advise(gpus, runs)
    assert one.cause == "imbalance"
    return one


class TestTheAdvice:
    def test_names_who_waits_for_whom_how_long_and_what_to_write(self) -> None:
        text = advice(EVEN).text

        assert "GPU 0 (20.0 s) waited for GPU 1" in text
        assert "GPU 0 67 % and GPU 1 100 % (skew 33 %)" in text
        assert "split 1:1; split them 3:2" in text
        assert "`multi_gpu_model(model, gpus=[0, 1], ratios=[3, 2])`" in text
        assert "`RatioBalancer`" in text

    def test_is_of_the_time_since_the_ratios_last_changed(self) -> None:
        text = advice(replace(EVEN, ratio_changes=2)).text

        assert "in training steps since its ratios last changed" in text

    def test_is_to_leave_ratios_alone_that_have_become_level(self) -> None:
        one = advice(
            replace(shared_run([0.995, 1.0], shares=[0.6, 0.4]), ratio_changes=1),
        )

        assert "level since its ratios last changed" in one.text
        assert "leave the ratios as they are" in one.text
        assert one.speedup_upper_bound == 1.0

    def test_says_even_where_the_framework_is_known_to_be(self) -> None:
        text = advice(shared_run([2 / 3, 1.0])).text

        assert "split evenly; split them 3:2: `multi_gpu_model(model, gpus=[0, 1]" in text
        assert "RatioBalancer" not in text

    def test_says_if_evenly_where_that_is_not_known(self) -> None:
        one = advice(shared_run([2 / 3, 1.0], framework="loop"))

        assert "How batches are split is not known; if evenly, 3:2 would level them" in one.text
        assert "multi_gpu_model" not in one.text

    def test_of_ranks_gives_the_ratios_by_rank(self) -> None:
        runs = [rank_of(at, busy, framework="lightning") for at, busy in enumerate((2 / 3, 1.0))]

        assert "`RatioSampler(dataset, batch_size, ratios=[3, 2])`" in advice(*runs).text

    def test_of_ranks_that_tell_their_shares_names_what_keeps_them_level(self) -> None:
        runs = [rank_of(0, 2 / 3, share=0.5), rank_of(1, 1.0, share=0.5)]

        assert "or let `RatioSampler.level` find and keep the ratios" in advice(*runs).text

    def test_has_no_line_to_write_where_other_ranks_are_on_another_machine(self) -> None:
        runs = [rank_of(at, busy, framework="lightning") for at, busy in ((2, 2 / 3), (3, 1.0))]
        text = advice(*runs, gpus=(replace(FAST, index=2, uuid="GPU-2"),
                                   replace(SLOW, index=3, uuid="GPU-3"))).text  # fmt: skip

        assert "split them 3:2: GPU 2 and GPU 3 in this order." in text

    def test_is_a_general_one_where_the_busy_times_are_not_known(self) -> None:
        assert "slower GPU a smaller share" in advice().text

    def test_says_what_to_do_with_a_gpu_that_does_nothing(self) -> None:
        one = advice(shared_run([0.0, 1.0], shares=[0.5, 0.5]))

        assert "give it a part of each batch, or leave it out" in one.text


class TestTheMostItCanWin:
    @pytest.mark.parametrize("runs", [(EVEN,), (shared_run([2 / 3, 1.0]),)], ids=["told", "even"])
    def test_is_what_level_gpus_need(self, runs: tuple[RunReport, ...]) -> None:
        # Speeds 3:2: halves take 2/3 s and 1 s; three fifths and two fifths take 0.8 s each.
        assert advice(*runs).speedup_upper_bound == pytest.approx(1 / 0.8)

    def test_is_all_the_wait_where_shares_are_not_known(self) -> None:
        one = advice(shared_run([2 / 3, 1.0], framework="loop"))

        assert one.speedup_upper_bound == pytest.approx(1.5)

    def test_counts_only_the_part_of_the_time_that_was_waited(self) -> None:
        # Of 120 s in use, 60 s were training steps.
        fast = gpu(40, {IdleCause.IMBALANCE: 20, IdleCause.CHECKPOINT: 60})
        slow = gpu(60, {IdleCause.CHECKPOINT: 60}, index=1)

        found = {one.cause: one for one in advise((fast, slow), (EVEN,))}

        assert found["imbalance"].speedup_upper_bound == pytest.approx(120 / (120 - 0.2 * 60))
