"""The verdict on now is that of the last ten minutes in use of a job."""

from __future__ import annotations

import pytest

from gpumon.core.accounting.totals import NowVerdict
from gpumon.core.sample import ProcessSample
from gpumon.core.verdict import VerdictName
from tests.builders.monitor import STEP, WAIT, Story, gpu
from tests.builders.time import s

STARVED, HEALTHY = VerdictName.STARVED, VerdictName.HEALTHY


def now(story: Story) -> NowVerdict:
    found = gpu(story.state).now
    assert found is not None
    return found


def starves(story: Story, seconds: int) -> None:
    """Half of its time it waits for input."""
    for _ in range(seconds // 2):
        story.pass_second(0.0, phases=[(0.0, WAIT)])
        story.pass_second(1.0, phases=[(0.0, STEP)], steps=10)


def works(story: Story, seconds: int) -> None:
    story.pass_seconds(seconds, 1.0, phases=[(0.0, STEP)], steps=10)


@pytest.fixture
def training(story: Story) -> Story:
    """A run on GPU 0, whose first batch has come."""
    story.ring()
    works(story, 1)
    return story


class TestTheVerdictOnNow:
    def test_is_that_of_the_job_while_it_is_short(self, training: Story) -> None:
        starves(training, 100)

        assert now(training).name is gpu(training.state).verdict.name is STARVED
        assert s(95) <= now(training).window_ns <= s(101)

    def test_forgets_what_was_more_than_ten_minutes_ago(self, training: Story) -> None:
        starves(training, 600)
        works(training, 700)

        assert gpu(training.state).verdict.name is STARVED
        assert now(training).name is HEALTHY
        assert s(590) <= now(training).window_ns <= s(610)

    def test_finds_what_hours_of_health_hide(self, training: Story) -> None:
        works(training, 2_000)
        starves(training, 80)

        assert gpu(training.state).verdict.name is HEALTHY
        assert now(training).name is STARVED

    def test_begins_at_five_percent_and_ends_below_three(self, training: Story) -> None:
        starves(training, 600)
        works(training, 550)
        share = now(training).totals.starved_ns / now(training).window_ns
        assert 0.03 < share < 0.05
        assert now(training).name is STARVED
        works(training, 40)
        assert now(training).name is HEALTHY

    def test_is_of_one_job_alone(self, story: Story) -> None:
        story.processes[0] = (ProcessSample(7, None),)
        story.pass_seconds(100, 1.0)
        for _ in range(50):
            story.pass_second(0.0)
            story.pass_second(1.0)
        story.processes[0] = ()
        story.pass_seconds(5, 0.0)
        story.processes[0] = (ProcessSample(8, None),)
        story.pass_seconds(30, 1.0)

        assert now(story).name is HEALTHY
        assert now(story).window_ns <= s(31)


class TestSince:
    def test_is_the_beginning_of_the_job_while_its_verdict_stays(self, training: Story) -> None:
        starves(training, 100)
        assert abs(now(training).since_ns - s(1000)) <= s(1)
        since_ns = now(training).since_ns
        starves(training, 700)

        assert now(training).since_ns == since_ns

    def test_is_when_the_verdict_changed(self, training: Story) -> None:
        works(training, 1_000)
        changed_ns = training.now_ns
        starves(training, 100)

        assert s(30) <= now(training).since_ns - changed_ns <= s(70)


class TestAfterAJob:
    def test_the_gpu_is_not_in_use_since_it_was_active_last(self, training: Story) -> None:
        starves(training, 100)
        ended_ns = training.now_ns
        training.end_ring()
        training.pass_seconds(30, 0.0)

        found = now(training)
        assert (found.name, found.since_ns, found.ended_ns) == (
            VerdictName.NOT_IN_USE,
            ended_ns,
            ended_ns,
        )

    def test_its_complete_loss_stays_known(self, training: Story) -> None:
        starves(training, 700)
        works(training, 700)
        training.end_ring()
        training.pass_seconds(10, 0.0)

        assert now(training).verdict.name is STARVED
        assert s(1390) <= now(training).window_ns <= s(1402)

    def test_a_gpu_that_no_process_used_has_no_last_job(self, story: Story) -> None:
        story.pass_seconds(30, 0.0)

        assert (now(story).name, now(story).ended_ns) == (VerdictName.NOT_IN_USE, None)


class TestAStandstill:
    def test_of_a_run_that_hangs_is_what_goes_on_now(self, training: Story) -> None:
        works(training, 60)
        last_ns = training.now_ns
        training.pass_seconds(60, 0.0, phases=[(0.0, WAIT)])
        assert (now(training).name, now(training).since_ns) == (VerdictName.HANGING, last_ns)
        works(training, 20)
        assert (now(training).name, now(training).before) == (HEALTHY, VerdictName.HANGING)

    def test_of_a_stopped_process_is_no_use(self, training: Story) -> None:
        starves(training, 60)
        stopped_ns = training.now_ns
        training.stop()
        training.pass_seconds(60, 0.0)

        found = now(training)
        assert (found.name, found.since_ns) == (VerdictName.NOT_IN_USE, stopped_ns)
        assert found.is_suspended
        assert found.verdict.name is STARVED

    def test_of_one_of_two_runs_leaves_the_gpu_in_use(self, training: Story) -> None:
        training.ring("other", pid=43)
        training.pass_seconds(30, 1.0, phases=[(0.0, STEP)], key="other", steps=10)
        training.stop()
        training.pass_seconds(30, 1.0, phases=[(0.0, STEP)], key="other", steps=10)

        assert now(training).name is HEALTHY

    def test_of_a_hang_that_is_over_counts_in_no_starved_figure(self, training: Story) -> None:
        works(training, 60)
        training.pass_seconds(100, 0.0, phases=[(0.0, WAIT)])
        works(training, 30)

        whole, lately = gpu(training.state).totals, now(training).totals
        assert whole.starved_ns == s(30)
        assert (lately.starved_ns, lately.hanging_idle_ns) == (0, {})
