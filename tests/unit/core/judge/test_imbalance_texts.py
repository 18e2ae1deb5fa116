"""Specification of the advice on a GPU that waits for a slower one: the most it can win."""

from __future__ import annotations

import pytest

from gpumon.core.judge.advice import advise
from gpumon.core.phase import IdleCause
from gpumon.core.report.report import RunReport
from tests.builders_report import gpu, shared_run

EVEN = shared_run([2 / 3, 1.0], shares=[0.5, 0.5])
LEVEL = shared_run([0.995, 1.0], shares=[0.6, 0.4])


def bound(run: RunReport, *, saving_s: float = 0.0) -> float | None:
    """Of two GPUs, of which the first waits for 20 s of the 60 s that they train."""
    saving = {IdleCause.CHECKPOINT: saving_s}
    fast, slow = gpu(40, {IdleCause.IMBALANCE: 20} | saving), gpu(60, saving, index=1)
    found = {one.cause: one for one in advise([fast, slow], [run])}
    return found["imbalance"].speedup_upper_bound


class TestTheMostItCanWin:
    @pytest.mark.parametrize("run", [EVEN, shared_run([2 / 3, 1.0])], ids=["told", "even"])
    def test_is_what_level_gpus_need(self, run: RunReport) -> None:
        # Speeds 3:2: halves take 2/3 s and 1 s; three fifths and two fifths take 0.8 s each.
        assert bound(run) == pytest.approx(1 / 0.8)

    def test_is_all_the_wait_where_shares_are_not_known(self) -> None:
        assert bound(shared_run([2 / 3, 1.0], framework="loop")) == pytest.approx(1.5)

    def test_is_nothing_where_ratios_have_become_level(self) -> None:
        assert bound(LEVEL) == 1.0

    def test_counts_only_the_part_of_the_time_that_was_waited(self) -> None:
        # Of 120 s in use, 60 s were training steps.
        assert bound(EVEN, saving_s=60) == pytest.approx(120 / (120 - 0.2 * 60))
