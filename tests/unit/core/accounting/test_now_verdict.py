"""Specification of a verdict on now: what it covers, and when a GPU has recovered."""

from __future__ import annotations

import pytest

from gpumon.core.accounting.now_verdict import NowVerdict
from gpumon.core.diagnosis.verdict_rules import judge
from gpumon.core.verdict import VerdictName
from tests.builders.report import gpu
from tests.builders.time import s

TOTALS = gpu(60).totals
HEALTHY = VerdictName.HEALTHY
LOSSES = [name for name in VerdictName if name.is_of_a_loss]
NO_LOSSES = [name for name in VerdictName if not name.is_of_a_loss]


def verdict(name: VerdictName, before: VerdictName | None) -> NowVerdict:
    return NowVerdict(name, s(7), TOTALS, judge(TOTALS), before=before)


class TestAGpu:
    @pytest.mark.parametrize("before", LOSSES)
    def test_has_recovered_where_it_is_healthy_after_a_loss(self, before: VerdictName) -> None:
        assert verdict(HEALTHY, before).has_recovered

    @pytest.mark.parametrize("before", [None, *NO_LOSSES])
    def test_has_not_recovered_where_it_lost_nothing_before(
        self, before: VerdictName | None
    ) -> None:
        assert not verdict(HEALTHY, before).has_recovered

    @pytest.mark.parametrize("name", [name for name in VerdictName if name is not HEALTHY])
    def test_has_not_recovered_while_it_is_not_healthy(self, name: VerdictName) -> None:
        assert not verdict(name, VerdictName.STARVED).has_recovered


def test_the_window_is_the_time_in_use() -> None:
    assert verdict(HEALTHY, None).window_ns == s(60)
