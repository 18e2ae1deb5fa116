"""Specification of runs: which GPUs count for each, what they are called, and how they end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.ring.events import (
    RingEvent,
    RingKind,
    RingRecords,
)
from gpumon.core.sample import ProcessSample
from tests.builders_story import SAVE, STEP, WAIT, Story, gpu
from tests.builders_time import s


class TestTheEndOfARun:
    def test_leaves_its_last_second_explained_though_its_pid_has_left_the_list(self) -> None:
        story = Story()
        story.ring(gpus=None, pid=42)
        story.processes[0] = (ProcessSample(42, None),)
        story.pass_second(1.0, phases=[(0.0, STEP), (0.9, WAIT)])
        story.processes[0] = ()
        story.rings["train"] = replace(
            story.rings["train"], alive=False, ended_ns=story.now_ns + s(0.75)
        )
        state = story.pass_second(0.0)

        assert gpu(state).totals.idle_ns[IdleCause.INPUT_WAIT] == s(0.75)

    def test_ends_its_job_also_where_the_next_one_works_in_the_same_tick(self) -> None:
        story = Story()
        story.ring("first")
        for _ in range(3):
            story.pass_second(1.0, phases=[(0.0, STEP)], key="first")
        story.end_ring("first")
        story.ring("second", pid=43)
        state = story.pass_seconds_at_once(0.0, 0.0, 1.0)

        assert IdleCause.UNKNOWN not in gpu(state).totals.idle_ns
        assert gpu(state).totals.in_use_ns == s(4)

    def test_before_its_first_burst_is_settled_loses_nothing_of_what_led_to_it(self) -> None:
        story = Story()
        story.ring()
        for _ in range(5):
            story.pass_second(0.0, phases=[(0.0, TrainingPhase.COMPILE)])
        story.rings["train"] = replace(
            story.rings["train"], alive=False, ended_ns=story.now_ns + s(0.9)
        )
        state = story.pass_second(1.0)

        assert gpu(state).totals.idle_ns == {IdleCause.COMPILE: s(5)}

    @pytest.mark.parametrize("listed", [None, (), (ProcessSample(43, None),)])
    def test_leaves_what_the_next_one_needs_to_start_to_that_one(
        self, listed: tuple[ProcessSample, ...] | None
    ) -> None:
        story = Story()
        story.ring("first")
        story.processes[0] = listed
        for _ in range(3):
            story.pass_second(1.0, phases=[(0.0, STEP)], key="first")
        story.ring("second", pid=43)
        story.end_ring("first")
        for _ in range(4):
            story.pass_second(0.0, phases=[(0.0, TrainingPhase.START_UP)], key="second")
        state = story.pass_second(1.0, phases=[(0.0, STEP)], key="second")

        idle_ns = dict(gpu(state).totals.idle_ns)
        assert idle_ns.get(IdleCause.UNKNOWN, 0) == 0
        assert sum(idle_ns.values()) == s(4)
        assert idle_ns[IdleCause.START_UP] >= s(3)
        assert gpu(state).totals.in_use_ns == s(4)

    def test_does_not_end_the_job_of_another_that_is_at_work_there(self) -> None:
        story = Story()
        story.ring("first")
        story.ring("second", pid=43)
        for key in ("first", "second"):
            story.pass_second(1.0, phases=[(0.0, STEP)], key=key)
        story.end_ring("first")
        story.pass_second(0.0, phases=[(0.0, WAIT)], key="second")
        state = story.pass_second(1.0, phases=[(0.0, STEP)], key="second")

        assert gpu(state).totals.idle_ns == {IdleCause.INPUT_WAIT: s(1)}


class TestARunIsJoinedToItsGpus:
    def test_by_what_it_says_of_itself(self) -> None:
        story = Story()
        story.ring(gpus=("GPU-1",))
        state = story.pass_second(1.0, 1.0, phases=[(0.0, STEP)])

        assert state.runs[0].gpu_uuids == ("GPU-1",)

    def test_else_by_the_process_list(self) -> None:
        story = Story()
        story.ring(gpus=None, pid=42)
        story.processes = {0: (ProcessSample(7, None),), 1: (ProcessSample(42, None),)}
        state = story.pass_second(1.0, 1.0, phases=[(0.0, STEP)])

        assert state.runs[0].gpu_uuids == ("GPU-1",)

    def test_else_by_the_devices_it_may_see(self) -> None:
        story = Story()
        story.ring(gpus=None)
        ring = story.rings["train"]
        story.rings["train"] = replace(ring, facts=replace(ring.facts, visible_devices="1"))
        state = story.pass_second(1.0, 1.0, phases=[(0.0, STEP)])

        assert state.runs[0].gpu_uuids == ("GPU-1",)

    def test_never_by_chance_to_a_gpu_that_is_made_up(self) -> None:
        story = Story(simulated=True)
        story.ring(gpus=None)
        state = story.pass_second(1.0, 1.0, phases=[(0.0, STEP)])

        assert state.runs[0].gpu_uuids == ()


class TestTwoRunsOfOneName:
    def test_are_told_apart_by_their_pid_while_both_live(self) -> None:
        story = Story()
        story.ring("a")
        story.ring("b", pid=43)
        story.rings["b"] = replace(
            story.rings["b"], facts=replace(story.rings["b"].facts, run="a", started_ns=s(1001))
        )
        state = story.pass_second(1.0)

        assert [run.run for run in state.runs] == ["a", "a-43"]

    def test_keep_their_labels_when_one_of_them_ends(self) -> None:
        story = Story()
        story.ring("a")
        story.ring("b", pid=43)
        story.rings["b"] = replace(
            story.rings["b"], facts=replace(story.rings["b"].facts, run="a", started_ns=s(1001))
        )
        story.pass_second(1.0)
        story.end_ring("a")
        state = story.pass_second(1.0)

        assert [(run.run, run.pid) for run in state.runs] == [("a", 42), ("a-43", 43)]

    def test_are_one_after_the_other_once_the_first_has_ended(self) -> None:
        story = Story()
        story.ring("a")
        story.end_ring("a")
        story.ring("b", pid=43)
        story.rings["b"] = replace(
            story.rings["b"], facts=replace(story.rings["b"].facts, run="a", started_ns=s(1001))
        )
        state = story.pass_second(1.0)

        assert [(run.run, run.pid) for run in state.runs] == [("a", 43)]


COMPILE = TrainingPhase.COMPILE


class TestARunWithAnAmountInsideItsPhase:
    def test_counts_it_once(self) -> None:
        story = Story()
        story.ring()
        story.pass_second(1.0, phases=[(0.0, SAVE)])
        amount = RingEvent(RingKind.AMOUNT, story.now_ns, WAIT, s(0.4))
        ring = story.rings["train"]
        story.rings["train"] = replace(ring, phase_ns={WAIT: s(0.4)})
        story.second += 1
        reading = replace(
            story.rings["train"], read_at_ns=story.now_ns, events=RingRecords.of([amount])
        )
        story.rings["train"] = reading
        state = story.miss()

        assert sum(state.runs[0].phase_ns.values()) == pytest.approx(s(2), abs=s(0.01))

    def test_takes_nothing_back_from_a_step_that_turns_out_to_have_been_compiling(self) -> None:
        story = Story()
        story.ring()
        before = story.pass_second(1.0, phases=[(0.0, STEP)])
        amount = RingEvent(RingKind.AMOUNT, story.now_ns, COMPILE, s(0.9))
        ring = story.rings["train"]
        story.second += 1
        story.rings["train"] = replace(
            ring,
            phase_ns={COMPILE: s(0.9)},
            read_at_ns=story.now_ns,
            events=RingRecords.of([amount]),
        )
        after = story.miss()

        told, then = before.runs[0].phase_ns, after.runs[0].phase_ns
        assert all(then.get(phase, 0) >= spent_ns for phase, spent_ns in told.items())
        assert then[COMPILE] == s(0.9)


class TestThePhasesOfARun:
    def test_never_fall_though_the_rings_sums_lag_behind_what_was_told_of_the_present_one(
        self,
    ) -> None:
        story = Story()
        story.ring()
        told = story.pass_second(0.0, phases=[(0.0, WAIT)]).runs[0].phase_ns[WAIT]
        state = story.pass_second(1.0, phases=[(0.0, STEP)])  # its sums know of no wait yet

        assert told == s(1)
        assert state.runs[0].phase_ns[WAIT] == s(1)
