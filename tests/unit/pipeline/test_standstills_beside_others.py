"""A run that stands still next to other ranks, other runs, and later ones."""

from __future__ import annotations

import pytest

from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.ring_format.events import LOOP_BEGAN, RingEvent, RingKind
from gpumon.core.sample import ProcessSample
from gpumon.core.verdict import VerdictName
from gpumon.outlets.text.headline import verdict_line
from gpumon.outlets.text.report_lines import next_line
from gpumon.pipeline.reports import report_of
from tests.builders.monitor import STEP, WAIT, Story, gpu
from tests.builders.time import s

START_UP, OTHER = TrainingPhase.START_UP, TrainingPhase.OTHER
HANGING, STARVED, HEALTHY = VerdictName.HANGING, VerdictName.STARVED, VerdictName.HEALTHY


def trains(story: Story, seconds: int, *, wait_s: float = 0.0, key: str = "train") -> None:
    phases = [(0.0, WAIT), (wait_s, STEP)] if wait_s else [(0.0, STEP)]
    story.pass_seconds(seconds, 1.0 - wait_s, phases=phases, key=key, steps=4)


@pytest.fixture
def trained(story: Story) -> Story:
    """A run that has trained on GPU 0 for five minutes."""
    story.ring()
    story.pass_second(0.0, phases=[(0.0, START_UP)])
    trains(story, 300)
    return story


@pytest.fixture
def ranks(story: Story) -> Story:
    """Two ranks of a job that have trained for a minute."""
    for rank in (0, 1):
        key = f"r{rank}"
        story.ring(key, gpus=(str(rank),), pid=41 + rank)
        story.alter_facts(key, rank=rank, world_size=2)
    for _ in range(60):
        story.pass_second(1.0, 1.0, phases=[(0.0, STEP)], key="r0", steps=4)
        story.pass_second(1.0, 1.0, phases=[(0.0, STEP)], key="r1", steps=4)
    return story


class TestARankThatWaitsForAnother:
    @pytest.mark.parametrize("phase", [TrainingPhase.CHECKPOINT, TrainingPhase.COMPILE])
    def test_does_not_hang_while_that_one_cannot_count_a_step(
        self, ranks: Story, phase: TrainingPhase
    ) -> None:
        ranks.pass_second(0.0, 1.0, phases=[(0.0, phase)], key="r0")
        ranks.pass_seconds(99, 0.0, 1.0, key="r0")

        assert gpu(ranks.state, 1).verdict.name is not HANGING
        assert ranks.state.runs[1].silence is None

    def test_hangs_no_longer_once_that_one_is_stopped(self, ranks: Story) -> None:
        ranks.pass_seconds(60, 1.0, 1.0, key="r0")
        assert gpu(ranks.state, 0).verdict.name is HANGING
        hung_ns = gpu(ranks.state, 0).totals.hanging_ns
        ranks.stop("r1")
        ranks.pass_seconds(60, 1.0, 0.0, key="r0")

        assert gpu(ranks.state, 0).verdict.name is not HANGING
        assert gpu(ranks.state, 0).totals.hanging_ns - hung_ns <= s(2)


class TestAValidation:
    def test_that_is_tried_before_the_first_step_sets_no_limit_for_others(
        self, story: Story
    ) -> None:
        story.ring()
        story.pass_second(1.0, phases=[(0.0, TrainingPhase.VALIDATION)])
        trains(story, 60)
        story.pass_second(1.0, phases=[(0.0, TrainingPhase.VALIDATION)])

        assert gpu(story.pass_seconds(120, 1.0)).verdict.name is HEALTHY


class TestAHangThatIsOver:
    def test_leaves_no_verdict_of_starvation(self, trained: Story) -> None:
        trained.pass_seconds(90, 0.0, phases=[(0.0, WAIT)])
        went_on_ns = trained.now_ns
        trains(trained, 60)
        now = gpu(trained.state).now

        assert now is not None
        assert (now.name, now.before) == (HEALTHY, HANGING)
        assert abs(now.since_ns - went_on_ns) <= s(2)

    def test_counts_in_no_starved_figure_where_its_cause_was_pending(self, story: Story) -> None:
        story.ring()
        story.pass_second(0.0, phases=[(0.0, START_UP)])
        story.pass_second(0.0, phases=[(0.0, WAIT)])
        story.pass_seconds(400, 0.0)
        trains(story, 60)
        totals = gpu(story.state).totals

        assert totals.hanging_idle_ns[IdleCause.INPUT_WAIT] > 0
        assert totals.starved_ns == 0
        assert totals.diagnosed.idle_ns[IdleCause.INPUT_WAIT] >= 0

    def test_with_its_job_is_named_and_dated(self, trained: Story) -> None:
        trained.pass_seconds(600, 0.0, phases=[(0.0, STEP)])
        trained.end_ring()
        trained.pass_seconds(5, 0.0)
        report = report_of(trained.state)

        assert verdict_line(report).startswith("hung until the job ended at 00:15 UTC: The run on")
        assert "look at the end of its log" in next_line(report)

    def test_is_not_the_end_of_a_job_that_went_on_for_a_few_seconds(self, trained: Story) -> None:
        trained.pass_seconds(90, 0.0, phases=[(0.0, WAIT)])
        trains(trained, 5)
        trained.end_ring()
        trained.pass_seconds(5, 0.0)

        assert not verdict_line(report_of(trained.state)).startswith("hung")

    def test_in_untagged_code_within_a_marked_loop_is_never_out_of_use(
        self, trained: Story
    ) -> None:
        began = RingEvent(RingKind.EVENT, trained.now_ns, OTHER, LOOP_BEGAN)
        trained.pass_second_with({"train": []}, 1.0)
        trained._second((1.0,), {"train": [began]})
        trains(trained, 10)
        jobs = gpu(trained.pass_seconds(300, 0.0, phases=[(0.0, OTHER)]))
        assert jobs.verdict.name is HANGING
        trains(trained, 20)

        assert gpu(trained.state).totals.idle_ns.get(IdleCause.NOT_IN_USE, 0) == 0


class TestTwoProcessesOnAGpu:
    def test_leave_the_idle_time_to_the_one_that_is_not_stopped(self, story: Story) -> None:
        story.ring("stopped", pid=41, job="a")
        story.ring("slow", pid=42, job="b")
        trains(story, 30, key="stopped")
        trains(story, 30, key="slow")
        before = gpu(story.state).totals.idle_ns.get(IdleCause.NOT_IN_USE, 0)
        story.stop("stopped")
        trains(story, 100, wait_s=0.4, key="slow")
        totals = gpu(story.state).totals

        assert totals.idle_ns.get(IdleCause.NOT_IN_USE, 0) - before <= s(1)
        assert totals.idle_ns[IdleCause.INPUT_WAIT] >= s(39)

    def test_are_suspended_if_one_is_done_and_the_other_stopped(self, story: Story) -> None:
        story.ring("done", pid=41, job="a")
        trains(story, 30, key="done")
        story.pass_second(0.0, over_at=0.1, key="done")
        story.ring("stopped", pid=42, job="b")
        trains(story, 30, key="stopped")
        story.stop("stopped")
        now = gpu(story.pass_seconds(60, 0.0, key="stopped")).now

        assert now is not None
        assert now.is_suspended

    def test_are_at_work_where_the_untagged_one_is(self, trained: Story) -> None:
        trained.processes[0] = (ProcessSample(42, None), ProcessSample(99, None))
        trained.stop()
        now = gpu(trained.pass_seconds(60, 1.0)).now

        assert now is not None
        assert not now.is_suspended
