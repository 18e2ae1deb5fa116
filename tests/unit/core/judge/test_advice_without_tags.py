"""Specification of advice where no tag says why a GPU was idle, and where one had no work."""

from __future__ import annotations

import pytest

from gpumon.core.judge.advice import advise
from gpumon.core.phase import IdleCause
from gpumon.core.report.report import Advice, GpuReport
from gpumon.core.time.suspicion import Suspicion
from gpumon.core.verdict import LikelyCause
from tests.builders_report import gpu, with_totals

WAIT, UNKNOWN = IdleCause.INPUT_WAIT, IdleCause.UNKNOWN


def only(*gpus: GpuReport) -> Advice:
    (found,) = advise(gpus, ())
    return found


class TestASpeedUp:
    @pytest.mark.parametrize(
        ("seconds", "pauses", "bound"),
        [(20, 8, 1.5), (20, 7, None), (20, 3, None), (300, 10, 8.5), (310, 10, None)],
        ids=["eight", "seven", "three", "as long as half a minute", "longer"],
    )
    def test_is_promised_for_ending_many_short_pauses_that_are_suspected(
        self, seconds: float, pauses: int, bound: float | None
    ) -> None:
        found = only(gpu(40, {UNKNOWN: seconds}, suspected_s=seconds, pauses=pauses))

        assert found.speedup_upper_bound == bound

    @pytest.mark.parametrize(("probability", "bound"), [(0.69, None), (0.7, 1.5), (0.99, 1.5)])
    def test_is_promised_by_the_probability_where_one_is_known(
        self, probability: float, bound: float | None
    ) -> None:
        few_and_long = gpu(40, {UNKNOWN: 20}, suspected_s=20, pauses=3)
        suspicion = Suspicion(probability, (LikelyCause.LATE_INPUT,))

        assert only(with_totals(few_and_long, suspicion=suspicion)).speedup_upper_bound == bound

    def test_is_not_promised_for_a_level(self) -> None:
        assert only(gpu(20, {UNKNOWN: 40})).speedup_upper_bound is None

    def test_of_several_gpus_is_that_of_those_it_is_promised_for(self) -> None:
        few = gpu(10, {UNKNOWN: 90}, suspected_s=90, pauses=3)
        many = gpu(40, {UNKNOWN: 20}, suspected_s=20, pauses=20, index=1)

        assert only(few, many).speedup_upper_bound == 1.5

    def test_is_promised_for_what_tags_prove_however_few_and_long_its_pauses(self) -> None:
        assert only(gpu(600, {WAIT: 600}, pauses=3)).speedup_upper_bound == 2.0


class TestAGpuWithoutWork:
    def test_is_advised_on_last_and_loses_nothing(self) -> None:
        unused = gpu(0, {IdleCause.NOT_IN_USE: 600}, index=1)

        found = advise([unused, gpu(40, {WAIT: 20})], ())

        assert [advice.cause for advice in found] == ["input_wait", "not_in_use"]
        assert (found[1].lost_seconds, found[1].speedup_upper_bound) == (0.0, 1.0)
        assert found[1].gpus == ("1",)
