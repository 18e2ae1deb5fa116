"""Runs that hang or whose process is stopped, and the verdict on now of their GPU."""

from __future__ import annotations

import pytest

from gpumon.core.accounting.totals import NowVerdict
from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.ring_format.events import LOOP_BEGAN, RingEvent, RingKind
from gpumon.core.sample import ProcessSample
from gpumon.core.verdict import Severity, VerdictName
from gpumon.outlets.text.headline import verdict_line
from gpumon.outlets.text.report_lines import next_line
from gpumon.pipeline.state_report import report_of
from tests.builders.monitor import STEP, WAIT, Story, gpu
from tests.builders.time import s

START_UP, OTHER = TrainingPhase.START_UP, TrainingPhase.OTHER
HANGING, STARVED, HEALTHY = VerdictName.HANGING, VerdictName.STARVED, VerdictName.HEALTHY


def train(story: Story, seconds: int, key: str = "train") -> None:
    story.pass_seconds(seconds, 1.0, phases=[(0.0, STEP)], key=key, steps=10)


def now(story: Story) -> NowVerdict:
    found = gpu(story.state).now
    assert found is not None
    return found


@pytest.fixture
def trained(story: Story) -> Story:
    """A run that has trained on GPU 0 for a minute, and starved for a fifth of it."""
    story.ring()
    for _ in range(12):
        story.pass_second(0.0, phases=[(0.0, WAIT)])
        train(story, 4)
    return story


class TestARunThatWaitsForInputForLong:
    def test_is_starved_up_to_the_limit_and_then_hangs(self, trained: Story) -> None:
        before = gpu(trained.pass_seconds(30, 0.0, phases=[(0.0, WAIT)]))
        after = gpu(trained.pass_seconds(60, 0.0))

        assert (before.verdict.name, before.totals.starved_ns) == (STARVED, s(42))
        assert (after.verdict.name, after.verdict.severity) == (HANGING, Severity.HIGH)
        assert (after.totals.starved_ns, after.totals.hanging_ns) == (s(42), s(60))
        assert after.totals.idle_ns[IdleCause.INPUT_WAIT] == s(102)
        silence = trained.state.runs[0].silence
        assert silence is not None
        assert (silence.phase, silence.is_hanging) == (WAIT, True)
        assert silence.since_ns == trained.now_ns - s(90)
        assert (now(trained).name, now(trained).since_ns) == (HANGING, silence.since_ns)

    def test_has_its_verdict_back_once_it_goes_on(self, trained: Story) -> None:
        trained.pass_seconds(90, 0.0, phases=[(0.0, WAIT)])
        train(trained, 60)
        after = gpu(trained.state)

        assert after.verdict.name is STARVED
        assert after.totals.starved_ns == s(42)
        assert not after.totals.hanging_now
        assert (now(trained).name, now(trained).before) == (HEALTHY, HANGING)
        assert now(trained).totals.hanging_idle_ns == {}

    def test_raises_no_flag_by_what_passes_then(self, trained: Story) -> None:
        train(trained, 100)
        assert not gpu(trained.state).totals.starved_now
        trained.pass_seconds(33, 1.0)
        assert gpu(trained.state).verdict.name is HANGING
        trained.pass_seconds(100, 0.0, phases=[(0.0, WAIT)])

        assert not gpu(trained.state).totals.starved_now

    def test_hangs_where_its_gpu_spins(self, trained: Story) -> None:
        after = gpu(trained.pass_seconds(90, 1.0, phases=[(0.0, STEP)]))

        assert (after.verdict.name, after.totals.hanging_ns) == (HANGING, s(60))

    def test_is_no_hang_any_more_once_its_process_is_gone(self, trained: Story) -> None:
        trained.pass_seconds(90, 0.0, phases=[(0.0, WAIT)])
        trained.end_ring()

        assert gpu(trained.pass_second(0.0)).verdict.name is STARVED

    def test_is_no_hang_of_the_gpu_while_another_run_works_there(self, trained: Story) -> None:
        trained.ring("other", pid=43, job="another")
        train(trained, 60, "other")

        silences = {run.run: run.silence for run in trained.state.runs if run.silence is not None}
        assert gpu(trained.state).verdict.name is not HANGING
        assert {name: one.is_hanging for name, one in silences.items()} == {
            "train": True, "other": False,
        }  # fmt: skip


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
        assert (gpu(after).verdict.name, gpu(after).totals.hanging_ns) == (HANGING, s(59.5))
        assert gpu(after, 1).verdict.name is VerdictName.NOT_IN_USE

        train(story, 60)
        totals = gpu(story.state).totals
        assert totals.hanging_idle_ns[IdleCause.INPUT_WAIT] > totals.starved_ns == 0

    def test_is_no_hang_of_a_gpu_that_it_may_only_see(self, story: Story) -> None:
        story.ring(gpus=None)
        story.pass_second(0.0, 0.0, phases=[(0.0, START_UP), (0.0, WAIT)])
        state = story.pass_seconds(400, 0.0, 0.0)

        assert {one.verdict.name for one in state.gpus} == {VerdictName.NOT_IN_USE}
        assert state.runs[0].silence is not None
        assert state.runs[0].silence.is_hanging


class TestARankThatWaitsForAnother:
    @pytest.fixture
    def ranks(self, story: Story) -> Story:
        """Two ranks of a job that have trained for a minute."""
        for rank in (0, 1):
            key = f"r{rank}"
            story.ring(key, gpus=(str(rank),), pid=41 + rank)
            story.alter_facts(key, rank=rank, world_size=2)
        for _ in range(60):
            story.pass_second(1.0, 1.0, phases=[(0.0, STEP)], key="r0", steps=4)
            story.pass_second(1.0, 1.0, phases=[(0.0, STEP)], key="r1", steps=4)
        return story

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
    def test_before_the_first_step_sets_no_limit_for_others(self, story: Story) -> None:
        story.ring()
        story.pass_second(1.0, phases=[(0.0, TrainingPhase.VALIDATION)])
        train(story, 60)
        story.pass_second(1.0, phases=[(0.0, TrainingPhase.VALIDATION)])

        assert gpu(story.pass_seconds(120, 1.0)).verdict.name is HEALTHY


class TestAHangThatIsOver:
    @pytest.mark.parametrize("goes_on_s", [0, 5])
    def test_with_its_job_is_named_and_dated_unless_it_went_on(
        self, trained: Story, goes_on_s: int
    ) -> None:
        trained.pass_seconds(840, 0.0, phases=[(0.0, STEP)])
        if goes_on_s:
            train(trained, goes_on_s)
        trained.end_ring()
        report = report_of(trained.pass_seconds(5, 0.0))

        named = verdict_line(report).startswith("hung until the job ended at 00:15 UTC: The run on")
        assert named is not bool(goes_on_s)
        assert ("look at the end of its log" in next_line(report)) is named

    def test_in_untagged_code_within_a_marked_loop_is_never_out_of_use(
        self, trained: Story
    ) -> None:
        began = RingEvent(RingKind.EVENT, trained.now_ns, OTHER, LOOP_BEGAN)
        trained._second((1.0,), {"train": [began]})
        train(trained, 10)
        hung = gpu(trained.pass_seconds(300, 0.0, phases=[(0.0, OTHER)]))
        assert hung.verdict.name is HANGING
        train(trained, 20)

        assert gpu(trained.state).totals.idle_ns.get(IdleCause.NOT_IN_USE, 0) == 0


class TestAStoppedProcess:
    @pytest.mark.parametrize("phase", TrainingPhase)
    def test_does_not_use_its_gpu_in_any_phase(self, trained: Story, phase: TrainingPhase) -> None:
        trained.pass_second(0.0, phases=[(0.0, phase)])
        before = gpu(trained.state)
        stopped_ns = trained.now_ns
        trained.stop()
        after = gpu(trained.pass_seconds(60, 0.0))

        assert after.totals.idle_ns[IdleCause.NOT_IN_USE] == s(60)
        assert after.totals.in_use_ns == before.totals.in_use_ns
        assert after.totals.starved_ns == before.totals.starved_ns
        assert after.totals.pending_ns == before.totals.pending_ns
        assert after.verdict.name is before.verdict.name
        assert not after.totals.hanging_now
        assert (now(trained).name, now(trained).since_ns) == (VerdictName.NOT_IN_USE, stopped_ns)
        assert now(trained).is_suspended
        (run,) = trained.state.runs
        assert (run.suspended_since_ns, run.silence) == (stopped_ns, None)

    def test_loses_time_again_after_the_tick_that_finds_it_running(self, trained: Story) -> None:
        before_ns = gpu(trained.state).totals.idle_ns[IdleCause.INPUT_WAIT]
        trained.pass_seconds(5, 0.0, phases=[(0.0, WAIT)])
        trained.stop()
        trained.pass_seconds(60, 0.0)
        trained.resume()
        trained.pass_second(0.0)  # it is not known since when it runs
        after = gpu(trained.pass_seconds(4, 0.0))

        assert after.totals.idle_ns == {
            IdleCause.INPUT_WAIT: before_ns + s(9), IdleCause.NOT_IN_USE: s(61),
        }  # fmt: skip
        assert trained.state.runs[0].suspended_since_ns is None

    def test_resumes_with_its_first_record(self, trained: Story) -> None:
        trained.pass_seconds(5, 0.0, phases=[(0.0, WAIT)])
        trained.stop()
        trained.pass_seconds(60, 0.0)
        trained.resume()
        after = gpu(trained.pass_second(0.75, phases=[(0.25, STEP)], steps=4))

        assert after.totals.idle_ns[IdleCause.NOT_IN_USE] == s(60.25)

    def test_is_no_part_of_its_pace_nor_of_a_pause(self, trained: Story) -> None:
        before, before_gaps = trained.state.runs[0].step_ns, gpu(trained.state).totals.gaps
        for _ in range(20):
            trained.pass_seconds(3, 0.0, phases=[(0.0, WAIT)])
            trained.stop()
            trained.pass_seconds(30, 0.0)
            trained.resume()
            trained.pass_seconds(2, 0.0, phases=[(0.0, WAIT)])
            train(trained, 2)

        gaps = gpu(trained.state).totals.gaps
        assert trained.state.runs[0].step_ns == pytest.approx(before, rel=0.1)
        assert gaps.count - before_gaps.count == 20
        assert gaps.total_ns - before_gaps.total_ns == 20 * s(5)

    def test_that_is_killed_leaves_its_proved_loss(self, trained: Story) -> None:
        before = gpu(trained.state)
        trained.stop()
        trained.pass_seconds(60, 0.0)
        trained.resume()
        trained.end_ring()
        after = gpu(trained.pass_seconds(5, 0.0))

        assert after.verdict.name is before.verdict.name is STARVED
        assert after.totals.starved_ns == before.totals.starved_ns

    def test_before_its_first_batch_waits_for_none(self, story: Story) -> None:
        story.ring()
        story.pass_second(0.0, phases=[(0.0, START_UP), (0.0, WAIT)])
        story.pass_seconds(9, 0.0)
        story.stop()
        story.pass_seconds(400, 0.0)
        assert not gpu(story.state).totals.hanging_now
        story.resume()
        train(story, 1)

        totals = gpu(story.state).totals
        assert totals.first_input_wait_ns == s(10)
        assert totals.idle_ns[IdleCause.NOT_IN_USE] == s(400)
        assert totals.in_use_ns == s(11)


class TestAStoppedProcessAndAnotherOnItsGpu:
    def test_are_suspended_if_the_other_is_done(self, story: Story) -> None:
        story.ring("done", pid=41, job="a")
        train(story, 30, "done")
        story.pass_second(0.0, over_at=0.1, key="done")
        story.ring("stopped", pid=42, job="b")
        train(story, 30, "stopped")
        story.stop("stopped")
        story.pass_seconds(60, 0.0, key="stopped")

        assert now(story).is_suspended

    @pytest.mark.parametrize("other", ["tagged", "untagged"])
    def test_are_at_work_where_the_other_is(self, trained: Story, other: str) -> None:
        if other == "tagged":
            trained.ring("other", pid=43)
            train(trained, 30, "other")
            trained.stop()
            train(trained, 30, "other")
        else:
            trained.processes[0] = (ProcessSample(42, None), ProcessSample(99, None))
            trained.stop()
            trained.pass_seconds(60, 1.0)

        assert not now(trained).is_suspended
        assert now(trained).name is not VerdictName.NOT_IN_USE


class TestTheVerdictOnNow:
    def test_is_that_of_the_last_ten_minutes_in_use(self, story: Story) -> None:
        story.ring()
        for _ in range(300):
            story.pass_second(0.0, phases=[(0.0, WAIT)])
            train(story, 1)
        assert now(story).name is gpu(story.state).verdict.name is STARVED
        train(story, 700)

        assert gpu(story.state).verdict.name is STARVED
        assert now(story).name is HEALTHY
        assert s(590) <= now(story).window_ns <= s(610)

        ended_ns = story.now_ns
        story.end_ring()
        story.pass_seconds(30, 0.0)
        ended = now(story)
        assert (ended.name, ended.verdict.name) == (VerdictName.NOT_IN_USE, STARVED)
        assert ended.since_ns == ended.ended_ns == ended_ns

    @pytest.mark.parametrize("drained_every", [1, 4, 5])
    def test_begins_with_the_job_however_late_its_samples_are_read(
        self, drained_every: int
    ) -> None:
        story = Story(drained_every=drained_every)
        began_ns = story.now_ns
        story.ring()
        for _ in range(10):
            story.pass_second(1.0, phases=[(0.0, STEP)])
            story.pass_second(0.0, phases=[(0.0, WAIT)])

        assert now(story).name is STARVED
        assert now(story).since_ns == began_ns

    def test_is_of_one_job_alone(self, story: Story) -> None:
        story.pass_seconds(5, 0.0)
        assert (now(story).name, now(story).ended_ns) == (VerdictName.NOT_IN_USE, None)
        story.processes[0] = (ProcessSample(7, None),)
        for _ in range(50):
            story.pass_second(1.0)
            story.pass_second(0.0)
        story.processes[0] = ()
        story.pass_seconds(5, 0.0)
        story.processes[0] = (ProcessSample(8, None),)
        story.pass_seconds(30, 1.0)

        assert now(story).name is HEALTHY
        assert now(story).window_ns <= s(31)
