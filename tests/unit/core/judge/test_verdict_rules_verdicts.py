"""Specification of the verdicts, in the order in which they are tried."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gpumon.core.join.idle_sharing import SharedIdle
from gpumon.core.judge.verdict_rules import judge
from gpumon.core.phase import IdleCause
from gpumon.core.sample import BusySample
from gpumon.core.time.ledger import GpuLedger
from gpumon.core.time.totals import GpuTotals
from gpumon.core.verdict import Pattern, Severity, Verdict, VerdictName
from tests.builders_time import every, rhythm, settled


def verdict(ratios: Sequence[float], period_s: float = 1.0) -> Verdict:
    return judge(settled(every(period_s, ratios)))


def tagged(ratios: Sequence[float], cause: IdleCause, explained: float = 1.0) -> Verdict:
    """The verdict on samples of which a share of the idle time is explained by a phase."""
    ledger = GpuLedger()
    for sample in every(1.0, ratios):
        idle_ns = sample.end_ns - sample.start_ns
        idle_ns -= round(idle_ns * sample.busy_ratio)
        ledger.observe_shared(sample, SharedIdle({cause: int(idle_ns * explained)}, 0, 0))
    ledger.end_job()
    return judge(ledger.snapshot())


class TestNotInUse:
    @pytest.mark.parametrize("ratios", [[], [0.0] * 100, [1.0] * 9 + [0.0] * 81])
    def test_is_less_than_ten_seconds_of_use_and_a_tenth_of_the_time(
        self, ratios: list[float]
    ) -> None:
        found = verdict(ratios)

        assert found.name is VerdictName.NOT_IN_USE
        assert found.pattern is Pattern.UNUSED
        assert found.severity is Severity.NONE


class TestTooShortToJudge:
    @pytest.mark.parametrize("ratios", [[1.0], [1.0] * 9, [1.0] * 9 + [0.0] * 80])
    def test_is_less_than_ten_seconds_of_use_and_more_than_a_tenth_of_the_time(
        self, ratios: list[float]
    ) -> None:
        found = verdict(ratios)

        assert found.name is VerdictName.TOO_SHORT_TO_JUDGE
        assert found.pattern is Pattern.BUSY
        assert found.severity is Severity.NONE


class TestHealthy:
    def test_is_a_gpu_that_loses_less_than_five_percent(self) -> None:
        assert verdict([0.96] * 60).name is VerdictName.HEALTHY

    def test_is_one_break_in_a_busy_run(self) -> None:
        assert verdict([1.0] * 50 + [0.0] * 20 + [1.0] * 50).name is VerdictName.HEALTHY

    def test_is_not_one_long_checkpoint_that_a_tag_proves(self) -> None:
        ratios = [1.0] * 50 + [0.0] * 20 + [1.0] * 50

        assert tagged(ratios, IdleCause.CHECKPOINT).name is VerdictName.STALLED


class TestStarved:
    def test_is_a_loss_of_five_percent_that_tags_prove_to_be_waits_for_input(self) -> None:
        found = tagged([0.5] * 60, IdleCause.INPUT_WAIT)

        assert found.name is VerdictName.STARVED
        assert found.main_cause is IdleCause.INPUT_WAIT
        assert found.severity is Severity.HIGH
        assert found.starved_ratio == pytest.approx(0.5)

    @pytest.mark.parametrize("explained", [0.7, 0.3])
    def test_is_given_however_much_nothing_explains(self, explained: float) -> None:
        """What is unknown is in use, too: no second of it can make the proved share smaller."""
        found = tagged([0.5] * 60, IdleCause.INPUT_WAIT, explained=explained)

        assert found.coverage_ratio == pytest.approx(0.5 + explained / 2)
        assert found.name is VerdictName.STARVED
        assert found.main_cause is (IdleCause.INPUT_WAIT if explained > 0.5 else IdleCause.UNKNOWN)


class TestStalled:
    def test_is_a_loss_proved_to_be_mainly_something_else(self) -> None:
        found = tagged([0.85] * 60, IdleCause.VALIDATION)

        assert found.name is VerdictName.STALLED
        assert found.main_cause is IdleCause.VALIDATION
        assert found.severity is Severity.MODERATE


class TestStarvationSuspected:
    def test_is_three_pauses_that_nothing_explains(self) -> None:
        found = verdict([*rhythm(4, 2, 3), *[1.0] * 4])

        assert found.name is VerdictName.STARVATION_SUSPECTED
        assert found.pattern is Pattern.BURSTY
        assert found.starved_ratio == pytest.approx(6 / 22)

    def test_is_not_two(self) -> None:
        assert verdict([*rhythm(2, 8, 2), 1.0]).name is VerdictName.PARTIAL

    def test_is_not_a_rhythm_of_checkpoints_that_tags_explain(self) -> None:
        found = tagged([*rhythm(4, 2, 6), *[1.0] * 4], IdleCause.CHECKPOINT)

        assert found.name is VerdictName.STALLED


class TestALossInFewPauses:
    """Fewer than eight prove nothing: as many may be checkpoints, or somebody else's turns."""

    SIX = (*rhythm(60, 30, 6), *[1.0] * 30)
    TWO_AND_A_BLIP = (*rhythm(20, 25, 2), 1.0, *[0.0] * 25, *[1.0] * 20)

    def test_is_moderate_however_much_is_lost(self) -> None:
        found = verdict(self.SIX)

        assert found.name is VerdictName.STARVATION_SUSPECTED
        assert found.lost_ratio == pytest.approx(180 / 570)
        assert found.severity is Severity.MODERATE

    def test_is_high_from_the_eighth_on(self) -> None:
        assert verdict([*rhythm(60, 30, 7), *[1.0] * 30]).severity is Severity.MODERATE
        assert verdict([*rhythm(60, 30, 8), *[1.0] * 30]).severity is Severity.HIGH

    def test_is_no_pattern_where_a_blip_splits_one_of_two(self) -> None:
        found = verdict(self.TWO_AND_A_BLIP)

        assert found.lost_ratio == pytest.approx(75 / 136)
        assert found.name is VerdictName.PARTIAL
        assert found.severity is Severity.MODERATE
        assert found.starved_ratio == 0.0

    def test_is_high_where_tags_prove_it(self) -> None:
        assert tagged(self.SIX, IdleCause.INPUT_WAIT).severity is Severity.HIGH
        assert tagged(self.SIX, IdleCause.CHECKPOINT).severity is Severity.HIGH

    def test_is_high_where_most_of_it_is_a_level(self) -> None:
        found = verdict([*[0.5] * 300, *[0.0] * 20, *[0.5] * 300])

        assert found.name is VerdictName.PARTIAL
        assert found.severity is Severity.HIGH

    def test_has_no_probability_before_there_is_a_model(self) -> None:
        found = verdict(self.SIX)

        assert (found.input_probability, found.likely_causes) == (None, None)


class TestPartial:
    def test_is_a_flat_level_of_which_utilisation_alone_cannot_tell(self) -> None:
        found = verdict([0.5] * 60)

        assert found.name is VerdictName.PARTIAL
        assert found.pattern is Pattern.PARTIAL
        assert found.starved_ratio == 0.0


class TestThePattern:
    def test_of_a_busy_gpu_is_busy(self) -> None:
        assert verdict([1.0] * 20).pattern is Pattern.BUSY


class TestNoFiguresAreMadeUp:
    def test_without_any_use_there_is_no_ratio(self) -> None:
        found = judge(GpuTotals())

        assert found.lost_ratio is None
        assert found.coverage_ratio is None

    def test_a_starved_share_never_exceeds_the_whole(self) -> None:
        ledger = GpuLedger()
        ledger.observe(every(1.0, [1.0]))
        for sample in every(1.0, [0.0] * 200, start_s=1.0):
            waits = SharedIdle({IdleCause.INPUT_WAIT: sample.end_ns - sample.start_ns}, 0, 0)
            ledger.observe_shared(BusySample(*sample), waits)

        found = judge(ledger.snapshot())

        assert found.starved_ratio == pytest.approx(200 / 201)
