"""Idle time before a GPU's first work in a run is pending: it settles when work comes."""

from __future__ import annotations

import pytest

from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.verdict import VerdictName
from tests.builders.monitor import STEP, WAIT, Story, gpu
from tests.builders.time import s

START_UP, COMPILE = TrainingPhase.START_UP, TrainingPhase.COMPILE
OTHER = TrainingPhase.OTHER


@pytest.fixture
def starting(story: Story) -> Story:
    """A run that has been in start-up for two seconds."""
    story.ring()
    story.pass_second(0.0, phases=[(0.0, START_UP)])
    story.pass_second(0.0)
    return story


def wait_for_the_first_batch(story: Story, seconds: int) -> None:
    story.pass_second(0.0, phases=[(0.0, WAIT)])
    story.pass_seconds(seconds - 1, 0.0)


@pytest.fixture
def waiting(starting: Story) -> Story:
    """The same, which then has waited for its first batch for six seconds."""
    wait_for_the_first_batch(starting, 6)
    return starting


class TestTheWaitForTheVeryFirstBatch:
    def test_is_pending_until_the_first_work_comes_and_never_starved(self, waiting: Story) -> None:
        before = gpu(waiting.state).totals
        assert before.pending_ns == before.observed_ns == s(8)
        assert before.in_use_ns == 0
        state = waiting.pass_second(1.0, phases=[(0.0, STEP)])

        totals = gpu(state).totals
        assert totals.idle_ns == {IdleCause.INPUT_WAIT: s(6), IdleCause.START_UP: s(2)}
        assert (totals.first_input_wait_ns, totals.starved_ns) == (s(6), 0)
        assert (totals.in_use_ns, totals.resolved_ns) == (s(7), s(6))
        assert state.runs[0].first_input_wait_ns == s(6)

    def test_decides_no_verdict(self, waiting: Story) -> None:
        waiting.pass_seconds(24, 0.0)
        waiting.pass_second(1.0, phases=[(0.0, STEP), (0.9, STEP)])
        state = waiting.pass_seconds(30, 1.0)

        assert gpu(state).verdict.name is VerdictName.HEALTHY
        assert (gpu(state).totals.starved_now, gpu(state).totals.episodes) == (False, 0)

    def test_is_distinguished_from_those_that_follow(self, waiting: Story) -> None:
        waiting.pass_second(1.0, phases=[(0.0, STEP)])
        waiting.pass_seconds(20, 0.5, phases=[(0.0, WAIT), (0.5, STEP)])
        state = waiting.pass_second(1.0)

        totals = gpu(state).totals
        assert totals.idle_ns[IdleCause.INPUT_WAIT] == s(16)
        assert (totals.first_input_wait_ns, totals.starved_ns) == (s(6), s(10))
        assert gpu(state).verdict.name is VerdictName.STARVED
        assert totals.starved_now
        assert state.runs[0].first_input_wait_ns == s(6)

    def test_is_not_in_use_where_no_work_ever_comes(self, waiting: Story) -> None:
        waiting.end_ring()
        totals = gpu(waiting.pass_seconds(2, 0.0)).totals

        assert totals.idle_ns == {IdleCause.NOT_IN_USE: s(10)}
        assert totals.first_input_wait_ns == 0

    def test_is_known_if_samples_come_after_the_end_of_the_run(self, starting: Story) -> None:
        wait_for_the_first_batch(starting, 3)
        late = starting.second
        starting.pass_second(None, phases=[(0.0, STEP), (0.5, STEP)], over_at=0.9)
        totals = gpu(starting.pass_second_of(late, 1.0)).totals

        assert totals.idle_ns == {IdleCause.INPUT_WAIT: s(3), IdleCause.START_UP: s(2)}
        assert totals.first_input_wait_ns == s(3)

    def test_is_not_taken_from_a_run_whose_beginning_is_lost(self, story: Story) -> None:
        story.ring()
        wait_for_the_first_batch(story, 6)
        state = story.pass_second(1.0, phases=[(0.0, STEP)])

        assert gpu(state).totals.starved_ns == s(6)
        assert gpu(state).totals.first_input_wait_ns == 0
        assert state.runs[0].first_input_wait_ns is None


class TestALoopWithoutTheStepPhase:
    @pytest.mark.parametrize("counts_steps", [True, False])
    def test_waits_for_its_first_batch_only_once(self, starting: Story, counts_steps: bool) -> None:
        for _ in range(20):
            starting.pass_second(0.0, phases=[(0.0, WAIT)])
            starting.pass_second(1.0, phases=[(0.0, OTHER)], steps=int(counts_steps))

        totals = gpu(starting.state).totals
        assert totals.idle_ns[IdleCause.INPUT_WAIT] == s(20)
        assert (totals.first_input_wait_ns, totals.starved_ns) == (s(1), s(19))
        assert gpu(starting.state).verdict.name is VerdictName.STARVED
        assert starting.state.runs[0].first_input_wait_ns == s(1)

    def test_has_had_its_first_batch_before_a_daemon_that_starts_later(self, story: Story) -> None:
        story.ring()
        story.second = 30
        before = [(-30.0, START_UP), (-29.0, WAIT), (-28.0, OTHER)]
        for _ in range(20):
            story.pass_second(0.0, phases=[*before, (0.0, WAIT)])
            before = []
            story.pass_second(1.0, phases=[(0.0, OTHER)])

        assert gpu(story.state).totals.starved_ns == s(20)


class TestWhatElseComesBeforeTheFirstWork:
    def test_is_compiling_if_a_step_has_that_amount_at_its_end(self, starting: Story) -> None:
        starting.pass_second(0.0, phases=[(0.0, STEP)])
        starting.pass_second(0.0)
        starting.pass_second(0.0, amounts=[(0.9, COMPILE, 2.9)])
        totals = gpu(starting.pass_second(1.0)).totals

        assert totals.idle_ns[IdleCause.COMPILE] == pytest.approx(s(2.9), abs=s(0.8))
        assert totals.idle_ns[IdleCause.WITHIN_STEP] < s(0.9)

    def test_is_settled_across_a_second_without_an_answer(self, starting: Story) -> None:
        starting.pass_second(0.0, phases=[(0.0, COMPILE)])
        starting.pass_second(None)
        starting.pass_second(0.0)
        totals = gpu(starting.pass_second(1.0, phases=[(0.0, STEP)])).totals

        assert totals.idle_ns == {IdleCause.COMPILE: s(2), IdleCause.START_UP: s(2)}
        assert totals.busy_ns + sum(totals.idle_ns.values()) == totals.observed_ns == s(5)
