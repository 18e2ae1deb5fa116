"""One GPU from tick to tick: its idle time before, during and after runs, and the reasons of it."""

from __future__ import annotations

import pytest

from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.sample import ProcessSample
from gpumon.core.verdict import VerdictName
from gpumon.core.waits.evidence import HostEvidence
from tests.builders.monitor import STEP, WAIT, Phases, Story, gpu
from tests.builders.report import MB, evidence, gil_threads, task
from tests.builders.time import s

START_UP, COMPILE = TrainingPhase.START_UP, TrainingPhase.COMPILE
OTHER, VALIDATION = TrainingPhase.OTHER, TrainingPhase.VALIDATION


@pytest.fixture
def starting(story: Story) -> Story:
    """A run that has been in start-up for two seconds."""
    story.ring()
    story.pass_seconds(2, 0.0, phases=[(0.0, START_UP)])
    return story


@pytest.fixture
def waiting(starting: Story) -> Story:
    """The same, which then has waited for its first batch for six seconds."""
    starting.pass_second(0.0, phases=[(0.0, WAIT)])
    starting.pass_seconds(5, 0.0)
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
        healthy = waiting.pass_seconds(120, 1.0)
        assert gpu(healthy).verdict.name is VerdictName.HEALTHY
        assert (gpu(healthy).totals.starved_now, gpu(healthy).totals.episodes) == (False, 0)

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

        assert (totals.idle_ns, totals.first_input_wait_ns) == ({IdleCause.NOT_IN_USE: s(10)}, 0)

    def test_is_known_if_samples_come_after_the_end_of_the_run(self, waiting: Story) -> None:
        late = waiting.second
        waiting.pass_second(None, phases=[(0.0, STEP), (0.5, STEP)], over_at=0.9)
        totals = gpu(waiting.pass_second_of(late, 1.0)).totals

        assert totals.idle_ns == {IdleCause.INPUT_WAIT: s(6), IdleCause.START_UP: s(2)}
        assert totals.first_input_wait_ns == s(6)

    def test_is_not_taken_from_a_run_whose_beginning_is_lost(self, story: Story) -> None:
        story.ring()
        story.pass_second(0.0, phases=[(0.0, WAIT)])
        state = story.pass_second(1.0, phases=[(0.0, STEP)])

        assert (gpu(state).totals.starved_ns, gpu(state).totals.first_input_wait_ns) == (s(1), 0)
        assert state.runs[0].first_input_wait_ns is None


class TestALoopWithoutTheStepPhase:
    @pytest.mark.parametrize("counts_steps", [True, False])
    def test_waits_for_its_first_batch_only_once(self, starting: Story, counts_steps: bool) -> None:
        for _ in range(20):
            starting.pass_second(0.0, phases=[(0.0, WAIT)])
            starting.pass_second(1.0, phases=[(0.0, OTHER)], steps=int(counts_steps))

        totals = gpu(starting.state).totals
        assert (totals.first_input_wait_ns, totals.starved_ns) == (s(1), s(19))
        assert gpu(starting.state).verdict.name is VerdictName.STARVED

    def test_has_had_its_first_batch_before_a_daemon_that_starts_later(self, story: Story) -> None:
        story.ring()
        story.second = 30
        before = [(-30.0, START_UP), (-29.0, WAIT), (-28.0, OTHER)]
        for _ in range(20):
            story.pass_second(0.0, phases=[*before, (0.0, WAIT)])
            before = []
            story.pass_second(1.0, phases=[(0.0, OTHER)])

        assert gpu(story.state).totals.starved_ns == s(20)


class TestCompilingBeforeTheFirstWork:
    def test_may_be_an_amount_at_the_end_of_a_step(self, starting: Story) -> None:
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


def lose(story: Story) -> None:
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
    lose(story)
    return story


class TestAProcessThatLivesOnAfterTraining:
    def test_keeps_its_proved_losses(self, with_losses: Story) -> None:
        before = gpu(with_losses.state)
        with_losses.pass_second(0.0, over_at=0.0)
        after = gpu(with_losses.pass_seconds(300, 0.0))

        assert before.verdict.name is VerdictName.STARVED
        assert after.verdict == before.verdict
        assert after.totals.idle_ns == {IdleCause.INPUT_WAIT: s(10), IdleCause.NOT_IN_USE: s(301)}
        assert (after.totals.in_use_ns, after.totals.pending_ns) == (s(21), 0)
        lose(with_losses)
        again = gpu(with_losses.state).totals
        assert again.idle_ns == {IdleCause.INPUT_WAIT: s(20), IdleCause.NOT_IN_USE: s(301)}

    def test_has_left_once_its_gpu_has_done_its_last_work(self, with_losses: Story) -> None:
        with_losses.pass_second(1.0, over_at=0.0)
        with_losses.pass_second(1.0)
        totals = gpu(with_losses.pass_seconds(30, 0.0)).totals

        assert (totals.idle_ns[IdleCause.NOT_IN_USE], totals.pending_ns) == (s(30), 0)

    def test_goes_on_where_its_process_stays_after_the_end_of_its_ring(
        self, with_losses: Story
    ) -> None:
        with_losses.end_ring()
        totals = gpu(with_losses.pass_seconds(10, 0.0)).totals
        is_listed = bool(with_losses.processes[0])

        assert totals.pending_ns == (s(10) if is_listed else 0)

    def test_without_a_mark_of_its_end_is_over_a_minute_after_its_last_record(
        self, with_losses: Story
    ) -> None:
        with_losses.pass_second(0.0, phases=[(0.0, OTHER)])
        assert gpu(with_losses.pass_seconds(40, 0.0)).totals.pending_ns == s(41)
        after = gpu(with_losses.pass_seconds(40, 0.0)).totals

        assert (after.idle_ns[IdleCause.NOT_IN_USE], after.pending_ns) == (s(81), 0)

    def test_that_works_on_without_tags_is_diagnosed_as_untagged(self, with_losses: Story) -> None:
        with_losses.pass_second(0.0, over_at=0.0)
        for _ in range(10):
            with_losses.pass_second(0.0)
            state = with_losses.pass_second(1.0)

        assert gpu(state).totals.idle_ns[IdleCause.UNKNOWN] == s(9)  # between its ten bursts
        assert gpu(state).verdict.name is VerdictName.STARVED

    def test_in_an_untagged_phase_loses_unknown_time_and_nothing_proved(
        self, with_losses: Story
    ) -> None:
        for _ in range(10):
            with_losses.pass_second(0.0, phases=[(0.0, OTHER)])
            with_losses.pass_seconds(4, 0.0)
            state = with_losses.pass_second(1.0, phases=[(0.0, STEP)])

        verdict = gpu(state).verdict
        assert gpu(state).totals.idle_ns[IdleCause.UNKNOWN] == s(50)
        assert (verdict.name, verdict.main_cause) == (VerdictName.STARVED, IdleCause.UNKNOWN)
        assert verdict.coverage_ratio == pytest.approx(31 / 81)


@pytest.mark.parametrize("tags_waits", [True, False])
def test_untagged_pauses_are_suspected_only_of_a_run_that_tags_no_waits(
    story: Story, tags_waits: bool
) -> None:
    story.ring()
    story.pass_second(1.0, phases=[(0.0, WAIT if tags_waits else OTHER), (0.1, OTHER)])
    for busy_s in (3, 5, 8) * 20:
        story.pass_seconds(busy_s, 1.0)
        story.pass_seconds(3, 0.0)
    state = story.pass_second(1.0)

    assert (gpu(state).totals.suspected_ns > 0) is not tags_waits


HALF_WAITS: Phases = [(0.0, WAIT), (0.5, STEP)]
LOADS: Phases = [(0.0, WAIT), (0.2, OTHER)]


@pytest.mark.parametrize("gpus", [("0",), None], ids=["named GPU", "no process list"])
def test_workers_that_tag_take_no_share_of_the_idle_time_and_use_no_gpu(
    story: Story, gpus: tuple[str, ...] | None
) -> None:
    story.ring(gpus=gpus)
    for worker in range(8):
        story.ring(f"worker {worker}", gpus=gpus, pid=100 + worker)
    tagged = {"train": HALF_WAITS, **{f"worker {n}": LOADS for n in range(8)}}
    for _ in range(60):
        story.pass_second_with(tagged, 0.5, steps={"train": 1})

    totals = gpu(story.state).totals
    assert gpu(story.state).verdict.name is VerdictName.STARVED
    assert totals.starved_ns / totals.in_use_ns == pytest.approx(0.5, abs=0.01)
    assert IdleCause.UNKNOWN not in totals.idle_ns
    assert [run.gpu_uuids for run in story.state.runs[1:]] == [()] * 8


class TestASecondRunOnTheGpu:
    @pytest.mark.parametrize("begins_with", [OTHER, VALIDATION])
    def test_takes_its_share_from_its_first_step_or_validation_on(
        self, story: Story, begins_with: TrainingPhase
    ) -> None:
        story.ring()
        story.ring("second", pid=43)
        story.alter_ring("train", steps=1)
        for _ in range(20):
            story.pass_second_with({"train": HALF_WAITS, "second": [(0.0, begins_with)]}, 0.5)
        idle_ns = dict(gpu(story.state).totals.idle_ns)
        if begins_with is VALIDATION:
            assert idle_ns[IdleCause.VALIDATION] > s(1)
            return
        assert idle_ns == {IdleCause.INPUT_WAIT: s(10)}

        story.alter_ring("second", steps=1)
        story.pass_seconds(20, 0.5, phases=HALF_WAITS)

        assert gpu(story.state).totals.idle_ns[IdleCause.INPUT_WAIT] < s(19)
        assert story.state.runs[1].gpu_uuids == ("GPU-0",)

    @pytest.mark.parametrize("first", ["hangs", "is stopped", "is over"])
    def test_has_its_own_causes_next_to_one_that_does_not_go_on(
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
        story.pass_second(1.0, phases=[(0.0, COMPILE)], key="second")
        story.pass_seconds(30, 0.0, key="second")
        story.pass_seconds(10, 0.0, phases=[(0.0, WAIT)], key="second")
        story.pass_seconds(10, 1.0, phases=[(0.0, STEP)], key="second", steps=4)

        idle_ns = gpu(story.state).totals.idle_ns
        assert idle_ns[IdleCause.COMPILE] - before_ns.get(IdleCause.COMPILE, 0) == s(30)
        assert idle_ns[IdleCause.INPUT_WAIT] - before_ns.get(IdleCause.INPUT_WAIT, 0) == s(10)

    def test_uses_it_like_the_first_if_neither_has_begun(self, story: Story) -> None:
        story.ring()
        story.ring("second", pid=43)
        story.pass_second(0.0, phases=[(0.0, WAIT)])
        story.pass_second(1.0, phases=[(0.0, WAIT)], key="second")

        assert {run.gpu_uuids for run in story.state.runs} == {("GPU-0",)}


CROWDED = evidence(workers=(task(1.0, 0.5),) * 4)
COLD = evidence(workers=(task(0.2),), read_bytes_per_second=50 * MB, disk_busy_ratio=0.9)
LOCKED = evidence(threads=gil_threads(3), waiting=0.0)


class TestTheReasonOfAWait:
    def test_is_that_of_the_evidence_at_that_time(self, training: Story) -> None:
        training.pass_second(0.0, phases=[(0.0, WAIT)])
        for sample in (CROWDED, COLD):
            training.host_samples["train"] = sample
            training.pass_second(0.0)
        training.host_samples["train"] = CROWDED
        state = training.pass_second(0.75, phases=[(0.0, WAIT)])  # idle for a quarter of it

        reasons = dict(gpu(state).totals.input_wait_by_reason_ns)
        assert reasons == {"unknown": s(1), "cpu_bound": s(1.25), "disk_bound": s(1)}
        (reported,) = (one for one in state.runs[0].reasons if one.reason.value == "cpu_bound")
        assert (reported.cause, reported.waited_ns) == (IdleCause.INPUT_WAIT, s(1.25))
        assert reported.confidence == pytest.approx(1.25 / 2.25)
        assert reported.figures is not None
        assert reported.figures.wanted_cores == pytest.approx(4.0)

    def test_is_known_before_the_first_work_too(self, story: Story) -> None:
        story.ring()
        story.host_samples["train"] = COLD
        story.pass_seconds(3, 0.0, phases=[(0.0, WAIT)])
        state = story.pass_second(1.0, phases=[(0.0, STEP)])

        assert gpu(state).totals.input_wait_by_reason_ns == {"disk_bound": s(3)}

    def test_of_two_runs_is_that_of_each(self, training: Story) -> None:
        training.ring("second", pid=43)
        training.pass_second_with({"second": [(0.0, STEP)]}, 1.0)
        training.host_samples |= {"train": CROWDED, "second": COLD}
        waits: Phases = [(0.0, WAIT)]
        state = training.pass_second_with({"train": waits, "second": waits}, 0.0)

        assert gpu(state).totals.input_wait_by_reason_ns == {
            "cpu_bound": s(0.5), "disk_bound": s(0.5),
        }  # fmt: skip
        assert [[one.waited_ns for one in run.reasons] for run in state.runs] == [[s(0.5)]] * 2

    @pytest.mark.parametrize(("evidence", "reason"), [(LOCKED, "gil_bound"), (CROWDED, "unknown")])
    def test_within_a_step_is_only_the_gil(
        self, training: Story, evidence: HostEvidence, reason: str
    ) -> None:
        training.host_samples["train"] = evidence
        training.pass_second(0.4, phases=[(0.0, STEP)])

        assert gpu(training.state).totals.within_step_by_reason_ns == {reason: s(0.6)}


class TestAJobWhoseProcessesLeave:
    """Process lists come at other times than samples, which may be some seconds older."""

    @pytest.mark.parametrize("listed_every", [1, 5, 7])
    @pytest.mark.parametrize("drained_every", [1, 4, 5])
    @pytest.mark.parametrize("left_after", range(5))
    def test_ends_with_the_samples_of_that_time(
        self, listed_every: int, drained_every: int, left_after: int
    ) -> None:
        story = Story(drained_every=drained_every)
        for second in range(80):
            is_there = second < 50 + left_after
            if second % listed_every == 0:
                story.processes_at_ns = story.now_ns + s(0.99)
                story.processes[0] = (ProcessSample(7, 1 << 30, uid=1000),) if is_there else ()
            story.pass_second(float(is_there))
        totals = gpu(story.state).totals

        assert totals.busy_ns == s(50 + left_after)
        assert totals.pending_ns == 0
        assert totals.idle_ns == {IdleCause.NOT_IN_USE: totals.observed_ns - totals.busy_ns}


class TestTimeBeforeARun:
    @pytest.mark.parametrize("drained_every", [1, 4, 5])
    def test_is_no_start_up_of_that_run_though_its_samples_come_later(
        self, drained_every: int
    ) -> None:
        story = Story(drained_every=drained_every)
        for key in ("first", "second"):
            story.pass_seconds(13, 0.0)
            story.ring(key)
            story.pass_second(0.0, phases=[(0.0, WAIT)], key=key)
            for _ in range(20):
                story.pass_second(1.0, phases=[(0.0, STEP)], key=key)
            story.end_ring(key)
        story.pass_seconds(12, 0.0)

        assert gpu(story.state).totals.idle_ns == {
            IdleCause.NOT_IN_USE: s(38),
            IdleCause.INPUT_WAIT: s(2),
        }
