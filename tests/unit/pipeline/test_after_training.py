"""A process that lives on after training keeps its proved loss."""

from __future__ import annotations

import pytest

from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.sample import ProcessSample
from gpumon.core.verdict import VerdictName
from tests.builders.monitor import STEP, WAIT, Story, gpu
from tests.builders.time import s

OTHER = TrainingPhase.OTHER


def train(story: Story) -> None:
    """Twenty seconds, with a wait for input in every other one."""
    for _ in range(10):
        story.pass_second(0.0, phases=[(0.0, WAIT)])
        story.pass_second(1.0, phases=[(0.0, STEP)])


@pytest.fixture(params=[None, (ProcessSample(42, None),)], ids=["no list", "listed"])
def trained(request: pytest.FixtureRequest, story: Story) -> Story:
    """A run on GPU 0 that began with a burst; a notebook stays in the process list."""
    story.processes[0] = request.param
    story.ring()
    story.pass_second(1.0, phases=[(0.0, STEP)])
    train(story)
    return story


class TestAProcessThatLivesOn:
    def test_keeps_what_its_training_proved(self, trained: Story) -> None:
        before = gpu(trained.state)
        trained.pass_second(0.0, over_at=0.0)
        after = gpu(trained.pass_seconds(300, 0.0))

        assert before.verdict.name is after.verdict.name is VerdictName.STARVED
        assert after.verdict == before.verdict
        assert after.totals.idle_ns == {IdleCause.INPUT_WAIT: s(10), IdleCause.NOT_IN_USE: s(301)}
        assert after.totals.in_use_ns == s(21)
        assert after.totals.pending_ns == 0

    def test_without_a_mark_of_its_end_is_over_a_minute_after_its_last_record(
        self, trained: Story
    ) -> None:
        trained.pass_second(0.0, phases=[(0.0, OTHER)])
        assert gpu(trained.pass_seconds(40, 0.0)).totals.pending_ns == s(41)
        after = gpu(trained.pass_seconds(40, 0.0))

        assert after.totals.idle_ns[IdleCause.NOT_IN_USE] == s(81)
        assert after.totals.pending_ns == 0
        assert after.verdict.name is VerdictName.STARVED

    def test_that_trains_again_was_not_in_use_in_between(self, trained: Story) -> None:
        trained.pass_second(0.0, over_at=0.0)
        trained.pass_seconds(9, 0.0)
        train(trained)

        totals = gpu(trained.state).totals
        assert totals.idle_ns == {IdleCause.INPUT_WAIT: s(20), IdleCause.NOT_IN_USE: s(10)}
        assert totals.in_use_ns == s(41)

    def test_that_works_on_without_tags_is_diagnosed_as_untagged(self, trained: Story) -> None:
        trained.pass_second(0.0, over_at=0.0)
        for _ in range(10):
            trained.pass_second(0.0)
            state = trained.pass_second(1.0)

        idle_ns = gpu(state).totals.idle_ns
        assert idle_ns[IdleCause.UNKNOWN] == s(9)  # between its ten bursts
        assert gpu(state).verdict.name is VerdictName.STARVED


class TestTimeInAnUntaggedPhase:
    def test_becomes_unknown_and_makes_no_proved_loss_smaller(self, trained: Story) -> None:
        for _ in range(10):
            trained.pass_second(0.0, phases=[(0.0, OTHER)])
            trained.pass_seconds(4, 0.0)
            state = trained.pass_second(1.0, phases=[(0.0, STEP)])

        verdict = gpu(state).verdict
        assert gpu(state).totals.idle_ns[IdleCause.UNKNOWN] == s(50)
        assert verdict.name is VerdictName.STARVED
        assert verdict.coverage_ratio == pytest.approx(31 / 81)
        assert verdict.main_cause is IdleCause.UNKNOWN
