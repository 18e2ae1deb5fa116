"""A data loader's workers that tag their loading are no runs of their own."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.verdict import VerdictName
from tests.builders.monitor import STEP, WAIT, Phases, Story, gpu
from tests.builders.time import s

OTHER, VALIDATION = TrainingPhase.OTHER, TrainingPhase.VALIDATION
HALF_WAITS: Phases = [(0.0, WAIT), (0.5, STEP)]
LOADS: Phases = [(0.0, WAIT), (0.2, OTHER)]


@pytest.fixture(params=[("0",), None], ids=["named GPU", "no process list"])
def beside_workers(story: Story, request: pytest.FixtureRequest) -> Story:
    """A run that waits half of its time, and eight workers that never count a step."""
    gpus: Sequence[str] | None = request.param
    story.ring(gpus=gpus)
    for worker in range(8):
        story.ring(f"worker {worker}", gpus=gpus, pid=100 + worker)
    tagged = {"train": HALF_WAITS, **{f"worker {n}": LOADS for n in range(8)}}
    for _ in range(60):
        story.pass_second_with(tagged, 0.5, steps={"train": 1})
    return story


class TestWorkersThatTag:
    def test_take_no_share_of_the_idle_time_and_use_no_gpu(self, beside_workers: Story) -> None:
        totals = gpu(beside_workers.state).totals

        assert gpu(beside_workers.state).verdict.name is VerdictName.STARVED
        assert totals.starved_ns / totals.in_use_ns == pytest.approx(0.5, abs=0.01)
        assert IdleCause.UNKNOWN not in totals.idle_ns
        assert [run.gpu_uuids for run in beside_workers.state.runs[1:]] == [()] * 8


class TestARunThatBeginsBesideAnother:
    def test_takes_its_share_from_its_first_step_on(self, story: Story) -> None:
        story.ring()
        story.ring("second", pid=43)
        story.alter_ring("train", steps=1)
        both = {"train": HALF_WAITS, "second": [(0.0, OTHER)]}
        for _ in range(20):
            story.pass_second_with(both, 0.5)
        before_ns = dict(gpu(story.state).totals.idle_ns)
        assert before_ns == {IdleCause.INPUT_WAIT: s(10)}

        story.alter_ring("second", steps=1)
        story.pass_seconds(20, 0.5, phases=HALF_WAITS)

        assert gpu(story.state).totals.idle_ns[IdleCause.INPUT_WAIT] < s(19)
        assert story.state.runs[1].gpu_uuids == ("GPU-0",)

    def test_takes_its_share_when_it_validates(self, story: Story) -> None:
        story.ring()
        story.ring("second", pid=43)
        story.alter_ring("train", steps=1)
        for _ in range(20):
            story.pass_second_with({"train": HALF_WAITS, "second": [(0.0, VALIDATION)]}, 0.5)

        assert gpu(story.state).totals.idle_ns[IdleCause.VALIDATION] > s(1)

    @pytest.mark.parametrize("first", ["hangs", "is stopped", "is over"])
    def test_has_its_own_causes_beside_one_that_does_not_go_on(
        self, story: Story, first: str
    ) -> None:
        story.ring()
        story.pass_seconds(60, 1.0, phases=[(0.0, STEP)], steps=4)
        if first == "is over":
            story.pass_second(1.0, over_at=0.5)
        elif first == "is stopped":
            story.stop()
        story.pass_seconds(100, 0.0)
        before_ns = dict(gpu(story.state).totals.idle_ns)
        story.ring("second", pid=43, job="another")
        story.pass_second(1.0, phases=[(0.0, TrainingPhase.COMPILE)], key="second")
        story.pass_seconds(30, 0.0, key="second")
        story.pass_seconds(10, 0.0, phases=[(0.0, WAIT)], key="second")
        story.pass_seconds(10, 1.0, phases=[(0.0, STEP)], key="second", steps=4)

        idle_ns = gpu(story.state).totals.idle_ns
        assert idle_ns[IdleCause.COMPILE] - before_ns.get(IdleCause.COMPILE, 0) == s(30)
        assert idle_ns[IdleCause.INPUT_WAIT] - before_ns.get(IdleCause.INPUT_WAIT, 0) == s(10)

    def test_shares_with_others_that_have_not_begun_either(self, story: Story) -> None:
        story.ring()
        story.ring("second", pid=43)
        story.pass_second(0.0, phases=[(0.0, WAIT)])
        story.pass_second(1.0, phases=[(0.0, WAIT)], key="second")

        assert {run.gpu_uuids for run in story.state.runs} == {("GPU-0",)}
