"""The time of a stopped process is not in use, whatever its phase."""

from __future__ import annotations

import pytest

from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.verdict import VerdictName
from tests.builders.monitor import STEP, WAIT, Story, gpu
from tests.builders.time import s

OTHER = TrainingPhase.OTHER


def train(story: Story, seconds: int, key: str = "train") -> None:
    story.pass_seconds(seconds, 1.0, phases=[(0.0, STEP)], key=key, steps=10)


@pytest.fixture
def trained(story: Story) -> Story:
    """A run that has trained for half a minute."""
    story.ring()
    train(story, 30)
    return story


class TestAStoppedProcess:
    @pytest.mark.parametrize("phase", TrainingPhase)
    def test_does_not_use_its_gpu_in_any_phase(self, trained: Story, phase: TrainingPhase) -> None:
        trained.pass_second(0.0, phases=[(0.0, phase)])
        before = gpu(trained.state)
        trained.stop()
        after = gpu(trained.pass_seconds(60, 0.0))

        assert after.totals.idle_ns[IdleCause.NOT_IN_USE] == s(60)
        assert after.totals.in_use_ns == before.totals.in_use_ns
        assert after.totals.starved_ns == before.totals.starved_ns
        assert after.totals.pending_ns == before.totals.pending_ns
        assert after.verdict.name is before.verdict.name
        assert not after.totals.hanging_now

    def test_is_suspended_since_it_last_ran_and_loses_time_again_when_it_resumes(
        self, trained: Story
    ) -> None:
        trained.pass_seconds(5, 0.0, phases=[(0.0, WAIT)])
        stopped_ns = trained.now_ns
        trained.stop()
        (run,) = trained.pass_seconds(60, 0.0).runs
        assert (run.suspended_since_ns, run.silence) == (stopped_ns, None)
        trained.resume()
        trained.pass_second(0.0)
        after = gpu(trained.pass_seconds(4, 0.0))

        # The tick that finds it running again does not know since when.
        assert after.totals.idle_ns == {IdleCause.INPUT_WAIT: s(9), IdleCause.NOT_IN_USE: s(61)}
        assert trained.state.runs[0].suspended_since_ns is None

    def test_resumes_with_its_first_record(self, trained: Story) -> None:
        trained.pass_seconds(5, 0.0, phases=[(0.0, WAIT)])
        trained.stop()
        trained.pass_seconds(60, 0.0)
        trained.resume()
        after = gpu(trained.pass_second(0.75, phases=[(0.25, STEP)], steps=4))

        assert after.totals.idle_ns[IdleCause.NOT_IN_USE] == s(60.25)
        assert after.totals.idle_ns[IdleCause.INPUT_WAIT] == s(5)

    def test_is_no_part_of_its_pace(self, trained: Story) -> None:
        before = trained.state.runs[0].step_ns
        for _ in range(20):
            trained.pass_second(0.0)
            trained.stop()
            trained.pass_seconds(30, 0.0)
            trained.resume()
            train(trained, 2)

        assert trained.state.runs[0].step_ns == pytest.approx(before, rel=0.1)

    def test_ends_no_pause_and_is_no_part_of_one(self, trained: Story) -> None:
        trained.pass_seconds(3, 0.0, phases=[(0.0, WAIT)])
        trained.stop()
        trained.pass_seconds(60, 0.0)
        trained.resume()
        trained.pass_seconds(2, 0.0, phases=[(0.0, WAIT)])
        train(trained, 5)

        gaps = gpu(trained.state).totals.gaps
        assert (gaps.count, gaps.total_ns) == (1, s(5))

    def test_that_is_killed_leaves_what_was_proved(self, trained: Story) -> None:
        for _ in range(10):
            trained.pass_second(0.0, phases=[(0.0, WAIT)])
            train(trained, 2)
        before = gpu(trained.state)
        trained.stop()
        trained.pass_seconds(60, 0.0)
        trained.resume()
        trained.end_ring()
        after = gpu(trained.pass_seconds(5, 0.0))

        assert after.verdict.name is before.verdict.name is VerdictName.STARVED
        assert after.totals.starved_ns == before.totals.starved_ns

    def test_before_its_first_batch_waits_for_none(self, story: Story) -> None:
        story.ring()
        story.pass_second(0.0, phases=[(0.0, TrainingPhase.START_UP), (0.0, WAIT)])
        story.pass_seconds(9, 0.0)
        story.stop()
        story.pass_seconds(600, 0.0)
        assert not gpu(story.state).totals.hanging_now
        story.resume()
        train(story, 1)

        totals = gpu(story.state).totals
        assert totals.first_input_wait_ns == s(10)
        assert totals.idle_ns[IdleCause.NOT_IN_USE] == s(600)
        assert totals.in_use_ns == s(11)
