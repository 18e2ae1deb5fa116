"""Specification of the suspicion that pauses which nothing explains wait for input."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import given

from gpumon.core.judge.verdict_rules import judge
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.settings.input_model import CENTRES, SCALES, WEIGHTS
from gpumon.core.time.cycles import PauseShape
from gpumon.core.time.ledger import GpuLedger
from gpumon.core.time.suspicion import Suspicion, input_probability
from gpumon.core.time.totals import GpuTotals
from gpumon.core.verdict import LikelyCause, VerdictName
from tests.builders_cycles import cycles, on_and_off, waits_of_a_person
from tests.builders_time import every, s, settled

WAVES = [(4, 3)] * 60
"""Workers that finish together, to the eye: short bursts and pauses, all alike."""
CHECKPOINTS = [(300, 12 + k % 3) for k in range(12)]


def totals_of(some: Iterable[tuple[int, int]]) -> GpuTotals:
    """A GPU that works and pauses for so many whole seconds in turn."""
    ledger = GpuLedger()
    ledger.observe(every(1.0, on_and_off(some)))
    return ledger.snapshot()


def suspicion_in(totals: GpuTotals) -> Suspicion:
    assert totals.suspicion is not None
    return totals.suspicion


class TestTheModel:
    def test_weighs_features_of_the_shape_and_no_others(self) -> None:
        assert set(CENTRES) == set(SCALES) == set(PauseShape._fields)
        assert {name for names in WEIGHTS for name in names} <= set(CENTRES)
        assert all(scale > 0 for scale in SCALES.values())

    @pytest.mark.parametrize("lacking", PauseShape._fields)
    def test_takes_a_feature_that_is_no_number_for_one_that_says_nothing(
        self, lacking: str
    ) -> None:
        shape = suspicion_in(totals_of(WAVES)).shape
        assert shape is not None

        without = input_probability(shape._replace(**{lacking: float("nan")}))

        centred = input_probability(shape._replace(**{lacking: CENTRES[lacking]}))
        assert without == centred
        assert 0.0 < without < 1.0

    def test_is_never_certain_however_far_off_a_shape_is(self) -> None:
        for far in (-1e9, 1e9):
            assert 0.0 < input_probability(PauseShape(*[far] * len(PauseShape._fields))) < 1.0


class TestPausesOfALateLoader:
    def test_are_suspected_and_all_of_them_counted(self) -> None:
        totals = totals_of(WAVES)
        verdict = judge(totals)

        assert verdict.name is VerdictName.STARVATION_SUSPECTED
        assert verdict.likely_causes == (LikelyCause.LATE_INPUT,)
        assert totals.suspected_ns == totals.gaps.total_ns
        assert totals.starved_now

    def test_are_told_by_when_the_last_of_them_began(self) -> None:
        began_ns = suspicion_in(totals_of(WAVES)).began_ns

        assert began_ns == tuple(s(7 * k + 4) for k in (57, 58, 59))


class TestOtherPauses:
    def test_that_come_every_so_many_steps_are_told_and_not_suspected(self) -> None:
        totals = totals_of(CHECKPOINTS)
        verdict = judge(totals._replace(low_ns=totals.in_use_ns // 10))

        assert verdict.name is VerdictName.HEALTHY or verdict.name is VerdictName.PARTIAL
        assert suspicion_in(totals).likely_causes[0] is LikelyCause.EVERY_N_STEPS
        assert totals.suspected_ns == 0

    def test_between_requests_are_irregular_and_not_suspected(self) -> None:
        draws = random.Random(3)
        bursts = [max(1, round(3 * draws.lognormvariate(0.0, 1.0))) for _ in range(150)]
        waits = [round(one) for one in waits_of_a_person(150)]
        totals = totals_of(zip(bursts, waits, strict=True))

        assert judge(totals).name is VerdictName.PARTIAL
        assert suspicion_in(totals).likely_causes[0] is LikelyCause.REQUESTS
        assert totals.irregular_ns > totals.suspected_ns

    @pytest.mark.parametrize("pauses", [0, 1, 2])
    def test_that_are_too_few_are_not_judged(self, pauses: int) -> None:
        assert totals_of([(9, 9)] * pauses).suspicion is None


class TestALogThatChangesItsJob:
    def test_is_told_by_the_worse_one_whichever_came_first(self) -> None:
        between = [(1, 90)]  # a minute of silence ends a job

        for some in (WAVES + between + CHECKPOINTS, CHECKPOINTS + between + WAVES):
            totals = totals_of(some)

            assert suspicion_in(totals).likely_causes == (LikelyCause.LATE_INPUT,)
            assert s(150) < totals.suspected_ns < s(200)


@given(cycles())
def test_stretches_hold_what_is_suspected_and_no_more(some: list[tuple[int, int]]) -> None:
    totals = settled(every(1.0, on_and_off(some)))

    lengths_ns = (end_ns - start_ns for start_ns, end_ns in totals.starved_intervals)
    assert sum(lengths_ns) == totals.suspected_ns
    assert totals.suspected_ns + totals.irregular_ns <= totals.gaps.total_ns


def test_what_was_suspected_stays_so() -> None:
    ledger, most_ns = GpuLedger(), 0
    for sample in every(1.0, on_and_off(WAVES[:20] + CHECKPOINTS)):
        ledger.observe([sample])
        now_ns = ledger.snapshot().suspected_ns
        assert now_ns >= most_ns
        most_ns = now_ns
    assert most_ns > 0
    assert DEFAULT_SETTINGS.suspected_from == 0.5
