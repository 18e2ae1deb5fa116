"""Runs: their GPUs, their labels, and their end."""

from __future__ import annotations

import pytest

from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.sample import ProcessSample
from gpumon.core.state import MonitorState
from gpumon.pipeline.state_report import report_of
from tests.builders.monitor import (
    ADA,
    ADAS_PROCESS,
    BEGAN_NS,
    OTHER_USER,
    SAVE,
    STEP,
    WAIT,
    Story,
    gpu,
    other_user,
)
from tests.builders.monitor import training as train
from tests.builders.time import s

COMPILE, START_UP = TrainingPhase.COMPILE, TrainingPhase.START_UP
BETWEEN_EPOCHS = TrainingPhase.BETWEEN_EPOCHS


class TestTheEndOfARun:
    def test_leaves_its_last_second_explained_though_its_pid_has_left_the_list(
        self, story: Story
    ) -> None:
        story.ring(gpus=None, pid=42)
        story.processes[0] = (ProcessSample(42, None),)
        story.pass_second(1.0, phases=[(0.0, STEP), (0.9, WAIT)])
        story.processes[0] = ()
        story.end_ring(after_s=0.75)
        state = story.pass_second(0.0)

        assert gpu(state).totals.idle_ns[IdleCause.INPUT_WAIT] == s(0.75)

    def test_ends_its_job_also_where_the_next_one_works_in_the_same_tick(
        self, training: Story
    ) -> None:
        training.end_ring()
        training.ring("second", pid=43)
        state = training.pass_seconds_at_once(0.0, 0.0, 1.0)

        assert IdleCause.UNKNOWN not in gpu(state).totals.idle_ns
        assert gpu(state).totals.in_use_ns == s(2)

    def test_before_its_first_burst_is_settled_loses_nothing_of_what_led_to_it(
        self, story: Story
    ) -> None:
        story.ring()
        story.pass_seconds(5, 0.0, phases=[(0.0, COMPILE)])
        story.end_ring(after_s=0.9)
        state = story.pass_second(1.0)

        assert gpu(state).totals.idle_ns == {IdleCause.COMPILE: s(5)}

    @pytest.mark.parametrize("listed", [None, (ProcessSample(43, None),)])
    def test_leaves_what_the_next_one_needs_to_start_to_that_one(
        self, story: Story, listed: tuple[ProcessSample, ...] | None
    ) -> None:
        story.ring("first")
        story.processes[0] = listed
        story.pass_seconds(3, 1.0, phases=[(0.0, STEP)], key="first")
        story.ring("second", pid=43)
        story.end_ring("first")
        story.pass_seconds(4, 0.0, phases=[(0.0, START_UP)], key="second")
        state = story.pass_second(1.0, phases=[(0.0, STEP)], key="second")

        idle_ns = dict(gpu(state).totals.idle_ns)
        assert idle_ns.get(IdleCause.UNKNOWN, 0) == 0
        assert sum(idle_ns.values()) == s(4)
        assert idle_ns[IdleCause.START_UP] >= s(3)
        assert gpu(state).totals.in_use_ns == s(4)

    def test_does_not_end_the_job_of_another_that_is_at_work_there(self, training: Story) -> None:
        training.ring("second", pid=43)
        training.pass_second(1.0, phases=[(0.0, STEP)], key="second")
        training.end_ring()
        training.pass_second(0.0, phases=[(0.0, WAIT)], key="second")
        state = training.pass_second(1.0, phases=[(0.0, STEP)], key="second")

        assert gpu(state).totals.idle_ns == {IdleCause.INPUT_WAIT: s(1)}


class TestTwoRunsOfOneName:
    def test_are_distinguished_by_pid_even_when_one_ends(self, story: Story) -> None:
        story.ring("first", run="a")
        story.ring("second", run="a", pid=43)
        story.alter_facts("second", started_ns=story.now_ns + s(1))
        both = story.pass_second(1.0)
        story.end_ring("first")
        after = story.pass_second(1.0)

        for state in (both, after):
            assert [(run.run, run.pid) for run in state.runs] == [("a", 42), ("a-43", 43)]


class TestALabel:
    @pytest.mark.parametrize(
        ("uid", "pid", "labels"),
        [
            (OTHER_USER, 66, [("train", ADA, 42), ("train-66", OTHER_USER, 66)]),
            (ADA, 43, [("train", ADA, 43)]),
        ],
        ids=["not to another user's", "to one of the same user"],
    )
    def test_passes_to_the_next_run(
        self, story: Story, uid: int, pid: int, labels: list[tuple[str, int, int]]
    ) -> None:
        train(story)
        story.pass_second(1.0)
        story.end_ring()
        train(story, "next", uid=uid, pid=pid)
        story.alter_facts("next", run="train")

        state = story.pass_second(1.0)

        assert sorted((run.run, run.owner_uid, run.pid) for run in state.runs) == labels

    def test_of_a_living_run_is_not_given_to_an_unlocked_copy(self, story: Story) -> None:
        other_user(story)
        train(story)
        ring = story.rings["train"]
        story.rings["stranger"] = ring._replace(key="a copy", owner_uid=OTHER_USER)
        story.end_ring("stranger")

        state = story.pass_second(1.0)

        assert sorted((run.run, run.owner_uid, run.alive) for run in state.runs) == [
            ("train", ADA, True),
            (f"train-{ring.host_pid}", OTHER_USER, False),
        ]


class TestThePhasesOfARun:
    def test_count_an_amount_inside_another_phase_once(self, story: Story) -> None:
        story.ring()
        story.pass_second(1.0, phases=[(0.0, SAVE)])
        story.alter_ring(phase_ns={WAIT: s(0.4)})
        state = story.pass_second(1.0, amounts=[(0.0, WAIT, 0.4)])

        assert sum(state.runs[0].phase_ns.values()) == pytest.approx(s(2), abs=s(0.01))

    def test_take_nothing_back_from_a_step_that_turns_out_to_have_been_compiling(
        self, training: Story
    ) -> None:
        reported = training.state.runs[0].phase_ns
        training.alter_ring(phase_ns={COMPILE: s(0.9)})
        then = training.pass_second(1.0, amounts=[(0.0, COMPILE, 0.9)]).runs[0].phase_ns

        assert all(then.get(phase, 0) >= spent_ns for phase, spent_ns in reported.items())
        assert then[COMPILE] == s(0.9)

    def test_never_fall_though_the_rings_sums_lag_behind_the_present_phase(
        self, story: Story
    ) -> None:
        story.ring()
        reported = story.pass_second(0.0, phases=[(0.0, WAIT)]).runs[0].phase_ns[WAIT]
        state = story.pass_second(1.0, phases=[(0.0, STEP)])  # its sums know of no wait yet

        assert reported == s(1)
        assert state.runs[0].phase_ns[WAIT] == s(1)


class TestARunThatIsOverForGood:
    @pytest.fixture
    def over(self, training: Story) -> Story:
        """It was, 20 seconds ago; its GPU has gone on."""
        training.pass_seconds(5, 0.5, phases=[(0.0, STEP), (0.5, WAIT)])
        training.end_ring()
        training.alter_ring(is_gone=True)
        training.pass_seconds(20, 0.0)
        return training

    def test_keeps_its_last_state_and_nothing_that_led_to_it(self, over: Story) -> None:
        (kept,) = over.state.runs
        over.ring("next", pid=43)
        over.pass_second(1.0, phases=[(0.0, STEP)], key="next")
        (first, living) = over.monitor._runs.runs
        assert first.timeline is not living.timeline
        assert first.bounds is not living.bounds
        over.end_ring("next")
        over.alter_ring("next", is_gone=True)
        over.pass_seconds(20, 0.0)

        (first, second) = over.monitor._runs.runs

        assert over.state.runs[0] is kept
        assert first.timeline is second.timeline
        assert first.bounds is second.bounds
        assert first.reasons is second.reasons

    def test_is_shown_as_before_where_its_ring_is_read_again(self, over: Story) -> None:
        before = over.state.runs

        over.alter_ring(phase_ns={}, steps=0)
        over.pass_second(0.0)

        assert over.state.runs == before
        assert over.monitor._runs.on("GPU-0") == ()


class TestARunThatDoesNothing:
    """Only time passes: there may be a hundred such runs, and each state costs."""

    @pytest.fixture
    def quiet(self, training: Story) -> Story:
        training.pass_second(1.0, phases=[(0.0, BETWEEN_EPOCHS)])
        return training

    def test_keeps_its_state_for_a_tenth_of_that_time_and_at_most_five_seconds(
        self, quiet: Story
    ) -> None:
        states = []
        for second in range(1, 121):
            state = quiet.pass_second(0.0).runs[0]
            late_ns = quiet.now_ns - BEGAN_NS - state.wall_ns
            assert late_ns <= min(s(5), s(second) // 10 + s(1) // 10)
            assert state.phase_ns[BETWEEN_EPOCHS] == s(second) + s(1) - late_ns
            states.append(state)

        assert len({id(state) for state in states[-60:]}) <= 1 + 60 // 5

    def test_has_another_state_as_soon_as_it_does_something(self, quiet: Story) -> None:
        quiet.pass_seconds(120, 0.0)
        quiet.pass_second(0.0, phases=[(0.5, STEP)])

        assert quiet.state.runs[0].phase is STEP
        assert quiet.state.runs[0].wall_ns == quiet.now_ns - BEGAN_NS

    def test_has_another_state_as_soon_as_its_process_is_stopped_or_another_gpu_works(
        self, quiet: Story
    ) -> None:
        quiet.alter_facts(gpus=("0", "1"))
        quiet.pass_seconds(121, 0.0, 0.0)
        quiet.pass_second(0.0, 1.0)
        assert quiet.state.runs[0].gpu_uuids == ("GPU-0", "GPU-1")
        quiet.stop()
        quiet.pass_second(0.0, 0.0)
        assert quiet.state.runs[0].suspended_since_ns is not None

    def test_hangs_in_the_second_in_which_its_limit_is_over(self, training: Story) -> None:
        training.pass_seconds(20, 1.0, phases=[(0.0, STEP)], steps=4)
        hangs = [
            (silence := training.pass_second(0.0).runs[0].silence) is not None
            and silence.is_hanging
            for _ in range(60)
        ]
        since_s = hangs.index(True)

        assert all(hangs[since_s:])
        assert 29 <= since_s <= 31


class TestARunThatHasEndedThoughItsProcessLives:
    def test_goes_on_from_what_it_was(self, training: Story) -> None:
        training.pass_seconds(5, 0.5, phases=[(0.0, STEP), (0.5, WAIT)], steps=10)
        training.end_ring()
        ended = training.pass_seconds(20, 0.0).runs[0]

        training.alter_ring(alive=True, ended_ns=None)
        training.pass_seconds(5, 0.5, phases=[(0.0, STEP), (0.5, WAIT)], steps=10)

        (run,) = training.state.runs
        assert run.alive
        assert run.step_ns == ended.step_ns is not None
        assert run.gpu_uuids == ended.gpu_uuids == ("GPU-0",)
        assert gpu(training.state).totals.idle_ns[IdleCause.INPUT_WAIT] == s(5)


class TestARunThatReportsLateThatItComputesOnTheCpu:
    def test_uses_no_gpu_from_then_on(self, story: Story) -> None:
        story.processes[0] = (ProcessSample(7, None, uid=0),)  # another process of its user
        story.ring()
        before = story.pass_second(1.0, phases=[(0.0, TrainingPhase.START_UP)])
        story.alter_facts(on_cpu=True)
        after = story.pass_seconds(20, 0.5, phases=[(0.0, WAIT)])

        assert [state.runs[0].gpu_uuids for state in (before, after)] == [("GPU-0",), ()]
        assert IdleCause.INPUT_WAIT not in gpu(after).totals.idle_ns


class TestARefusedRun:
    @pytest.fixture
    def refused(self, story: Story) -> MonitorState:
        """Ada trains, and another user's run names her GPU, with many facts."""
        story.processes[0] = (ADAS_PROCESS,)
        train(story)
        other_user(story)
        loader = {"workers": 0, "kind": "generator"}
        story.alter_facts("stranger", loader=loader, shares={"0": 1})
        for _ in range(20):
            story.pass_second_with({"train": [(0.0, WAIT)], "stranger": [(0.0, WAIT)]}, 0.5)
        return story.pass_second(0.5)

    def test_names_the_user_whose_binding_was_refused_and_why(self, refused: MonitorState) -> None:
        text = (
            "Run stranger (user 65534) names GPU 0, but no process of that user is on it: "
            "its tags do not count there."
        )

        assert any(note.startswith(text) for note in report_of(refused).notes)
        assert all(collector.success for collector in refused.collectors)  # no alert

    def test_takes_no_advice_from_the_facts_of_a_refused_run(self, refused: MonitorState) -> None:
        without = refused._replace(runs=tuple(run for run in refused.runs if run.run == "train"))

        assert report_of(refused).advice == report_of(without).advice
        assert {run.run: run.shares for run in refused.runs}["stranger"] == {}
