"""Specification of advice where no tag says why a GPU was idle, and where one had no work."""

from __future__ import annotations

import pytest

from gpumon.core.accounting.suspicion import Suspicion
from gpumon.core.diagnosis.advice import advise
from gpumon.core.phase import IdleCause
from gpumon.core.report.report import Advice, GpuReport
from gpumon.core.verdict import LikelyCause
from tests.builders.report import gpu, with_totals

WAIT, UNKNOWN = IdleCause.INPUT_WAIT, IdleCause.UNKNOWN


def only(*gpus: GpuReport) -> Advice:
    (found,) = advise(gpus, ())
    return found


class TestASpeedUp:
    @pytest.mark.parametrize("pauses", [3, 8, 200])
    @pytest.mark.parametrize("probability", [None, 0.5, 0.99])
    def test_is_never_promised_for_what_is_only_suspected(
        self, pauses: int, probability: float | None
    ) -> None:
        suspected = gpu(40, {UNKNOWN: 20}, suspected_s=20, pauses=pauses)
        if probability is not None:
            suspicion = Suspicion(probability, (LikelyCause.LATE_INPUT,))
            suspected = with_totals(suspected, suspicion=suspicion)

        found = only(suspected)

        assert found.speedup_upper_bound is None
        assert "worker" not in found.text

    def test_is_not_promised_for_a_level(self) -> None:
        assert only(gpu(20, {UNKNOWN: 40})).speedup_upper_bound is None

    def test_is_promised_for_what_tags_prove_however_few_and_long_its_pauses(self) -> None:
        assert only(gpu(600, {WAIT: 600}, pauses=3)).speedup_upper_bound == 2.0


class TestAGpuWithoutWork:
    def test_is_advised_on_last_and_loses_nothing(self) -> None:
        unused = gpu(0, {IdleCause.NOT_IN_USE: 600}, index=1)

        found = advise([unused, gpu(40, {WAIT: 20})], ())

        assert [advice.cause for advice in found] == ["input_wait", "not_in_use"]
        assert (found[1].lost_seconds, found[1].speedup_upper_bound) == (0.0, 1.0)
        assert found[1].gpus == ("1",)
