"""One training run on several GPUs: each GPU's idle time has its own cause.

The speeds of the GPUs are known here, and so is how long each of them waited for another one, for
input, and for the end of a step.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.core.attribution.batch_shares import shares_of
from gpumon.core.phase import IdleCause
from gpumon.core.sample import ProcessSample
from gpumon.core.state import MonitorState
from gpumon.pipeline.state_report import report_of
from tests.builders.report import one_balance
from tests.builders.time import s
from tests.builders.unequal_gpus import Board, UnequalGpus

IMBALANCE, WITHIN_STEP, INPUT_WAIT = (
    IdleCause.IMBALANCE,
    IdleCause.WITHIN_STEP,
    IdleCause.INPUT_WAIT,
)


def two_even(**workload: Any) -> UnequalGpus:
    """Two GPUs, one half as fast again, with equal parts of each batch."""
    return UnequalGpus(speeds=[300, 200], ratios=[1, 1], **workload)


def parts(state: MonitorState, cause: IdleCause) -> list[float]:
    """What part of each GPU's observed time was idle for that cause."""
    return [
        gpu.totals.idle_ns.get(cause, 0) / gpu.totals.observed_ns
        for gpu in state.gpus
        if gpu.totals.busy_ns
    ]


class TestTheFasterOfTwoGpusWithEvenShares:
    @pytest.mark.parametrize("batch", [20, 700], ids=["short", "long"])
    @pytest.mark.parametrize("resolutions_s", [(1 / 6, 1 / 6), (1 / 6, 1.0)], ids=str)
    def test_waits_for_the_other_a_third_of_its_time(
        self, batch: int, resolutions_s: tuple[float, float]
    ) -> None:
        state = two_even(batch=batch, resolutions_s=resolutions_s).train(30)

        assert parts(state, IMBALANCE) == pytest.approx([1 / 3, 0.0], abs=0.02)
        assert parts(state, WITHIN_STEP) == pytest.approx([0.0, 0.0], abs=0.02)

    def test_waits_for_input_no_longer_than_the_slower_one(self) -> None:
        # Steps of 0.25 s (0.167 s of work for the faster one), then 0.1 s without input.
        state = two_even(input_s=0.1).train(40)

        balance = one_balance(report_of(state)).balanced_ratios or {}
        assert [*balance.values()] == pytest.approx([0.6, 0.4], abs=0.01)
        assert parts(state, INPUT_WAIT) == pytest.approx([0.1 / 0.35] * 2, abs=0.02)
        assert parts(state, IMBALANCE) == pytest.approx([0.25 / 3 / 0.35, 0.0], abs=0.02)

    # Keras' own loop fetches the next batch while the GPUs compute: steps of 0.25 s.
    @pytest.mark.parametrize(
        "meanwhile",
        [{"is_hidden": True}, {"gross_s": 0.2}],
        ids=["while the slower one computes", "inside the call that trains"],
    )
    def test_does_not_starve_though_the_host_waits_for_input(
        self, meanwhile: dict[str, Any]
    ) -> None:
        state = two_even(**meanwhile).train(30)

        assert parts(state, INPUT_WAIT) == pytest.approx([0.0, 0.0], abs=0.02)
        assert parts(state, IMBALANCE) == pytest.approx([1 / 3, 0.0], abs=0.03)
        assert state.gpus[0].totals.hidden_input_wait_ns > 0

    def test_starves_of_the_part_of_such_a_wait_that_both_of_them_feel(self) -> None:
        # 0.25 s of work for the slower one, and 0.15 s more until the batch is there.
        state = two_even(reduce_s=0.15, gross_s=0.39).train(40)

        assert parts(state, INPUT_WAIT) == pytest.approx([0.15 / 0.4] * 2, abs=0.02)
        assert parts(state, IMBALANCE) == pytest.approx([0.25 / 3 / 0.4, 0.0], abs=0.02)


class TestThreeGpus:
    def test_are_two_where_one_was_never_at_work(self) -> None:
        state = UnequalGpus(speeds=[300, 200], ratios=[3, 2], idle_gpus=1).train(30)

        assert parts(state, IMBALANCE) == pytest.approx([0.0, 0.0], abs=0.02)
        assert state.gpus[2].totals.idle_ns == {}
        assert state.runs[0].gpu_uuids == ("GPU-0", "GPU-1")


class TestBalancedGpusThatPauseInEachStep:
    @pytest.mark.parametrize("batch", [60, 350])
    @pytest.mark.parametrize("resolutions_s", [(1.0, 1.0), (1 / 6, 1.0)], ids=str)
    def test_are_idle_within_the_step_and_not_for_each_other(
        self, batch: int, resolutions_s: tuple[float, float]
    ) -> None:
        # Read at different times, each seems busier than the other in turn.
        workload = UnequalGpus(
            speeds=[300, 200], ratios=[3, 2], batch=batch, reduce_s=batch / 2000,
            resolutions_s=resolutions_s,
        )  # fmt: skip

        state = workload.train(40)

        assert parts(state, IMBALANCE) == pytest.approx([0.0, 0.0], abs=0.02)
        assert parts(state, WITHIN_STEP) == pytest.approx([0.2, 0.2], abs=0.02)


class TestTheBalancedRatios:
    @pytest.mark.parametrize("ranks", [False, True], ids=["one process", "ranks"])
    @pytest.mark.parametrize(
        ("speeds", "ratios"),
        [((90, 400), (1, 2)), ((300, 200, 100), (1, 1, 1))],
    )
    def test_are_those_of_the_speeds_and_end_all_waits(
        self, speeds: tuple[int, ...], ratios: tuple[int, ...], ranks: bool
    ) -> None:
        workload = UnequalGpus(speeds=speeds, ratios=ratios, ranks=ranks, batch=40)
        before = workload.train(20)
        slowest = min(range(len(speeds)), key=lambda at: speeds[at] / ratios[at])
        times = [ratio / speed for ratio, speed in zip(ratios, speeds, strict=True)]
        waits = [1 - time / times[slowest] for time in times]
        assert parts(before, IMBALANCE) == pytest.approx(waits, abs=0.02)
        balanced = one_balance(report_of(before)).balanced_ratios
        assert balanced is not None
        assert [*balanced.values()] == pytest.approx(shares_of(speeds), rel=0.02)

        workload.split([*balanced.values()])
        workload.train(2)
        changed = workload.train(1)
        after = workload.train(30)

        for was, now in zip(changed.gpus, after.gpus, strict=True):
            waited_ns = now.totals.idle_ns.get(IMBALANCE, 0) - was.totals.idle_ns.get(IMBALANCE, 0)
            assert waited_ns < 0.02 * (now.totals.observed_ns - was.totals.observed_ns)
        assert one_balance(report_of(after)).is_level


class TestAChangeOfTheRatios:
    def test_begins_the_count_again(self) -> None:
        workload = two_even(batch=20)
        before = workload.train(20).runs[0]
        workload.split([3, 2])
        assert workload.train(1).runs[0].step_busy_ratios == {}  # less than a second of steps
        after = workload.train(9).runs[0]

        assert before.step_busy_ratios == pytest.approx({"GPU-0": 2 / 3, "GPU-1": 1.0}, abs=0.01)
        assert after.step_busy_ratios == pytest.approx({"GPU-0": 1.0, "GPU-1": 1.0}, abs=0.01)
        assert after.ratio_changes == 1
        assert after.shares == {"GPU-0": 0.6, "GPU-1": 0.4}


class TestProcessesOnTheGpusOfAJob:
    OWN, OTHER = ProcessSample(42, None, 0.8, uid=0), ProcessSample(77, None, 0.2, uid=1001)

    def test_are_noted_while_it_trains(self) -> None:
        boards = [Board(processes=(self.OWN,)), Board(processes=(self.OWN, self.OTHER))]

        state = two_even(boards=boards).train(30)

        mine, shared = (gpu.in_job for gpu in state.gpus)
        assert mine is not None
        assert shared is not None
        assert [one.pid for one in mine.tenants] == [42]
        assert [(one.pid, one.uid) for one in shared.tenants] == [(42, 0), (77, 1001)]
        assert shared.tenants[1].computing_ratio == pytest.approx(0.2)
        assert s(25) < shared.tenants[1].present_ns == shared.listed_ns <= s(30)
        assert mine.jobs == shared.jobs == ("job",)
        assert [gpu.in_job for gpu in report_of(state).gpus] == [mine, shared]

    def test_are_not_known_on_a_gpu_that_works_alone_or_without_a_list(self) -> None:
        alone = UnequalGpus(speeds=[200], ratios=[1], boards=[Board(processes=(self.OWN,))])
        assert alone.train(10).gpus[0].in_job is None

        found = two_even(boards=[Board(), Board()]).train(10).gpus[0].in_job
        assert found is not None
        assert (found.listed_ns, found.tenants) == (0, ())


HOT = Board(clock=2 / 3, held_by=("hw_thermal_slowdown",))
CROWDED = Board(
    processes=(ProcessSample(42, None, 0.6, uid=0), ProcessSample(77, None, 1 / 3, uid=1001))
)
ALONE = Board(processes=(ProcessSample(42, None, 0.6, uid=0),))


class TestTheBoundOfTheAdvice:
    @pytest.mark.parametrize(
        ("boards", "ratios", "fixed", "balanced"),
        [
            ((Board(), HOT), (1, 1), (300, 300), (1, 1)),
            ((ALONE, CROWDED), (1, 1), (300, 300), (1, 1)),
            ((Board("NVIDIA L40S"), Board("NVIDIA A40")), (1, 1), (300, 200), (3, 2)),
            ((Board("NVIDIA L40S"), Board("NVIDIA A40")), (2, 3), (300, 200), (3, 2)),
        ],
        ids=["cooled", "alone", "ratios of two boards", "less work"],
    )
    def test_holds_for_who_follows_it_and_is_at_most_twice_the_gain(
        self,
        boards: tuple[Board, Board],
        ratios: tuple[int, int],
        fixed: tuple[int, int],
        balanced: tuple[int, int],
    ) -> None:
        def seconds_of_a_step(speeds: tuple[int, int], ratios: tuple[int, int]) -> float:
            return max(share / of for share, of in zip(shares_of(ratios), speeds, strict=True))

        workload = UnequalGpus(speeds=[300, 200], ratios=ratios, boards=boards)
        (advice,) = [
            one for one in report_of(workload.train(60)).advice if one.cause == IMBALANCE.value
        ]

        gain = seconds_of_a_step((300, 200), ratios) / seconds_of_a_step(fixed, balanced)

        bound = advice.speedup_upper_bound
        assert bound is not None
        assert 1 + (bound - 1) / 2 <= gain <= 1.02 * bound


@settings(max_examples=15, deadline=None)
@given(
    speeds=st.lists(st.integers(50, 900), min_size=1, max_size=3),
    batch=st.integers(5, 400),
    reduce_s=st.sampled_from([0.0, 0.03]),
    input_s=st.sampled_from([0.0, 0.05, 0.7]),
    gross_s=st.sampled_from([0.0, 0.1]),
    is_hidden=st.booleans(),
    ranks=st.booleans(),
    resolutions_s=st.permutations([1 / 6, 0.25, 1.0]),
)
def test_every_second_of_every_gpu_has_one_cause_whatever_the_workload(
    speeds: list[int], batch: int, reduce_s: float, input_s: float, gross_s: float,
    is_hidden: bool, ranks: bool, resolutions_s: list[float],
) -> None:  # fmt: skip
    workload = UnequalGpus(
        speeds=speeds, ratios=[1] * len(speeds), batch=batch, reduce_s=reduce_s, input_s=input_s,
        gross_s=gross_s, is_hidden=is_hidden, ranks=ranks, resolutions_s=resolutions_s,
    )  # fmt: skip

    for _ in range(4):
        for gpu in workload.train(2).gpus:
            totals = gpu.totals
            assert all(amount_ns >= 0 for amount_ns in totals.idle_ns.values())
            assert totals.busy_ns + totals.idle_total_ns + totals.pending_ns == totals.observed_ns
            if len(speeds) == 1:
                assert IMBALANCE not in totals.idle_ns
