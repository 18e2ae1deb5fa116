"""The lanes of a report: what every GPU and every run did when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.core.host.reasons import WaitReason
from gpumon.core.phase import IdleCause, InputWaitReason, TrainingPhase
from gpumon.core.report.lanes import Lanes, RunLane
from gpumon.core.ring_format.fair_share import FairSlots
from gpumon.pipeline.history import LaneHistory
from gpumon.pipeline.reports import report_of
from tests.builders.monitor import SAVE, STEP, WAIT, Story
from tests.builders.state import monitor_state, run
from tests.builders.time import s

S = s(1)


class Followed:
    """A story whose lanes are followed as a daemon does."""

    def __init__(self) -> None:
        self.story, self.history = Story(), LaneHistory()

    def pass_second(self, *levels: float | None, **phases_s: float) -> None:
        """One second in which the run ``train`` was in these phases for so long."""
        if phases_s:
            known = self.story.rings["train"].phase_ns
            more = {TrainingPhase(name): s(length) for name, length in phases_s.items()}
            total = {phase: known.get(phase, 0) + ns for phase, ns in more.items()}
            self.story.alter_ring(phase_ns={**known, **total})
        self.history.follow(self.story.pass_second(*levels))

    @property
    def lanes(self) -> Lanes:
        state = self.story.state
        return self.history.lanes(report_of(state), state.taken_at_ns)

    @property
    def run(self) -> RunLane:
        (lane,) = self.lanes.runs
        return lane


@pytest.fixture
def followed() -> Followed:
    return Followed()


class TestTheLaneOfAGpu:
    def test_is_as_busy_as_each_second_was(self, followed: Followed) -> None:
        for levels in ((0.02, 1.0), (0.5, 1.0), (1.0, 0.0)):
            followed.pass_second(*levels)

        first, second = followed.lanes.gpus
        assert first.busy_ns == (S // 50, S // 2, S)
        assert first.active_ns == (0, S, S)  # in which it worked at all
        assert second.busy_ns == (S, S, 0)
        assert (first.start_ns, first.cell_ns, first.observed_ns) == (s(1000), S, (S, S, S))

    def test_has_no_time_without_a_sample(self, followed: Followed) -> None:
        for level in (1.0, None, None, 1.0):
            followed.pass_second(level)

        assert followed.lanes.gpus[0].observed_ns == (S, 0, 0, S)

    def test_is_empty_for_one_that_was_never_observed(self, followed: Followed) -> None:
        followed.pass_second(1.0)
        report = report_of(followed.story.state)
        unknown = replace(report, gpus=(replace(report.gpus[0], uuid=None),))

        (lane,) = followed.history.lanes(unknown, s(1001)).gpus

        assert lane.observed_ns == ()


class TestTheLaneOfARun:
    def test_has_the_time_in_each_phase(self, followed: Followed) -> None:
        followed.pass_second(0.0)
        followed.story.ring()
        followed.pass_second(0.5, input_wait=0.5, train_step=0.5)
        followed.pass_second(0.9, input_wait=0.1, train_step=0.9)

        assert (followed.run.run, followed.run.pid, followed.run.start_ns) == ("train", 42, s(1001))
        assert followed.run.phase_ns == {WAIT: (s(0.5), s(0.1)), STEP: (s(0.5), s(0.9))}

    def test_has_a_long_step_at_its_time_and_not_at_its_end(self, followed: Followed) -> None:
        followed.pass_second(0.0)
        followed.story.ring()
        followed.pass_second(0.0, input_wait=1.0)
        for _ in range(3):
            followed.pass_second(1.0)  # a step is in no sum until it ends
        followed.pass_second(1.0, train_step=4.0)
        followed.pass_second(1.0, checkpoint=1.0)

        run = followed.run
        assert sum(run.phase_ns[STEP]) == s(4)
        for number in range(len(run.phase_ns[STEP])):
            at_ns = run.start_ns + number * run.cell_ns
            reported = {phase for phase, cells in run.phase_ns.items() if cells[number]}
            assert STEP in reported or at_ns < s(1002) or at_ns >= s(1006) - run.cell_ns
            assert SAVE not in reported or at_ns >= s(1006) - run.cell_ns

    def test_begins_with_the_daemon_where_the_run_is_older(self, followed: Followed) -> None:
        followed.story.ring()
        followed.story.second += 50
        followed.pass_second(1.0, input_wait=51.0)
        followed.pass_second(1.0, train_step=1.0)

        assert followed.run.phase_ns == {STEP: (S,)}

    def test_ends_with_the_run(self, followed: Followed) -> None:
        followed.pass_second(0.0)
        followed.story.ring()
        followed.pass_second(1.0, train_step=1.0)
        followed.story.end_ring()
        for _ in range(5):
            followed.pass_second(0.0)

        assert followed.run.end_ns == s(1002)

    def test_has_the_reasons_of_its_input_waits_and_not_of_its_steps(self) -> None:
        history, before = LaneHistory(), run(phase_ns={WAIT: 0}, wall_ns=0)
        for second, gil_s, cpu_s in ((1, 0.5, 0.0), (2, 0.5, 0.4), (3, 0.5, 1.4)):
            reasons = (
                WaitReason(IdleCause.INPUT_WAIT, InputWaitReason.CPU_BOUND, s(cpu_s)),
                WaitReason(IdleCause.INPUT_WAIT, InputWaitReason.GIL_BOUND, s(gil_s)),
                WaitReason(IdleCause.WITHIN_STEP, InputWaitReason.GIL_BOUND, s(second)),
            )
            now = replace(before, reasons=reasons, phase_ns={WAIT: s(second)}, wall_ns=s(second))
            state = monitor_state(runs=(now,), taken_at_ns=s(1000 + second))
            history.follow(state)

        (lane,) = history.lanes(replace(report_of(state), origin_ns=0), s(1003)).runs

        assert lane.reason_ns == {InputWaitReason.CPU_BOUND: (s(0.4), s(1.0))}

    def test_is_kept_of_living_and_of_the_newest_runs(self, followed: Followed) -> None:
        followed.history._slots = FairSlots(3)
        followed.pass_second(0.0)
        for number in range(5):
            followed.story.ring(f"run{number}", pid=number + 10)
            followed.story.alter_ring(f"run{number}", phase_ns={STEP: S})
            followed.pass_second(1.0)
            if number != 1:
                followed.story.end_ring(f"run{number}")

        assert [lane.run for lane in followed.lanes.runs] == ["run1", "run3", "run4"]

    def test_is_kept_of_each_user(self, followed: Followed) -> None:
        many = [f"a{number:02}" for number in range(70)]
        for number, key in enumerate(many):
            followed.story.ring(key, pid=number + 10, uid=1000)
        followed.pass_second(0.0)
        followed.story.ring("b", pid=99, uid=1001)
        for key in [*many, "b"]:
            followed.story.alter_ring(key, phase_ns={STEP: S})
        followed.pass_second(1.0)

        names = [lane.run for lane in followed.lanes.runs]
        assert "b" in names
        assert len(names) == 64
