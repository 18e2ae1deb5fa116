"""Specification of advice: the greatest loss first, whom it is for, and the most it can gain.

What it says is in ``tests/golden``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from gpumon.core.device.troubles import lost, vanished
from gpumon.core.diagnosis.advice import advise
from gpumon.core.phase import IdleCause
from gpumon.core.report.report import Advice, GpuReport
from tests.builders.report import filled, gpm_fill, gpu, with_totals
from tests.builders.time import s

WAIT, SAVE, START_UP = IdleCause.INPUT_WAIT, IdleCause.CHECKPOINT, IdleCause.START_UP


def causes(*gpus: GpuReport) -> list[str]:
    return [advice.cause for advice in advise(gpus, ())]


def first(*gpus: GpuReport) -> Advice:
    return advise(gpus, ())[0]


class TestTheOrder:
    def test_is_by_lost_seconds(self) -> None:
        found = advise([gpu(40, {SAVE: 5, WAIT: 20, IdleCause.VALIDATION: 8})], ())

        assert [(advice.cause, advice.lost_seconds) for advice in found] == [
            ("input_wait", 20), ("validation", 8), ("checkpoint", 5),
        ]  # fmt: skip

    def test_adds_up_the_gpus(self) -> None:
        assert first(gpu(40, {WAIT: 20}), gpu(50, {WAIT: 10}, index=1)).lost_seconds == 30


class TestWhomItIsFor:
    def test_is_every_gpu_that_would_gain_and_no_other(self) -> None:
        saving = gpu(40, {WAIT: 20, SAVE: 5})
        waiting, idle = gpu(50, {WAIT: 10}, index=2), gpu(0, {IdleCause.NOT_IN_USE: 60}, index=3)

        found = advise([saving, gpu(60, {}, index=1), waiting, idle], ())

        assert {advice.cause: advice.gpus for advice in found} == {
            "input_wait": ("0", "2"), "checkpoint": ("0",), "not_in_use": ("3",),
        }  # fmt: skip


class TestTheGain:
    @pytest.mark.parametrize(
        "idle_s",
        [{WAIT: 30}, {WAIT: 30, IdleCause.NOT_IN_USE: 1000}],
        ids=["used all the time", "with time out of use"],
    )
    def test_is_the_time_in_use_over_what_is_left_of_it(
        self, idle_s: Mapping[IdleCause, float]
    ) -> None:
        assert first(gpu(30, idle_s)).speedup_upper_bound == 2.0

    def test_bounds_every_gpu_also_the_one_that_lost_most(self) -> None:
        starved, fine = gpu(30, {WAIT: 30}), gpu(50, {WAIT: 10}, index=1)

        assert first(fine, starved).speedup_upper_bound == 2.0

    def test_counts_from_the_start_for_a_shorter_start_up(self) -> None:
        found = first(gpu(40, {WAIT: 20, START_UP: 60}))

        assert (found.cause, found.lost_seconds, found.speedup_upper_bound) == ("start_up", 60, 2.0)


class TestAnAdvice:
    @pytest.mark.parametrize(
        ("one", "on"),
        [
            (gpu(97, {WAIT: 3}), []),
            (gpu(50, {SAVE: 10, WAIT: 0.3}, hidden_s=12), ["checkpoint"]),
            (gpu(60, {WAIT: 39.5, IdleCause.CALLBACKS: 0.5}), ["input_wait"]),
        ],
        ids=["a healthy GPU", "a wait that is hidden", "a cause that costs next to nothing"],
    )
    def test_is_not_given_on_what_is_not_worth_one(self, one: GpuReport, on: list[str]) -> None:
        assert causes(one) == on


class TestALostGpu:
    @pytest.mark.parametrize(
        "one",
        [
            gpu(30, {WAIT: 30}),
            gpu(30, {IdleCause.UNKNOWN: 30}),
            filled(gpm_fill(0.1)),
            gpu(0, {IdleCause.NOT_IN_USE: 60}),
        ],
        ids=["starved", "cause unknown", "under-filled", "not in use"],
    )
    def test_gets_no_advice(self, one: GpuReport) -> None:
        assert advise([one], [])

        for lost_one in (
            replace(one, error="the GPU is lost (NVML 15)"),
            replace(one, reported_troubles=(lost("the driver is not loaded: load it"),)),
            replace(one, listed=False, reported_troubles=(vanished(),)),
        ):
            assert advise([lost_one], []) == ()

    def test_leaves_the_advice_on_the_others(self) -> None:
        gone = replace(gpu(30, {WAIT: 30}), error="the GPU is lost (NVML 15)")

        (advice,) = advise([gone, gpu(30, {WAIT: 30}, index=1)], [])

        assert advice.gpus == ("1",)


class TestTheFirstBatch:
    def late(self, first_s: float, **more: Any) -> GpuReport:
        return with_totals(gpu(60, {WAIT: first_s}), first_input_wait_ns=s(first_s), **more)

    def test_has_its_own_advice_if_late_even_on_a_healthy_gpu(self) -> None:
        (advice,) = advise([self.late(20)], ())

        assert (advice.cause, advice.lost_seconds) == ("first_input_wait", 20)
        assert advice.speedup_upper_bound == pytest.approx(80 / 60)

    def test_is_left_out_of_the_advice_on_the_others(self) -> None:
        later = {"idle_ns": {WAIT: s(50)}, "in_use_ns": s(110), "low_ns": s(50)}

        found = advise([self.late(20, observed_ns=s(110), **later)], ())

        assert [(each.cause, each.lost_seconds) for each in found] == [
            ("input_wait", 30),
            ("first_input_wait", 20),
        ]

    def test_has_no_advice_if_it_took_less_than_a_tenth(self) -> None:
        assert causes(self.late(6)) == []
