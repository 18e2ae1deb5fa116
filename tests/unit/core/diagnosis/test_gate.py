"""Specification of the gate: which GPUs are above a limit, and which have no verdict.

Its messages are in ``tests/golden``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import pytest

from gpumon.core.diagnosis.gate import Limits, compared
from gpumon.core.phase import IdleCause
from gpumon.core.report.report import GpuReport, RunReport
from tests.builders.report import gpu, report, run, with_totals
from tests.builders.time import s

WAIT, UNKNOWN, SAVE = IdleCause.INPUT_WAIT, IdleCause.UNKNOWN, IdleCause.CHECKPOINT
STARVED_5, LOST_20 = Limits(starved=0.05), Limits(lost=0.20)
IDLE = gpu(0, {IdleCause.NOT_IN_USE: 600}, index=0)
HEALTHY = gpu(60, {WAIT: 1}, index=1)
SHORT = gpu(2, {WAIT: 1}, index=2)


class Outcome(NamedTuple):
    """How many limits are exceeded, how many notes there are, and whether any GPU has a verdict."""

    failures: int
    notes: int
    is_any_diagnosed: bool


def outcome(*gpus: GpuReport, limits: Limits, runs: Sequence[RunReport] = ()) -> Outcome:
    found = compared(report(*gpus, runs=tuple(runs)), limits)
    assert found.is_any_diagnosed or found.undiagnosed
    return Outcome(len(found.failures), len(found.notes), found.is_any_diagnosed)


class TestALossAboveTheLimit:
    def test_is_the_share_that_the_report_calls_lost(self) -> None:
        # Start-up and time out of use are no time in use; the very first batch's wait is.
        one = gpu(50, {WAIT: 20, IdleCause.START_UP: 100, IdleCause.NOT_IN_USE: 100})
        one = with_totals(one, first_input_wait_ns=s(20))

        (sentence,) = compared(report(one), LOST_20).failures

        assert one.verdict.lost_ratio == pytest.approx(20 / 70)
        assert "29 %" in sentence

    def test_names_sixteen_gpus_at_most(self) -> None:
        gpus = [gpu(50, {WAIT: 50}, index=index) for index in range(18)]

        (sentence,) = compared(report(*gpus), LOST_20).failures

        assert "GPU 15 (" in sentence
        assert sentence.endswith(" and 2 more")

    @pytest.mark.parametrize("percent", range(1, 100))
    def test_is_none_at_the_very_limit(self, percent: int) -> None:
        one = gpu(100 - percent, {WAIT: percent})

        assert outcome(one, limits=Limits(lost=percent / 100)).failures == 0
        assert outcome(one, limits=Limits(starved=percent / 100)).failures == 0


class TestNoVerdict:
    @pytest.mark.parametrize("limits", [STARVED_5, LOST_20], ids=["starved", "lost"])
    @pytest.mark.parametrize(
        "gpus",
        [
            (),
            (IDLE, SHORT),
            (gpu(0, {IdleCause.NOT_IN_USE: 3}),),
            (gpu(9.98),),
            (gpu(1, {WAIT: 8}),),
            (with_totals(gpu(3, {WAIT: 60}), first_input_wait_ns=s(60)),),
            (gpu(3, {IdleCause.NOT_IN_USE: 600}),),
            (replace(gpu(0), error="the GPU is lost (NVML 15)"),),
            (gpu(0),),
            (replace(gpu(0), mig_index=1),),
            (replace(gpu(0), mig_enabled=True),),
        ],
    )
    def test_is_given_on_what_was_never_in_use_for_long_enough(
        self, gpus: tuple[GpuReport, ...], limits: Limits
    ) -> None:
        assert outcome(*gpus, limits=limits) == (0, 0, False)

    def test_is_not_that_of_a_gpu_whose_instances_are_reported(self) -> None:
        partitioned = replace(gpu(0), mig_enabled=True)
        instance = replace(HEALTHY, index=0, mig_index=1, parent_uuid="GPU-0")

        assert outcome(partitioned, instance, limits=STARVED_5) == (0, 0, True)


class TestARunOnNoGpu:
    NOWHERE = replace(run(), gpu_uuids=())

    @pytest.mark.parametrize("label", ["train", "train-12"])
    def test_is_not_where_another_of_its_name_was_on_one(self, label: str) -> None:
        same, other = (replace(self.NOWHERE, run=name, pid=12) for name in (label, "another"))

        assert outcome(HEALTHY, runs=[same, run()], limits=LOST_20).notes == 0
        (note,) = compared(report(HEALTHY, runs=(same, run(), other, other)), LOST_20).notes
        assert note.count("another") == 1
        assert label not in note


class TestWhatIsNotKnown:
    @pytest.mark.parametrize(
        ("one", "limits", "notes"),
        [
            (gpu(60, {UNKNOWN: 40}), STARVED_5, 1),
            (gpu(96, {UNKNOWN: 4}), STARVED_5, 0),
            (gpu(50, {WAIT: 30, UNKNOWN: 20}), STARVED_5, 0),
            (gpu(60, {WAIT: 1}), STARVED_5, 0),
            (gpu(60, {UNKNOWN: 40}, suspected_s=40, pauses=9), Limits(starved=0.5), 0),
            (gpu(85, {UNKNOWN: 15}), LOST_20, 0),
        ],
        ids=[
            "could be starvation above the limit", "little of it", "above the limit anyway",
            "none of it", "suspected, and counted", "a part of a loss",
        ],
    )  # fmt: skip
    def test_is_noted_where_it_could_decide(
        self, one: GpuReport, limits: Limits, notes: int
    ) -> None:
        assert outcome(one, limits=limits).notes == notes


def test_a_lost_gpu_is_compared_by_what_was_observed_with_a_note() -> None:
    lost = replace(gpu(60, {WAIT: 60}), error="the GPU is lost (NVML 15)")

    assert outcome(lost, limits=STARVED_5) == (1, 1, True)
