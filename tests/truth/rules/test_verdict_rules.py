"""Truth of the verdicts' rules: where each must speak, and where it must not, just beside.

Whether a loader was late, and for how long, is a fact of each workload's model;
the detector sees a driver's windows, and a training run's tags where it has some.
"""

from __future__ import annotations

import itertools

import pytest

from gpumon.core.verdict import VerdictName
from tests.truth.rules.small_workloads import late_every, training
from tests.truth.rules.watching import verdict_in_log, verdict_with_tags

WAVES = training(late_ms=late_every(300, 3_000))
"""Every half minute a batch is late: 7 % starved."""
SELDOM = training(late_ms=late_every(300, 1_000))
"""As often, and 2.5 % starved."""
CHECKPOINTS = training(hold_every=300, hold_ms=3_000.0)
"""Every half minute a checkpoint of three seconds: 8 % lost, nothing starved."""

HOUR = training(seconds=3_600, begins_s=0)
"""An hour at work, all of it."""


class TestHanging:
    def test_speaks_of_a_run_whose_next_batch_has_not_come_for_a_minute(self) -> None:
        workload = training(steps=300, seconds=62, late_ms={200: 42_000})

        assert verdict_with_tags(workload, for_ms=61_000) is VerdictName.HANGING

    def test_is_silent_before_half_a_minute_and_once_the_batch_has_come(self) -> None:
        workload = training(steps=300, seconds=62, late_ms={200: 42_000})

        assert verdict_with_tags(workload, for_ms=45_000) is not VerdictName.HANGING
        late = training(steps=400, seconds=80, late_ms={200: 35_000})
        assert verdict_with_tags(late) is not VerdictName.HANGING


class TestTooFewSamples:
    def test_speaks_of_a_log_of_six_glances_ten_minutes_apart(self) -> None:
        assert verdict_in_log(HOUR, period_s=600) is VerdictName.TOO_FEW_SAMPLES

    def test_speaks_of_a_log_that_ended_after_nineteen_seconds(self) -> None:
        assert verdict_in_log(training(seconds=19, begins_s=0)) is VerdictName.TOO_FEW_SAMPLES

    def test_is_silent_on_one_that_has_a_sample_a_minute(self) -> None:
        assert verdict_in_log(HOUR, period_s=60) is VerdictName.HEALTHY

    def test_is_silent_on_one_that_went_on_for_a_few_seconds_more(self) -> None:
        workload = training(seconds=25, begins_s=0)

        assert verdict_in_log(workload) is not VerdictName.TOO_FEW_SAMPLES

    def test_is_silent_on_what_is_watched_live(self) -> None:
        workload = training(seconds=19, begins_s=0)

        assert verdict_with_tags(workload) is not VerdictName.TOO_FEW_SAMPLES


class TestNotInUse:
    def test_speaks_of_a_run_that_worked_for_eight_seconds_of_two_minutes(self) -> None:
        workload = training(steps=80, seconds=120)

        assert workload.gpus[0].busy_ms == 8_000
        assert verdict_in_log(workload) is VerdictName.NOT_IN_USE

    def test_is_silent_on_one_that_worked_for_twelve(self) -> None:
        workload = training(steps=120, seconds=120)

        assert workload.gpus[0].busy_ms == 12_000
        assert verdict_in_log(workload) is not VerdictName.NOT_IN_USE


class TestTooShortToJudge:
    def test_speaks_of_a_run_that_worked_for_eight_seconds_of_one_minute(self) -> None:
        workload = training(steps=80, seconds=60)

        assert workload.gpus[0].busy_ms == 8_000
        assert verdict_in_log(workload) is VerdictName.TOO_SHORT_TO_JUDGE

    def test_speaks_of_one_that_waited_for_its_first_batch_for_most_of_its_time(self) -> None:
        workload = training(steps=80, seconds=60, late_ms={0: 30_000})

        assert workload.gpus[0].busy_ms == 8_000
        assert verdict_with_tags(workload) is VerdictName.TOO_SHORT_TO_JUDGE

    def test_is_silent_on_one_that_worked_for_twelve(self) -> None:
        workload = training(steps=120, seconds=60)

        assert workload.gpus[0].busy_ms == 12_000
        assert verdict_in_log(workload) is VerdictName.HEALTHY


class TestHealthy:
    def test_speaks_where_a_loader_is_late_for_less_than_five_percent(self) -> None:
        assert 0.02 < SELDOM.gpus[0].starved_ratio < 0.03
        assert verdict_in_log(SELDOM) is VerdictName.HEALTHY
        assert verdict_with_tags(SELDOM) is VerdictName.HEALTHY

    def test_speaks_of_a_single_break_that_nothing_proves(self) -> None:
        workload = training(hold_every=900, hold_ms=20_000.0, steps=1_500)

        assert workload.gpus[0].lost_ms == pytest.approx(20_000, abs=200)
        assert verdict_in_log(workload) is VerdictName.HEALTHY

    def test_is_silent_where_it_is_late_for_more(self) -> None:
        assert 0.06 < WAVES.gpus[0].starved_ratio < 0.08
        assert verdict_in_log(WAVES) is not VerdictName.HEALTHY
        assert verdict_with_tags(WAVES) is not VerdictName.HEALTHY


class TestStarved:
    def test_speaks_where_tags_prove_that_a_loader_is_late(self) -> None:
        assert WAVES.is_starved
        assert verdict_with_tags(WAVES) is VerdictName.STARVED

    def test_speaks_of_stalls_too_short_to_see(self) -> None:
        workload = training(cost_ms=120)

        assert 0.15 < workload.gpus[0].starved_ratio < 0.18
        assert verdict_with_tags(workload) is VerdictName.STARVED

    def test_is_silent_where_as_much_is_lost_to_checkpoints(self) -> None:
        assert CHECKPOINTS.gpus[0].lost_ms >= WAVES.gpus[0].starved_ms
        assert verdict_with_tags(CHECKPOINTS) is not VerdictName.STARVED

    def test_is_silent_without_tags(self) -> None:
        assert verdict_in_log(WAVES) is not VerdictName.STARVED


class TestStalled:
    def test_speaks_where_tags_prove_that_checkpoints_cost_eight_percent(self) -> None:
        assert CHECKPOINTS.gpus[0].starved_ms == 0
        assert verdict_with_tags(CHECKPOINTS) is VerdictName.STALLED

    def test_is_silent_where_they_cost_three(self) -> None:
        workload = training(hold_every=300, hold_ms=1_000.0)

        assert 0.02 < workload.gpus[0].lost_ms / workload.gpus[0].in_use_ms < 0.04
        assert verdict_with_tags(workload) is not VerdictName.STALLED

    def test_is_silent_where_nothing_is_proved(self) -> None:
        assert verdict_in_log(CHECKPOINTS) is not VerdictName.STALLED

    def test_is_silent_where_a_loader_is_late_as_well(self) -> None:
        workload = training(hold_every=300, hold_ms=3_000.0, late_ms=late_every(250, 3_000))

        assert workload.is_starved
        assert verdict_with_tags(workload) is not VerdictName.STALLED


class TestStarvationSuspected:
    def test_speaks_of_many_pauses_of_a_loader_that_is_late_after_bursts_that_vary(self) -> None:
        late_at = itertools.accumulate(itertools.islice(itertools.cycle((30, 50, 80)), 40))
        workload = training(late_ms=dict.fromkeys(late_at, 4_000), seconds=400)

        assert len(workload.gpus[0].starved) > 30
        assert verdict_in_log(workload) is VerdictName.STARVATION_SUSPECTED

    def test_is_silent_on_three_pauses_of_a_late_loader(self) -> None:
        workload = training(late_ms={300: 6_000, 500: 6_000, 700: 6_000}, seconds=100)

        assert len(workload.gpus[0].starved) == 3
        assert verdict_in_log(workload) is VerdictName.PARTIAL

    @pytest.mark.parametrize("late_ms", [9_000, 30_000])
    def test_is_silent_on_two_though_they_lose_as_much(self, late_ms: int) -> None:
        workload = training(late_ms={100: late_ms, 200: late_ms}, seconds=100)

        assert len(workload.gpus[0].starved) == 2
        assert workload.gpus[0].starved_ratio > 0.15
        assert verdict_in_log(workload) is not VerdictName.STARVATION_SUSPECTED


class TestPartial:
    def test_speaks_of_a_flat_level_of_which_no_one_can_show(self) -> None:
        workload = training(cost_ms=160)

        assert workload.gpus[0].lost_ms / workload.gpus[0].in_use_ms > 0.3
        assert verdict_in_log(workload) is VerdictName.PARTIAL

    def test_is_silent_on_a_level_that_loses_little(self) -> None:
        workload = training(cost_ms=103, depth=0)

        assert 0.03 < workload.gpus[0].lost_ms / workload.gpus[0].in_use_ms < 0.05
        assert verdict_in_log(workload) is not VerdictName.PARTIAL

    def test_is_silent_where_tags_show(self) -> None:
        assert verdict_with_tags(training(cost_ms=160)) is not VerdictName.PARTIAL
