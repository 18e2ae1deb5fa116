"""Specification of a verdict on now: what it covers, and when a GPU has recovered."""

from __future__ import annotations

import pytest

from gpumon.core.accounting.totals import NowVerdict
from gpumon.core.diagnosis.verdict_rules import diagnose
from gpumon.core.verdict import VerdictName
from tests.builders.report import gpu
from tests.builders.time import s

TOTALS = gpu(60).totals


@pytest.mark.parametrize("before", [None, *VerdictName])
@pytest.mark.parametrize("name", VerdictName)
def test_a_gpu_has_recovered_if_it_is_healthy_after_a_loss(
    name: VerdictName, before: VerdictName | None
) -> None:
    now = NowVerdict(name, s(7), TOTALS, diagnose(TOTALS), before=before)

    was_lossy = before is not None and before.is_of_a_loss
    assert now.has_recovered == (name is VerdictName.HEALTHY and was_lossy)
    assert now.window_ns == s(60)
