"""Rules of advice: a workload where each applies, and a similar one where it does not."""

from __future__ import annotations

import pytest

from gpumon.core.diagnosis.advice import hides_much
from gpumon.core.diagnosis.imbalance import JobImbalance, OtherTenant, imbalances
from gpumon.core.report.report import Report
from gpumon.core.sample import ProcessSample
from gpumon.core.verdict import VerdictName
from gpumon.pipeline.state_report import report_of
from tests.builders.report import one_balance
from tests.builders.unequal_gpus import Board, UnequalGpus
from tests.truth.rules.small_workloads import late_every, training
from tests.truth.rules.watching import watched

HALF_A_MINUTE = 30


def causes_with_advice(report: Report) -> list[str]:
    return [advice.cause for advice in report.advice]


class TestWorthAChange:
    def test_applies_to_checkpoints_that_cost_two_percent_besides_a_late_loader(self) -> None:
        workload = training(late_ms=late_every(200, 3_000), hold_every=900, hold_ms=3_500.0)
        gpu = workload.gpus[0]

        assert (gpu.lost_ms - gpu.starved_ms) / gpu.in_use_ms == pytest.approx(0.02, abs=0.005)
        assert causes_with_advice(watched(workload, tagged=True)) == ["input_wait", "checkpoint"]

    def test_does_not_apply_to_checkpoints_that_cost_half_a_percent(self) -> None:
        workload = training(late_ms=late_every(200, 3_000), hold_every=900, hold_ms=800.0)
        gpu = workload.gpus[0]

        assert (gpu.lost_ms - gpu.starved_ms) / gpu.in_use_ms == pytest.approx(0.005, abs=0.003)
        assert causes_with_advice(watched(workload, tagged=True)) == ["input_wait"]

    def test_does_not_apply_to_all_that_a_healthy_gpu_loses(self) -> None:
        report = watched(training(late_ms=late_every(300, 1_000)), tagged=True)

        assert report.gpus[0].verdict.name is VerdictName.HEALTHY
        assert causes_with_advice(report) == []


class TestLateFirstBatch:
    def test_applies_where_the_first_batch_took_half_a_minute_of_two(self) -> None:
        report = watched(training(seconds=120, late_ms={0: 30_000}), tagged=True)

        assert report.gpus[0].verdict.name is VerdictName.HEALTHY
        assert report.gpus[0].totals.first_input_wait_ns / 1e9 == pytest.approx(30, abs=0.5)
        assert causes_with_advice(report) == ["first_input_wait"]

    def test_does_not_apply_where_it_took_five_seconds_of_them(self) -> None:
        report = watched(training(seconds=120, late_ms={0: 5_000}), tagged=True)

        assert report.gpus[0].totals.first_input_wait_ns / 1e9 == pytest.approx(5, abs=0.5)
        assert causes_with_advice(report) == []


class TestHiddenInputWait:
    def test_applies_where_a_run_waits_half_of_each_step_and_the_gpu_is_busy(self) -> None:
        workload = training(depth=0, cost_ms=50)
        totals = watched(workload, tagged=True).gpus[0].totals

        assert workload.gpus[0].starved_ms == 0
        assert totals.hidden_input_wait_ns / totals.in_use_ns == pytest.approx(0.5, abs=0.05)
        assert hides_much(totals)

    def test_does_not_apply_where_each_batch_lies_ready(self) -> None:
        assert not hides_much(watched(training(), tagged=True).gpus[0].totals)


class TestUnequalGpus:
    def test_applies_where_one_does_its_half_a_tenth_faster(self) -> None:
        workload = UnequalGpus(speeds=[220, 200], ratios=[1, 1])

        assert not one_balance(report_of(workload.train(HALF_A_MINUTE))).is_level

    def test_does_not_apply_where_their_shares_fit_their_speeds(self) -> None:
        workload = UnequalGpus(speeds=[220, 200], ratios=[11, 10])

        assert one_balance(report_of(workload.train(HALF_A_MINUTE))).is_level


def in_its_job(workload: UnequalGpus, seconds: int = HALF_A_MINUTE) -> JobImbalance:
    """The imbalance of its only job."""
    report = report_of(workload.train(seconds))
    (found,) = imbalances(report.gpus, report.runs).values()
    return found


def causes_in(workload: UnequalGpus) -> list[str]:
    """Why its slowest GPU is slow, by the names of the types."""
    return [type(cause).__name__ for slow in in_its_job(workload).slow for cause in slow.causes]


HOT = Board(clock=2 / 3, held_by=("hw_thermal_slowdown",))


class TestLowerClocks:
    def test_applies_where_heat_makes_one_of_two_alike_slower(self) -> None:
        workload = UnequalGpus(speeds=[300, 200], ratios=[1, 1], boards=[Board(), HOT])

        assert causes_in(workload) == ["LowerClocks"]

    def test_applies_where_its_clock_is_lower_without_a_reason(self) -> None:
        boards = [Board(), Board(clock=2 / 3)]
        workload = UnequalGpus(speeds=[300, 200], ratios=[1, 1], batch=1_500, boards=boards)

        assert causes_in(workload) == ["LowerClocks"]

    def test_does_not_apply_where_both_are_as_hot(self) -> None:
        workload = UnequalGpus(speeds=[300, 200], ratios=[1, 1], batch=1_500, boards=[HOT, HOT])

        assert causes_in(workload) == []


class TestOtherTenant:
    ITSELF = ProcessSample(42, None, 0.9, uid=0)

    def workload(self, sm_ratio: float) -> UnequalGpus:
        """Another user keeps the second GPU busy for this share of the time."""
        other = ProcessSample(77, None, sm_ratio, uid=1001)
        boards = [Board(processes=(self.ITSELF,)), Board(processes=(self.ITSELF, other))]
        return UnequalGpus(speeds=[300, 200], ratios=[1, 1], boards=boards)

    def test_applies_where_another_user_has_a_third_of_one_gpu(self) -> None:
        (slow,) = in_its_job(self.workload(1 / 3)).slow

        (cause,) = slow.causes
        assert isinstance(cause, OtherTenant)
        assert cause.pids == (77,)
        assert cause.times == pytest.approx(1.5, abs=0.02)

    def test_does_not_apply_where_the_user_only_holds_memory(self) -> None:
        assert causes_in(self.workload(0.01)) == []


class TestMoreWork:
    def test_applies_where_one_of_two_alike_is_given_three_fifths(self) -> None:
        workload = UnequalGpus(speeds=[200, 200], ratios=[2, 3], boards=[Board(), Board()])

        assert causes_in(workload) == ["MoreWork"]

    def test_does_not_apply_where_the_slower_one_is_given_as_much(self) -> None:
        assert causes_in(UnequalGpus(speeds=[300, 200], ratios=[1, 1])) == []


class TestSlowerBoard:
    def test_applies_to_two_models_with_even_parts(self) -> None:
        boards = [Board("NVIDIA GeForce GTX 1080 Ti"), Board("NVIDIA GeForce GTX 1080")]
        workload = UnequalGpus(speeds=[300, 200], ratios=[1, 1], boards=boards)

        assert causes_in(workload) == ["SlowerBoard"]

    def test_does_not_apply_where_two_models_are_as_fast_and_one_has_more_work(self) -> None:
        boards = [Board("NVIDIA A40"), Board("NVIDIA RTX A6000")]
        workload = UnequalGpus(speeds=[200, 200], ratios=[2, 3], boards=boards)

        assert causes_in(workload) == ["MoreWork"]
