"""Specification of the sentences on GPUs that wait for another rank of their job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.core.accounting.rank_wait import SUSPENDED, RankWait
from gpumon.core.diagnosis.rank_advice import (
    late_rank_advice,
    wait_in_percent,
    wait_in_time,
    waits_much,
)
from gpumon.core.phase import IdleCause
from gpumon.core.report.report import GpuReport
from gpumon.core.verdict import Severity, VerdictName
from gpumon.outlets.text.headline import verdict_line
from tests.builders.report import gpu, rank_of, report, with_totals
from tests.builders.time import s

LATE = RankWait("train-r2", 2, IdleCause.INPUT_WAIT.value)
RUNS = tuple(rank_of(rank, 0.9) for rank in range(3))


def waiting(
    low_s: float, high_s: float, *, index: int = 0, idle_s: float = 0.0, wait: RankWait = LATE
) -> GpuReport:
    """A GPU in use for 100 s that waited for another rank for so long while it read as busy."""
    idle = {IdleCause.INPUT_WAIT: idle_s} if idle_s else {}
    one = with_totals(
        gpu(100 - idle_s, idle, index=index),
        rank_wait_low_ns=s(low_s),
        rank_wait_high_ns=s(high_s),
    )
    return replace(one, waits_for=wait)


class TestTheVerdictOnAGpuThatWaitsForARank:
    @pytest.mark.parametrize(
        ("low_s", "high_s", "name"),
        [
            (0, 4.999, VerdictName.HEALTHY),
            (4.999, 4.999, VerdictName.HEALTHY),
            (0, 5, VerdictName.PARTIAL),
            (4.999, 60, VerdictName.PARTIAL),
            (5, 5, VerdictName.STALLED),
            (5, 90, VerdictName.STALLED),
        ],
    )
    def test_follows_from_both_bounds(self, low_s: float, high_s: float, name: VerdictName) -> None:
        one = waiting(low_s, high_s)

        assert one.verdict.name is name
        assert waits_much(one) is (name is not VerdictName.HEALTHY)

    @pytest.mark.parametrize(
        ("low_s", "severity"), [(19.9, Severity.MODERATE), (20, Severity.HIGH)]
    )
    def test_is_as_grave_as_what_is_certain(self, low_s: float, severity: Severity) -> None:
        assert waiting(low_s, 90).verdict.severity is severity

    def test_leaves_the_loss_and_the_idle_time_alone(self) -> None:
        one = waiting(50, 60, idle_s=2)

        assert one.totals.lost_ns == s(2)
        assert one.verdict.lost_ratio == pytest.approx(0.02)
        assert one.totals.busy_ns + one.totals.idle_total_ns == one.totals.observed_ns


class TestHowLongItWaited:
    @pytest.mark.parametrize(
        ("low_s", "high_s", "percent", "time"),
        [
            (30, 30, "30 %", "30 s"),
            (30, 32.9, "30 %", "30 s"),
            (30, 33.5, "30 to 34 %", "30 to 33.5 s"),
            (0, 40, "0 to 40 %", "0 to 40 s"),
        ],
        ids=["one figure", "a narrow range", "a wide range", "from nothing"],
    )
    def test_is_a_range_only_where_that_is_wide(
        self, low_s: float, high_s: float, percent: str, time: str
    ) -> None:
        totals = waiting(low_s, high_s).totals

        assert wait_in_percent(totals) == percent
        assert wait_in_time(totals) == time

    def test_is_never_rounded_to_a_limit_that_it_does_not_reach(self) -> None:
        assert wait_in_percent(waiting(4.97, 19.98).totals, 0.05, 0.2) == "4.97 to 19.98 %"


class TestTheAdvice:
    def test_promises_what_the_lower_bound_allows(self) -> None:
        advice = late_rank_advice([waiting(20, 60)], RUNS)

        assert advice is not None
        assert advice.speedup_upper_bound == pytest.approx(1.25)
        assert advice.lost_seconds == 20

    @pytest.mark.parametrize(
        "gpus",
        [[], [gpu(100)], [waiting(4, 4)], [replace(waiting(30, 30), waits_for=None)]],
        ids=["no GPU", "no wait", "a short wait", "a wait for an unknown rank"],
    )
    def test_is_none_where_no_wait_for_a_known_rank_is_worth_it(
        self, gpus: list[GpuReport]
    ) -> None:
        assert late_rank_advice(gpus, RUNS) is None

    def test_is_on_the_rank_that_most_gpus_wait_for(self) -> None:
        other = RankWait("train-r1", 1, SUSPENDED)
        gpus = [waiting(30, 30), waiting(30, 30, index=3), waiting(30, 30, index=2, wait=other)]
        advice = late_rank_advice(gpus, RUNS)

        assert advice is not None
        assert advice.gpus == ("0", "3")


class TestTheHeadline:
    @pytest.mark.parametrize(("low_s", "high_s"), [(0, 5), (5, 5), (0, 90), (50, 90)])
    def test_never_calls_such_a_gpu_healthy(self, low_s: float, high_s: float) -> None:
        one = report(waiting(low_s, high_s), gpu(100, index=1), runs=RUNS)

        assert not verdict_line(one).startswith("healthy")
        assert "GPU 0 work" not in verdict_line(one)

    def test_speaks_of_the_late_rank_before_those_that_wait_for_it(self) -> None:
        late = gpu(60, {IdleCause.INPUT_WAIT: 40}, index=2)
        one = report(waiting(60, 60), late, runs=RUNS)

        assert "GPU 2 spends 40 % of its time in use waiting for input" in verdict_line(one)
        assert "GPU 0 loses time too" in verdict_line(one)
