"""Specification of the suspicion that unexplained pauses are waits for input."""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.accounting.cycles import PauseShape
from gpumon.core.accounting.ledger import GpuLedger
from gpumon.core.accounting.suspicion import Suspicion, input_probability
from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.diagnosis.verdict_rules import diagnose
from gpumon.core.settings.input_model import (
    LIKELY,
    PRIOR,
    RARE,
)
from gpumon.core.verdict import LikelyCause, VerdictName
from tests.builders.cycles import cycles, late_waves, on_and_off, waits_of_a_person
from tests.builders.time import every, s, settled

WAVES = late_waves(60)
"""A prefetch queue that runs dry: short pauses after bursts that vary."""
CHECKPOINTS = [(300, 12 + k % 3) for k in range(12)]


def totals_of(some: Iterable[tuple[int, int]]) -> GpuTotals:
    """A GPU that works and pauses for so many whole seconds in turn."""
    ledger = GpuLedger()
    ledger.observe(every(1.0, on_and_off(some)))
    return ledger.snapshot()


def suspicion_in(totals: GpuTotals) -> Suspicion:
    assert totals.suspicion is not None
    return totals.suspicion


USUAL = PauseShape(
    pauses=60, grain_s=0.2, burst_s=5.0, burst_width_s=2.0, pause_s=3.0, pause_width_s=1.0,
    paused_ratio=0.3, level_ratio=0.01,
)  # fmt: skip
shapes = st.builds(
    PauseShape,
    pauses=st.integers(3, 10_000),
    grain_s=st.sampled_from([0.05, 0.2, 1.0, 5.0]),
    burst_s=st.floats(0.05, 5_000),
    burst_width_s=st.floats(0, 5_000),
    pause_s=st.floats(0.05, 5_000),
    pause_width_s=st.floats(0, 5_000),
    paused_ratio=st.floats(0, 1),
    level_ratio=st.floats(0, 1),
)


class TestTheModel:
    @given(shapes, st.floats(0, 5_000))
    def test_finds_equal_bursts_never_likelier_than_varying_ones(
        self, shape: PauseShape, more_s: float
    ) -> None:
        equal = shape._replace(burst_width_s=0.0)
        varying = shape._replace(burst_width_s=shape.burst_width_s + more_s)

        assert input_probability(equal) <= input_probability(varying)

    def test_separates_late_loaders_from_checkpoints(self) -> None:
        late = [
            USUAL._replace(burst_s=burst_s, burst_width_s=0.4 * burst_s, grain_s=grain_s)
            for burst_s in (3.0, 6.0, 10.0)
            for grain_s in (0.2, 0.5)
        ]
        saves = [
            USUAL._replace(burst_s=burst_s, burst_width_s=0.001 * burst_s, paused_ratio=0.1)
            for burst_s in (15.0, 60.0, 300.0)
        ]

        means = [statistics.fmean(map(input_probability, some)) for some in (late, saves)]
        assert means[0] - means[1] >= 0.5

    @pytest.mark.parametrize("pauses", [3, 5])
    def test_abstains_if_pauses_are_few(self, pauses: int) -> None:
        assert input_probability(USUAL) == LIKELY
        assert input_probability(USUAL._replace(pauses=pauses)) == PRIOR

    def test_abstains_if_bursts_are_as_short_as_a_sample_or_pauses_cost_too_little(self) -> None:
        assert input_probability(USUAL._replace(grain_s=6.0)) == PRIOR
        assert input_probability(USUAL._replace(paused_ratio=0.049)) <= RARE


class TestOtherPauses:
    def test_are_reported_and_not_suspected_if_they_come_every_n_steps(self) -> None:
        totals = totals_of(CHECKPOINTS)
        verdict = diagnose(totals._replace(low_ns=totals.in_use_ns // 10))

        assert verdict.name is VerdictName.HEALTHY or verdict.name is VerdictName.PARTIAL
        assert suspicion_in(totals).likely_causes[0] is LikelyCause.EVERY_N_STEPS
        assert totals.suspected_ns == 0

    def test_between_seldom_requests_are_not_suspected(self) -> None:
        draws = random.Random(3)
        bursts = [max(1, round(3 * draws.lognormvariate(0.0, 1.0))) for _ in range(150)]
        waits = [min(55, round(3 * one)) for one in waits_of_a_person(150)]
        totals = totals_of(zip(bursts, waits, strict=True))

        assert diagnose(totals).name is VerdictName.PARTIAL
        assert LikelyCause.REQUESTS in suspicion_in(totals).likely_causes
        assert totals.suspected_ns == 0


class TestALogThatChangesItsJob:
    def test_is_diagnosed_by_the_worse_one_whichever_came_first(self) -> None:
        between = [(1, 90)]  # a minute of silence ends a job

        for some in (WAVES + between + CHECKPOINTS, CHECKPOINTS + between + WAVES):
            totals = totals_of(some)

            assert suspicion_in(totals).likely_causes[0] is LikelyCause.LATE_INPUT
            assert s(150) < totals.suspected_ns < s(200)


@given(cycles())
def test_pauses_hold_what_is_suspected_once_and_no_more(some: list[tuple[int, int]]) -> None:
    totals = settled(every(1.0, on_and_off(some)))

    lengths_ns = (end_ns - start_ns for start_ns, end_ns in totals.starved_intervals)
    assert sum(lengths_ns) == totals.suspected_ns
    assert totals.suspected_ns + totals.irregular_ns <= totals.gaps.total_ns
    assert totals.pauses.count <= totals.gaps.count
    assert totals.pauses.total_ns == totals.gaps.total_ns
    assert totals.pauses.longest_ns >= totals.gaps.longest_ns
