"""One GPU from tick to tick: its idle time before, during and after runs, and the reasons of it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.sample import ProcessSample
from gpumon.core.verdict import VerdictName
from gpumon.core.waits.evidence import HostEvidence
from tests.builders.monitor import STEP, WAIT, Phases, Story, gpu
from tests.builders.report import MB, gil_threads, look, task
from tests.builders.time import s

START_UP, COMPILE = TrainingPhase.START_UP, TrainingPhase.COMPILE
OTHER, VALIDATION = TrainingPhase.OTHER, TrainingPhase.VALIDATION


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


def train(story: Story) -> None:
    """Twenty seconds, with a wait for input in every other one."""
    for _ in range(10):
        story.pass_second(0.0, phases=[(0.0, WAIT)])
        story.pass_second(1.0, phases=[(0.0, STEP)])


@pytest.fixture(params=[None, (ProcessSample(42, None),)], ids=["no list", "listed"])
def with_losses(request: pytest.FixtureRequest, story: Story) -> Story:
    """A run on GPU 0 that began with a burst; a notebook stays in the process list."""
    story.processes[0] = request.param
    story.ring()
    story.pass_second(1.0, phases=[(0.0, STEP)])
    train(story)
    return story


class TestAProcessThatLivesOn:
    def test_keeps_what_its_training_proved(self, with_losses: Story) -> None:
        before = gpu(with_losses.state)
        with_losses.pass_second(0.0, over_at=0.0)
        after = gpu(with_losses.pass_seconds(300, 0.0))

        assert before.verdict.name is after.verdict.name is VerdictName.STARVED
        assert after.verdict == before.verdict
        assert after.totals.idle_ns == {IdleCause.INPUT_WAIT: s(10), IdleCause.NOT_IN_USE: s(301)}
        assert after.totals.in_use_ns == s(21)
        assert after.totals.pending_ns == 0

    def test_without_a_mark_of_its_end_is_over_a_minute_after_its_last_record(
        self, with_losses: Story
    ) -> None:
        with_losses.pass_second(0.0, phases=[(0.0, OTHER)])
        assert gpu(with_losses.pass_seconds(40, 0.0)).totals.pending_ns == s(41)
        after = gpu(with_losses.pass_seconds(40, 0.0))

        assert after.totals.idle_ns[IdleCause.NOT_IN_USE] == s(81)
        assert after.totals.pending_ns == 0
        assert after.verdict.name is VerdictName.STARVED

    def test_that_trains_again_was_not_in_use_in_between(self, with_losses: Story) -> None:
        with_losses.pass_second(0.0, over_at=0.0)
        with_losses.pass_seconds(9, 0.0)
        train(with_losses)

        totals = gpu(with_losses.state).totals
        assert totals.idle_ns == {IdleCause.INPUT_WAIT: s(20), IdleCause.NOT_IN_USE: s(10)}
        assert totals.in_use_ns == s(41)

    def test_that_works_on_without_tags_is_diagnosed_as_untagged(self, with_losses: Story) -> None:
        with_losses.pass_second(0.0, over_at=0.0)
        for _ in range(10):
            with_losses.pass_second(0.0)
            state = with_losses.pass_second(1.0)

        idle_ns = gpu(state).totals.idle_ns
        assert idle_ns[IdleCause.UNKNOWN] == s(9)  # between its ten bursts
        assert gpu(state).verdict.name is VerdictName.STARVED


class TestTimeInAnUntaggedPhase:
    def test_becomes_unknown_and_makes_no_proved_loss_smaller(self, with_losses: Story) -> None:
        for _ in range(10):
            with_losses.pass_second(0.0, phases=[(0.0, OTHER)])
            with_losses.pass_seconds(4, 0.0)
            state = with_losses.pass_second(1.0, phases=[(0.0, STEP)])

        verdict = gpu(state).verdict
        assert gpu(state).totals.idle_ns[IdleCause.UNKNOWN] == s(50)
        assert verdict.name is VerdictName.STARVED
        assert verdict.coverage_ratio == pytest.approx(31 / 81)
        assert verdict.main_cause is IdleCause.UNKNOWN


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


CROWDED = look(workers=(task(1.0, 0.5),) * 4)
COLD = look(workers=(task(0.2),), read_bytes_per_second=50 * MB, disk_busy_ratio=0.9)
LOCKED = look(threads=gil_threads(3), waiting=0.0)


def by_reason(story: Story) -> dict[str, int]:
    return dict(gpu(story.state).totals.input_wait_by_reason_ns)


class TestAWait:
    def test_has_the_reason_of_the_evidence_at_that_time(self, training: Story) -> None:
        training.pass_second(0.0, phases=[(0.0, WAIT)])
        for evidence in (CROWDED, COLD):
            training.looks["train"] = evidence
            training.pass_second(0.0)

        assert by_reason(training) == {"unknown": s(1), "cpu_bound": s(1), "disk_bound": s(1)}

    def test_is_as_long_as_the_gpu_was_idle(self, training: Story) -> None:
        training.looks["train"] = CROWDED
        training.pass_second(0.75, phases=[(0.0, WAIT)])

        assert by_reason(training) == {"cpu_bound": s(0.25)}

    def test_before_the_first_work_has_one_too(self, story: Story) -> None:
        story.ring()
        story.looks["train"] = COLD
        story.pass_seconds(3, 0.0, phases=[(0.0, WAIT)])
        story.pass_second(1.0, phases=[(0.0, STEP)])

        assert by_reason(story) == {"disk_bound": s(3)}

    def test_of_two_runs_is_each_ones_own(self, training: Story) -> None:
        training.ring("second", pid=43)
        training.pass_second_with({"second": [(0.0, STEP)]}, 1.0)
        training.looks |= {"train": CROWDED, "second": COLD}
        training.pass_second_with({"train": [(0.0, WAIT)], "second": [(0.0, WAIT)]}, 0.0)

        assert by_reason(training) == {"cpu_bound": s(0.5), "disk_bound": s(0.5)}
        first, second = training.state.runs
        assert [one.waited_ns for one in first.reasons] == [s(0.5)]
        assert [one.waited_ns for one in second.reasons] == [s(0.5)]

    def test_is_in_the_run_with_its_figures(self, training: Story) -> None:
        training.looks["train"] = CROWDED
        training.pass_seconds(4, 0.5, phases=[(0.0, WAIT)])

        (reported,) = training.state.runs[0].reasons

        assert (reported.cause, reported.reason.value) == (IdleCause.INPUT_WAIT, "cpu_bound")
        assert (reported.waited_ns, reported.confidence) == (s(2), 1.0)
        assert reported.figures is not None
        assert reported.figures.wanted_cores == pytest.approx(4.0)


class TestAStep:
    @pytest.mark.parametrize(("evidence", "reason"), [(LOCKED, "gil_bound"), (CROWDED, "unknown")])
    def test_is_held_up_only_by_the_gil(
        self, training: Story, evidence: HostEvidence, reason: str
    ) -> None:
        training.looks["train"] = evidence
        training.pass_second(0.4, phases=[(0.0, STEP)])

        assert gpu(training.state).totals.within_step_by_reason_ns == {reason: s(0.6)}
