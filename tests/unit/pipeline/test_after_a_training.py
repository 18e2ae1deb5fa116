"""What is proved stays said: a process that lives on after its training loses nothing of it."""

from __future__ import annotations

import pytest

from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.sample import ProcessSample
from gpumon.core.state import MonitorState
from gpumon.core.verdict import VerdictName
from tests.builders_story import STEP, WAIT, Story, gpu
from tests.builders_time import s

OTHER = TrainingPhase.OTHER


def trained(story: Story, seconds: int = 20) -> MonitorState:
    """A training that waits for input in every other second."""
    for _ in range(seconds // 2):
        story.pass_second(0.0, phases=[(0.0, WAIT)])
        state = story.pass_second(1.0, phases=[(0.0, STEP)])
    return state


@pytest.fixture(params=[None, (ProcessSample(42, None),)], ids=["no list", "listed"])
def story(request: pytest.FixtureRequest) -> Story:
    """A training that began with a burst, on GPU 0; a notebook stays in the process list."""
    story = Story()
    story.processes[0] = request.param
    story.ring()
    story.pass_second(1.0, phases=[(0.0, STEP)])
    return story


class TestAProcessThatLivesOn:
    def test_loses_nothing_of_what_its_training_proved(self, story: Story) -> None:
        before = gpu(trained(story))
        story.pass_second(0.0, over_at=0.0)
        for _ in range(300):
            state = story.pass_second(0.0)

        after = gpu(state)
        assert before.verdict.name is after.verdict.name is VerdictName.STARVED
        assert after.verdict == before.verdict
        assert after.totals.idle_ns == {IdleCause.INPUT_WAIT: s(10), IdleCause.NOT_IN_USE: s(301)}
        assert after.totals.in_use_ns == s(21)
        assert after.totals.pending_ns == 0

    def test_is_over_a_minute_after_its_last_word_where_it_says_nothing_of_an_end(
        self, story: Story
    ) -> None:
        trained(story)
        story.pass_second(0.0, phases=[(0.0, OTHER)])
        for _ in range(40):
            state = story.pass_second(0.0)
        assert gpu(state).totals.pending_ns == s(41)
        for _ in range(40):
            state = story.pass_second(0.0)

        assert gpu(state).totals.idle_ns[IdleCause.NOT_IN_USE] == s(81)
        assert gpu(state).totals.pending_ns == 0
        assert gpu(state).verdict.name is VerdictName.STARVED

    def test_that_trains_again_was_not_in_use_in_between(self, story: Story) -> None:
        trained(story)
        story.pass_second(0.0, over_at=0.0)
        for _ in range(9):
            story.pass_second(0.0)
        state = trained(story)

        assert gpu(state).totals.idle_ns == {
            IdleCause.INPUT_WAIT: s(20), IdleCause.NOT_IN_USE: s(10),
        }  # fmt: skip
        assert gpu(state).totals.in_use_ns == s(41)

    def test_and_works_on_without_tags_is_judged_as_one_without(self, story: Story) -> None:
        trained(story)
        story.pass_second(0.0, over_at=0.0)
        for _ in range(10):
            story.pass_second(0.0)
            state = story.pass_second(1.0)

        idle_ns = gpu(state).totals.idle_ns
        assert idle_ns[IdleCause.UNKNOWN] == s(9)  # between its ten bursts
        assert gpu(state).verdict.name is VerdictName.STARVED


class TestTimeThatTagsSayNothingOf:
    def test_is_unknown_once_activity_follows(self, story: Story) -> None:
        trained(story)
        state = story.pass_second(0.0, phases=[(0.0, OTHER)])
        assert gpu(state).totals.pending_ns == s(1)
        state = story.pass_second(1.0, phases=[(0.0, STEP)])

        assert gpu(state).totals.idle_ns[IdleCause.UNKNOWN] == s(1)

    def test_makes_no_proved_loss_smaller(self, story: Story) -> None:
        trained(story)
        for _ in range(10):
            story.pass_second(0.0, phases=[(0.0, OTHER)])
            for _ in range(4):
                story.pass_second(0.0)
            state = story.pass_second(1.0, phases=[(0.0, STEP)])

        verdict = gpu(state).verdict
        assert verdict.name is VerdictName.STARVED
        assert verdict.coverage_ratio == pytest.approx(31 / 81)
        assert verdict.main_cause is IdleCause.UNKNOWN
