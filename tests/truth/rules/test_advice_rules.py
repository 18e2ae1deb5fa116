"""Truth of the advice's rules: what is worth a word, and what is not, just beside."""

from __future__ import annotations

import pytest

from gpumon.core.judge.advice import hides_much
from gpumon.core.report.report import Report
from gpumon.core.verdict import VerdictName
from gpumon.pipeline.reports import report_of
from tests.builders_report import one_balance
from tests.builders_unequal import UnequalWorld
from tests.truth.rules.small_worlds import late_every, training
from tests.truth.rules.watching import in_log, watched
from tests.truth.worlds import World

HALF_A_MINUTE = 30


def causes_with_advice(report: Report) -> list[str]:
    return [advice.cause for advice in report.advice]


class TestWorthAChange:
    def test_speaks_of_checkpoints_that_cost_two_percent_beside_a_late_loader(self) -> None:
        world = training(late_ms=late_every(200, 3_000), hold_every=900, hold_ms=3_500.0)
        gpu = world.gpus[0]

        assert (gpu.lost_ms - gpu.starved_ms) / gpu.in_use_ms == pytest.approx(0.02, abs=0.005)
        assert causes_with_advice(watched(world, tagged=True)) == ["input_wait", "checkpoint"]

    def test_is_silent_on_checkpoints_that_cost_half_a_percent(self) -> None:
        world = training(late_ms=late_every(200, 3_000), hold_every=900, hold_ms=800.0)
        gpu = world.gpus[0]

        assert (gpu.lost_ms - gpu.starved_ms) / gpu.in_use_ms == pytest.approx(0.005, abs=0.003)
        assert causes_with_advice(watched(world, tagged=True)) == ["input_wait"]

    def test_is_silent_on_all_that_a_healthy_gpu_loses(self) -> None:
        report = watched(training(late_ms=late_every(300, 1_000)), tagged=True)

        assert report.gpus[0].verdict.name is VerdictName.HEALTHY
        assert causes_with_advice(report) == []


class TestLateFirstBatch:
    def test_speaks_where_the_first_batch_took_half_a_minute_of_two(self) -> None:
        report = watched(training(seconds=120, late_ms={0: 30_000}), tagged=True)

        assert report.gpus[0].verdict.name is VerdictName.HEALTHY
        assert report.gpus[0].totals.first_input_wait_ns / 1e9 == pytest.approx(30, abs=0.5)
        assert causes_with_advice(report) == ["first_input_wait"]

    def test_is_silent_where_it_took_five_seconds_of_them(self) -> None:
        report = watched(training(seconds=120, late_ms={0: 5_000}), tagged=True)

        assert report.gpus[0].totals.first_input_wait_ns / 1e9 == pytest.approx(5, abs=0.5)
        assert causes_with_advice(report) == []


class TestHiddenInputWait:
    def test_speaks_where_a_training_waits_for_half_of_each_step_and_the_gpu_never_feels_it(
        self,
    ) -> None:
        world = training(depth=0, cost_ms=50)
        totals = watched(world, tagged=True).gpus[0].totals

        assert world.gpus[0].starved_ms == 0
        assert totals.hidden_input_wait_ns / totals.in_use_ns == pytest.approx(0.5, abs=0.05)
        assert hides_much(totals)

    def test_is_silent_where_each_batch_lies_ready(self) -> None:
        assert not hides_much(watched(training(), tagged=True).gpus[0].totals)


class TestPromisedSpeed:
    """The truth is the training without its late batches: it ends sooner by what they cost."""

    @staticmethod
    def promised(world: World) -> float | None:
        """The same of its log, and of the daemon that watches it untagged."""
        of_log, live = ([*one.advice] for one in (in_log(world), watched(world, tagged=False)))
        assert [one.cause for one in of_log] == [one.cause for one in live] == ["unknown"]
        bounds = of_log[0].speedup_upper_bound, live[0].speedup_upper_bound
        assert bounds[0] is None or bounds[0] == pytest.approx(bounds[1], rel=0.02)
        assert (bounds[0] is None) is (bounds[1] is None)
        return bounds[0]

    def test_speaks_of_many_short_waits_and_says_at_least_what_can_be_won(self) -> None:
        world = training(late_ms=late_every(100, 5_000))
        won = 1 / (1 - world.gpus[0].starved_ratio)

        bound = self.promised(world)

        assert bound is not None
        assert 0.99 * won <= bound < 1.1 * won

    def test_is_silent_where_they_are_seven(self) -> None:
        world = training(late_ms=late_every(100, 5_000, until=800))

        assert len(world.gpus[0].starved) == 7
        assert self.promised(world) is None

    def test_is_silent_where_a_blip_would_make_them_eight(self) -> None:
        late_ms = {**late_every(100, 14_000, until=800), 701: 14_000}
        world = training(late_ms=late_ms, seconds=300)

        assert len(world.gpus[0].starved) == 8
        assert self.promised(world) is None

    def test_is_silent_where_they_are_longer_than_half_a_minute(self) -> None:
        world = training(late_ms=late_every(100, 35_000), seconds=600)

        assert len(world.gpus[0].starved) > 8
        assert self.promised(world) is None


class TestUnequalGpus:
    def test_speaks_where_one_does_its_half_a_tenth_faster(self) -> None:
        world = UnequalWorld(speeds=[220, 200], ratios=[1, 1])

        assert not one_balance(report_of(world.train(HALF_A_MINUTE))).is_level

    def test_is_silent_where_their_shares_fit_their_speeds(self) -> None:
        world = UnequalWorld(speeds=[220, 200], ratios=[11, 10])

        assert one_balance(report_of(world.train(HALF_A_MINUTE))).is_level
