"""Specification of the most that balanced GPUs can win, and of waits that are not visible."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpumon.core.device.job_measurements import InJob, ProcessOnGpu
from gpumon.core.diagnosis.advice import advise
from gpumon.core.diagnosis.imbalance_advice import imbalance_notes
from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.report.report import GpuReport, RunReport
from tests.builders.report import gpu, mean, power_fill, rank_of, shared_run
from tests.builders.time import s

EVEN = shared_run([2 / 3, 1.0], shares=[0.5, 0.5])
J1 = ("j1",)
LEVEL = shared_run([0.995, 1.0], shares=[0.6, 0.4])


def bound(run: RunReport, *, saving_s: float = 0.0, **changes: Any) -> float | None:
    """Of two GPUs; the first waits for 20 s of the 60 s that they train.

    ``changes``: what else the slow one reports.
    """
    saving = {IdleCause.CHECKPOINT: saving_s}
    fast = gpu(40, {IdleCause.IMBALANCE: 20} | saving)
    slow = replace(gpu(60, saving, index=1), **changes)
    found = {one.cause: one for one in advise([fast, slow], [run])}
    return found["imbalance"].speedup_upper_bound


class TestTheMostItCanWin:
    @pytest.mark.parametrize("run", [EVEN, shared_run([2 / 3, 1.0])], ids=["reported", "even"])
    def test_is_what_balanced_gpus_need(self, run: RunReport) -> None:
        # Speeds 3:2: halves take 2/3 s and 1 s; three fifths and two fifths take 0.8 s each.
        assert bound(run) == pytest.approx(1 / 0.8)

    def test_is_all_the_wait_where_shares_are_not_known(self) -> None:
        assert bound(shared_run([2 / 3, 1.0], framework="loop")) == pytest.approx(1.5)

    def test_is_nothing_where_ratios_have_become_balanced(self) -> None:
        assert bound(LEVEL) == 1.0

    def test_counts_only_the_part_of_the_time_that_was_waited(self) -> None:
        # Of 120 s in use, 60 s were training steps.
        assert bound(EVEN, saving_s=60) == pytest.approx(120 / (120 - 0.2 * 60))

    def test_is_all_the_wait_where_what_makes_the_other_slow_can_be_ended(self) -> None:
        # Once it is as fast as the first, a step takes 2/3 s: less than any ratios win now.
        tenants = ProcessOnGpu(4711, 0, s(60)), ProcessOnGpu(77, 1001, s(60), s(60), s(20))

        assert bound(EVEN, in_job=InJob(J1, 1, None, s(60), tenants)) == pytest.approx(1.5)
        hot = power_fill(180.0, held=0.5)._replace(sm_clock=mean(0.6, 60.0))
        assert bound(EVEN, in_job=InJob(J1, 1, hot)) == pytest.approx(1.5)

    def test_is_what_ratios_win_where_it_is_only_a_slower_board(self) -> None:
        assert bound(EVEN, name="NVIDIA A10") == pytest.approx(1 / 0.8)


IN_STEPS = {TrainingPhase.TRAIN_STEP: s(100)}
RANKS = [replace(rank_of(rank, 1.0, framework="lightning"), phase_ns=IN_STEPS) for rank in range(2)]


def notes(gpus: list[GpuReport], *runs: RunReport) -> int:
    """How many sentences there are on what cannot be seen."""
    return len([*imbalance_notes(gpus, runs)])


class TestWhatCannotBeSeen:
    BARE = (gpu(120), gpu(120, index=1))

    def test_is_noted_once_for_all_jobs_of_ranks(self) -> None:
        others = [replace(one, job="j2") for one in RANKS]

        assert notes([*self.BARE], *RANKS) == 1
        assert notes([*self.BARE], *RANKS, *others) == 1

    def test_is_nothing_of_one_process_that_feeds_all_its_gpus(self) -> None:
        level = replace(shared_run([1.0, 1.0], shares=[0.5, 0.5]), phase_ns=IN_STEPS)

        assert notes([*self.BARE], level) == 0
        assert notes([*self.BARE], replace(level, framework="keras/jax")) == 1

    def test_is_nothing_where_gpus_are_seen_to_wait(self) -> None:
        uneven = [rank_of(0, 0.5), rank_of(1, 1.0)]

        assert notes([*self.BARE], *uneven) == 0

    def test_is_not_noted_within_the_first_minute(self) -> None:
        young = {TrainingPhase.TRAIN_STEP: s(30)}

        assert notes([*self.BARE], *(replace(one, phase_ns=young) for one in RANKS)) == 0

    def test_is_also_a_rank_on_another_machine(self) -> None:
        alone = replace(RANKS[0], world_size=2)

        assert notes([gpu(120)], alone) == 1
        assert notes([gpu(120)], replace(alone, ended_before=True)) == 0
        assert notes([gpu(120)], replace(alone, steps=0)) == 0
        assert notes([gpu(120)], RANKS[0]) == 0
