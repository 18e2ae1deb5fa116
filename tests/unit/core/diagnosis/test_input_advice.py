"""Specification of what is advised on a late input: by which reason, how many, how fast at most."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpumon.core.diagnosis.advice import advise
from gpumon.core.diagnosis.input_advice import LossReason, bound_of, loss_reason, workers_needed
from gpumon.core.phase import IdleCause, InputWaitReason
from gpumon.core.report.report import GpuReport
from gpumon.core.waits.reasons import WaitReason
from gpumon.core.waits.wait_rules import LoaderPlace, ShortOf
from tests.builders.report import gpu, run, wait, with_totals
from tests.builders.time import s

INPUT, STEP = IdleCause.INPUT_WAIT, IdleCause.WITHIN_STEP
CPU, GIL, DISK = (
    InputWaitReason.CPU_BOUND, InputWaitReason.GIL_BOUND, InputWaitReason.DISK_BOUND
)  # fmt: skip
TRAINING = LoaderPlace.TRAINING_THREAD


def late(**reasons_s: float) -> GpuReport:
    """A GPU that waits for input in half of its 80 s, for these reasons."""
    by_reason = {reason: s(amount) for reason, amount in reasons_s.items()}
    return with_totals(gpu(40, {INPUT: 40}), input_wait_by_reason_ns=by_reason)


def loss(why: WaitReason, gain: float = 2.0) -> LossReason:
    return LossReason(why.reason, run(), why, gain)


def cpu(**changes: Any) -> WaitReason:
    figures: dict[str, Any] = {"tasks": 4, "wanted": 4.0, "given": 4.0, "usable": 16.0, **changes}
    return wait(CPU, **figures)


class TestTheReason:
    def test_is_the_one_that_explains_most_of_it(self) -> None:
        found = loss_reason(INPUT, [late(cpu_bound=30, disk_bound=10)], [], 2.0)

        assert found is not None
        assert (found.reason, found.run) == (CPU, None)

    def test_is_none_where_no_one_explains_half_of_it(self) -> None:
        many = late(cpu_bound=15, disk_bound=15, unknown=10)

        assert loss_reason(INPUT, [many], [], 2.0) is None

    def test_is_never_unknown(self) -> None:
        assert loss_reason(INPUT, [late(unknown=40)], [], 2.0) is None

    def test_comes_with_the_run_that_lost_most_by_it(self) -> None:
        runs = [
            replace(run(), run=name, reasons=(cpu(waited_s=waited),))
            for name, waited in (("a", 10.0), ("b", 30.0))
        ]

        found = loss_reason(INPUT, [late(cpu_bound=40)], runs, 2.0)

        assert found is not None
        assert found.run is runs[1]

    @pytest.mark.parametrize(("locked", "is_found"), [(0.75, True), (0.5, True), (0.25, False)])
    def test_is_unknown_but_reported_where_workers_sleep_in_a_lock(
        self, locked: float, is_found: bool
    ) -> None:
        why = wait(InputWaitReason.UNKNOWN, tasks=4, wanted=1.0, given=1.0, locked=locked)

        found = loss_reason(INPUT, [late(unknown=40)], [replace(run(), reasons=(why,))], 2.0)

        assert (found is not None) is is_found

    def test_within_a_step_is_the_gil(self) -> None:
        held = with_totals(gpu(40, {STEP: 40}), within_step_by_reason_ns={"gil_bound": s(30)})

        found = loss_reason(STEP, [held], [], 2.0)

        assert found is not None
        assert found.reason is GIL


class TestTheNumberOfWorkers:
    @pytest.mark.parametrize(
        ("gain", "tasks", "count"), [(2.0, 1, 2), (2.0, 4, 8), (1.3, 4, 6), (1.01, 4, 4)]
    )
    def test_makes_batches_as_fast_as_the_gpu_needs_them(
        self, gain: float, tasks: int, count: int
    ) -> None:
        assert workers_needed(loss(cpu(tasks=tasks), gain)) == count

    @pytest.mark.parametrize(("gain", "count"), [(1.5, 1), (2.0, 1), (3.2, 3)])
    def test_takes_a_wait_off_the_thread_that_trains(self, gain: float, count: int) -> None:
        assert workers_needed(loss(cpu(tasks=1, place=TRAINING), gain)) == count

    def test_counts_one_core_for_threads_that_share_the_gil(self) -> None:
        shared = wait(GIL, tasks=8, wanted=1.4, given=1.0, usable=16.0)

        assert workers_needed(loss(shared, 3.0)) == 3

    def test_is_unknown_without_measurements(self) -> None:
        assert workers_needed(LossReason(CPU, None, None, 2.0)) is None


class TestTheBound:
    def test_is_all_of_the_wait_where_cores_are_enough(self) -> None:
        assert bound_of(loss(cpu(usable=16.0))) == 2.0

    def test_is_the_cores_where_more_workers_are_advised(self) -> None:
        assert bound_of(loss(cpu(given=4.0, usable=6.0))) == 1.5

    def test_is_the_cores_where_threads_are_to_become_processes(self) -> None:
        assert bound_of(loss(wait(GIL, tasks=3, wanted=1.2, given=1.0, usable=1.0))) == 1.0

    @pytest.mark.parametrize(
        "why",
        [
            cpu(given=2.0, usable=2.0, short_of=ShortOf.CORES),
            cpu(tasks=2, given=1.8, usable=2.0),
            cpu(given=0.8, usable=1.0, place=TRAINING),
            wait(DISK, tasks=1, wanted=0.9, given=0.9, usable=1.0),
        ],
        ids=[
            "cheaper batches",
            "the same with a worker for each core",
            "a wait beside the step",
            "a cache",
        ],
    )
    def test_is_all_of_the_wait_where_something_else_is_advised(self, why: WaitReason) -> None:
        assert bound_of(loss(why)) == 2.0

    def test_never_promises_to_be_slower(self) -> None:
        shared = wait(GIL, tasks=3, wanted=9.0, given=8.0, usable=4.0)

        assert bound_of(loss(shared)) == 1.0


class TestTheAdvice:
    def test_counts_what_the_gil_cost_in_waits_and_in_steps_for_one_change(self) -> None:
        held = with_totals(
            gpu(40, {INPUT: 20, STEP: 20}),
            input_wait_by_reason_ns={"gil_bound": s(20)},
            within_step_by_reason_ns={"gil_bound": s(20)},
        )
        shared = wait(GIL, tasks=3, wanted=1.2, given=1.0, usable=16.0)
        reasons = (shared, shared._replace(cause=STEP))

        first, second = advise([held], [replace(run(workers=3), reasons=reasons)])

        assert (first.speedup_upper_bound, second.speedup_upper_bound) == (2.0, 2.0)
        assert first.text != second.text
