"""A run that hangs, from its ring to the verdict on its GPU."""

from __future__ import annotations

import pytest

from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.sample import ProcessSample
from gpumon.core.verdict import Severity, VerdictName
from tests.builders.monitor import STEP, WAIT, Story, gpu
from tests.builders.time import s

START_UP = TrainingPhase.START_UP


@pytest.fixture
def trained(story: Story) -> Story:
    """A run that has trained on GPU 0 for a minute, and starved for a fifth of it."""
    story.ring()
    for _ in range(12):
        story.pass_second(0.0, phases=[(0.0, WAIT)])
        story.pass_seconds(4, 1.0, phases=[(0.0, STEP)], steps=10)
    return story


class TestARunThatWaitsForInputForLong:
    def test_is_starved_up_to_the_limit_and_then_hangs(self, trained: Story) -> None:
        before = gpu(trained.pass_seconds(30, 0.0, phases=[(0.0, WAIT)]))
        after = gpu(trained.pass_seconds(60, 0.0))

        assert before.verdict.name is VerdictName.STARVED
        assert before.totals.starved_ns == s(42)
        assert (after.verdict.name, after.verdict.severity) == (VerdictName.HANGING, Severity.HIGH)
        assert (after.totals.starved_ns, after.totals.hanging_ns) == (s(42), s(60))
        assert after.totals.idle_ns[IdleCause.INPUT_WAIT] == s(102)
        silence = trained.state.runs[0].silence
        assert silence is not None
        assert (silence.phase, silence.is_hanging) == (WAIT, True)
        assert silence.since_ns == trained.now_ns - s(90)

    def test_has_its_verdict_back_once_it_goes_on(self, trained: Story) -> None:
        trained.pass_seconds(90, 0.0, phases=[(0.0, WAIT)])
        after = gpu(trained.pass_seconds(10, 1.0, phases=[(0.0, STEP)], steps=10))

        assert after.verdict.name is VerdictName.STARVED
        assert after.totals.starved_ns == s(42)
        assert not after.totals.hanging_now

    def test_raises_no_flag_by_what_passes_then(self, trained: Story) -> None:
        trained.pass_seconds(100, 1.0, phases=[(0.0, STEP)], steps=10)
        assert not gpu(trained.state).totals.starved_now
        trained.pass_seconds(33, 1.0)
        assert gpu(trained.state).verdict.name is VerdictName.HANGING
        trained.pass_seconds(300, 0.0, phases=[(0.0, WAIT)])

        assert not gpu(trained.state).totals.starved_now

    def test_hangs_where_its_gpu_spins(self, trained: Story) -> None:
        after = gpu(trained.pass_seconds(90, 1.0, phases=[(0.0, STEP)]))

        assert after.verdict.name is VerdictName.HANGING
        assert after.totals.hanging_ns == s(60)

    def test_is_no_hang_any_more_once_its_process_is_gone(self, trained: Story) -> None:
        trained.pass_seconds(90, 0.0, phases=[(0.0, WAIT)])
        trained.end_ring()

        assert gpu(trained.pass_second(0.0)).verdict.name is VerdictName.STARVED


class TestAnotherRunOnTheGpu:
    def test_that_works_keeps_it_from_being_called_hanging(self, trained: Story) -> None:
        trained.ring("other", pid=43, job="another")
        for _ in range(60):
            trained.pass_second(1.0, phases=[(0.0, STEP)], key="other", steps=10)

        state = trained.state
        assert gpu(state).verdict.name is not VerdictName.HANGING
        silences = {run.run: run.silence for run in state.runs if run.silence is not None}
        assert {name: one.is_hanging for name, one in silences.items()} == {
            "train": True, "other": False,
        }  # fmt: skip

    def test_loses_nothing_to_the_one_that_hangs(self, trained: Story) -> None:
        trained.pass_seconds(40, 1.0)
        trained.ring("other", pid=43, job="another")
        trained.pass_seconds(10, 1.0, phases=[(0.0, STEP)], key="other", steps=10)
        before = gpu(trained.state).totals.idle_ns.get(IdleCause.CHECKPOINT, 0)
        trained.pass_seconds(
            10, 0.0, phases=[(0.0, TrainingPhase.CHECKPOINT)], key="other", steps=10
        )

        after = gpu(trained.state).totals.idle_ns[IdleCause.CHECKPOINT]
        assert after - before == s(10)


class TestARunThatWaitsForItsFirstBatch:
    @pytest.mark.parametrize("is_named", [True, False])
    def test_hangs_after_five_minutes_on_the_gpu_it_is_on(
        self, story: Story, is_named: bool
    ) -> None:
        story.processes[0] = (ProcessSample(42, 1 << 30, uid=0),)
        story.ring(gpus=("0",) if is_named else None)
        story.pass_second(0.0, 0.0, phases=[(0.0, START_UP), (0.5, WAIT)])
        before = story.pass_seconds(299, 0.0, 0.0)
        after = story.pass_seconds(60, 0.0, 0.0)

        assert gpu(before).verdict.name is VerdictName.NOT_IN_USE
        assert gpu(after).verdict.name is VerdictName.HANGING
        assert gpu(after).totals.hanging_ns == s(59.5)
        assert gpu(after, 1).verdict.name is VerdictName.NOT_IN_USE

    def test_is_no_hang_of_a_gpu_that_it_may_only_see(self, story: Story) -> None:
        story.ring(gpus=None)
        story.pass_second(0.0, 0.0, phases=[(0.0, START_UP), (0.0, WAIT)])
        state = story.pass_seconds(400, 0.0, 0.0)

        assert {one.verdict.name for one in state.gpus} == {VerdictName.NOT_IN_USE}
        assert state.runs[0].silence is not None
        assert state.runs[0].silence.is_hanging
