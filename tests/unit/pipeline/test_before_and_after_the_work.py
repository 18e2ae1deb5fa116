"""Specification of idle time around a run's work on its GPU: before its first burst, after its fit.

``docs/decisions/17-around-the-work.md`` says why.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.state import GpuState
from gpumon.core.verdict import VerdictName
from tests.builders_story import SAVE, STEP, WAIT, Story, gpu
from tests.builders_time import s

COMPILE, OTHER = TrainingPhase.COMPILE, TrainingPhase.OTHER


def story_of(*seconds: tuple[float, TrainingPhase]) -> Story:
    """One run on GPU 0, a level and a phase for each second."""
    story = Story()
    story.ring()
    for level, phase in seconds:
        story.pass_second(level, phases=[(0.0, phase)])
    return story


def now(story: Story) -> GpuState:
    assert story.state is not None
    return gpu(story.state)


class TestIdleTimeBeforeTheFirstBurst:
    @pytest.mark.parametrize(
        ("phase", "cause"),
        [
            (COMPILE, IdleCause.COMPILE),
            (WAIT, IdleCause.INPUT_WAIT),
            (SAVE, IdleCause.CHECKPOINT),
            (TrainingPhase.CALLBACKS, IdleCause.CALLBACKS),
            (TrainingPhase.VALIDATION, IdleCause.VALIDATION),
        ],
    )
    def test_is_lost_to_what_the_tags_say(self, phase: TrainingPhase, cause: IdleCause) -> None:
        story = story_of(*[(0.0, phase)] * 6, (1.0, STEP))

        totals = now(story).totals
        assert totals.idle_ns == {cause: s(6)}
        assert totals.resolved_ns == s(6)
        assert (totals.in_use_ns, totals.lost_ns) == (s(7), s(6))

    @pytest.mark.parametrize(
        "phase", [TrainingPhase.START_UP, OTHER, STEP, TrainingPhase.DEVICE_SYNC]
    )
    def test_is_start_up_where_they_say_no_more_than_that(self, phase: TrainingPhase) -> None:
        story = story_of(*[(0.0, phase)] * 3, (1.0, STEP))

        totals = now(story).totals
        assert totals.idle_ns == {IdleCause.START_UP: s(3)}
        assert totals.in_use_ns == s(1)

    def test_is_told_apart_from_the_start_up_before_it(self) -> None:
        story = story_of(*[(0.0, TrainingPhase.START_UP)] * 4, *[(0.0, COMPILE)] * 6, (1.0, STEP))

        totals = now(story).totals
        assert totals.idle_ns == {IdleCause.START_UP: s(4), IdleCause.COMPILE: s(6)}
        assert totals.in_use_ns == s(7)

    def test_is_lost_to_what_the_run_says_at_the_end_of_a_step_of_a_minute(self) -> None:
        story = story_of(*[(0.0, TrainingPhase.START_UP)] * 4, (0.0, STEP))
        for _ in range(58):
            story.pass_second(0.0)
        story.pass_second(0.0, amount=(1.0, COMPILE, 54.0))
        story.pass_second(1.0)

        idle_ns = now(story).totals.idle_ns
        assert idle_ns[IdleCause.COMPILE] == pytest.approx(s(54), rel=0.02)
        assert sum(idle_ns.values()) == s(64)
        assert idle_ns.keys() == {IdleCause.COMPILE, IdleCause.START_UP}

    def test_is_lost_to_that_also_where_another_phase_comes_before_the_burst(self) -> None:
        story = story_of((0.0, WAIT), (0.0, STEP), (0.0, STEP))
        story.pass_second(0.0, amount=(1.0, COMPILE, 1.0))
        story.pass_second(0.0, phases=[(0.0, WAIT)])
        story.pass_second(1.0, phases=[(0.0, STEP)])

        assert now(story).totals.idle_ns == {
            IdleCause.INPUT_WAIT: s(2),
            IdleCause.COMPILE: s(1),
            IdleCause.START_UP: s(2),
        }

    def test_keeps_to_its_phase_where_that_changes_within_a_sample(self) -> None:
        story = Story()
        story.ring()
        story.pass_second(0.0, phases=[(0.0, WAIT), (0.25, STEP)])
        story.pass_second(0.0, amount=(1.0, COMPILE, 1.75))
        story.pass_second(1.0, phases=[(0.0, STEP)])

        assert now(story).totals.idle_ns == {
            IdleCause.INPUT_WAIT: s(0.25),
            IdleCause.COMPILE: s(1.75),
        }

    def test_is_pending_until_the_burst(self) -> None:
        story = story_of(*[(0.0, COMPILE)] * 6)

        assert now(story).totals.pending_ns == s(6)
        assert now(story).totals.idle_ns == {}

    def test_is_nobodys_where_the_run_never_uses_the_gpu(self) -> None:
        story = story_of(*[(0.0, WAIT)] * 6)
        story.end_ring()
        for _ in range(2):
            story.pass_second(0.0)

        assert now(story).totals.idle_ns == {IdleCause.NOT_IN_USE: s(8)}

    def test_is_not_blamed_on_the_next_run_where_the_first_never_used_the_gpu(self) -> None:
        story = story_of(*[(0.0, WAIT)] * 6)
        story.end_ring()
        for _ in range(2):
            story.pass_second(0.0)
        story.ring("next", pid=43)
        story.pass_second(0.0, phases=[(0.0, COMPILE)], key="next")
        story.pass_second(1.0, phases=[(0.0, STEP)], key="next")

        assert now(story).totals.idle_ns == {
            IdleCause.NOT_IN_USE: s(8),
            IdleCause.COMPILE: s(1),
        }

    def test_is_pending_unexplained_while_another_job_is_on_the_gpu(self) -> None:
        story = Story()
        story.pass_second(1.0)
        story.ring()
        story.pass_second(0.0, phases=[(0.0, COMPILE)])
        story.pass_second(1.0)

        assert now(story).totals.idle_ns == {IdleCause.UNKNOWN: s(1)}

    def test_makes_the_verdict_where_it_is_much_of_the_run(self) -> None:
        story = story_of(*[(0.0, COMPILE)] * 6, *[(1.0, STEP)] * 20)

        verdict = now(story).verdict
        assert (verdict.name, verdict.main_cause) == (VerdictName.STALLED, IdleCause.COMPILE)
        assert verdict.coverage_ratio == 1.0

    def test_adds_up_at_every_instant_and_never_falls(self) -> None:
        story = Story()
        story.ring()
        states = [
            story.pass_second(level, phases=[(0.0, COMPILE), (0.5, phase)])
            for level, phase in [(0.0, WAIT), (0.04, STEP), (0.0, OTHER), (0.7, STEP), (0.0, SAVE)]
        ]
        for before, after in pairwise(gpu(state).totals for state in states):
            assert after.busy_ns + after.idle_total_ns + after.pending_ns == after.observed_ns
            assert after.resolved_ns + after.inferred_ns <= after.idle_total_ns
            assert after.in_use_ns >= before.in_use_ns
            assert all(after.idle_ns[cause] >= ns for cause, ns in before.idle_ns.items())


class TestIdleTimeInNoPhaseButOther:
    def test_after_the_fit_is_pending_while_the_process_lives(self) -> None:
        story = story_of(*[(1.0, STEP)] * 20, *[(0.0, OTHER)] * 10)

        assert now(story).totals.pending_ns == s(10)
        assert now(story).totals.in_use_ns == s(20)

    def test_after_the_fit_is_out_of_use_once_the_process_is_gone(self) -> None:
        story = story_of(*[(1.0, STEP)] * 20, *[(0.0, OTHER)] * 10)
        story.end_ring()
        for _ in range(2):
            story.pass_second(0.0)

        assert now(story).totals.idle_ns == {IdleCause.NOT_IN_USE: s(12)}
        assert now(story).verdict.coverage_ratio == 1.0

    def test_between_two_fits_of_a_process_is_unknown_and_in_use(self) -> None:
        story = story_of((1.0, STEP), *[(0.0, OTHER)] * 10, (1.0, STEP))

        assert now(story).totals.idle_ns == {IdleCause.UNKNOWN: s(10)}
        assert now(story).totals.in_use_ns == s(12)

    def test_in_bursts_and_pauses_is_suspected_as_if_nothing_were_tagged(self) -> None:
        story = story_of(*[(1.0, STEP), (1.0, STEP), (0.0, OTHER), (0.0, OTHER)] * 6, (1.0, STEP))

        assert now(story).totals.suspected_ns == s(12)
        assert now(story).verdict.name is VerdictName.STARVATION_SUSPECTED

    def test_leaves_what_the_tags_do_say_as_it_is(self) -> None:
        story = story_of(*[(1.0, STEP)] * 20, *[(0.0, SAVE)] * 10, *[(0.0, OTHER)] * 10)
        story.end_ring()
        for _ in range(2):
            story.pass_second(0.0)

        assert now(story).totals.idle_ns == {
            IdleCause.CHECKPOINT: s(10),
            IdleCause.NOT_IN_USE: s(12),
        }
