"""The report of the last seconds, and the lanes of a report."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.owner_quotas import FairSlots
from gpumon.core.phase import IdleCause, InputWaitReason, TrainingPhase
from gpumon.core.report.lanes import Lanes, RunLane
from gpumon.core.report.report import Report
from gpumon.core.sample import Frame, ProcessSample
from gpumon.core.state import MonitorState
from gpumon.core.waits.reasons import WaitReason
from gpumon.core.wording import in_time
from gpumon.pipeline.history import LaneHistory, ReportHistory
from gpumon.pipeline.state_report import report_of
from tests.builders.monitor import SAVE, STEP, WAIT, Story
from tests.builders.state import monitor_state, run
from tests.builders.time import s

S = s(1)
DAY_NS = s(24 * 3600)


class Kept(Story):
    """A monitor whose states are kept each second, as by a daemon."""

    def __init__(self, drained_every: int = 1) -> None:
        super().__init__(drained_every=drained_every)
        self.history = ReportHistory()

    def _advance(self, *frames: Frame, error: str | None = None) -> MonitorState:
        state = super()._advance(*frames, error=error)
        self.history.keep(state)
        return state

    def last(self, seconds: float) -> Report:
        return self.history.since(report_of(self.state), self.state.taken_at_ns, seconds)


@pytest.fixture
def kept() -> Kept:
    return Kept()


def totals(report: Report) -> GpuTotals:
    return report.gpus[0].totals


class TestTheLastSeconds:
    def test_leave_out_what_was_before_and_begin_where_they_say(self, kept: Kept) -> None:
        kept.pass_seconds(300, 0.5)
        kept.pass_seconds(100, 1.0)

        found = kept.last(60)

        assert found.gpus[0].verdict.name.value == "healthy"
        assert totals(found).observed_ns == kept.state.taken_at_ns - found.origin_ns == s(60)

    def test_are_as_many_as_requested_up_to_ten_minutes(self, kept: Kept) -> None:
        kept.pass_seconds(30, 1.0)
        assert totals(kept.last(3600)).observed_ns == s(30)
        assert kept.last(3600).notes[-1] == "gpumon started 30 s ago: nothing earlier is kept."
        kept.pass_seconds(970, 1.0)

        for wanted in (1, 5, 60, 64, 65, 100, 200, 300, 599, 600):
            assert 0.96 * wanted <= totals(kept.last(wanted)).observed_ns / S <= wanted
        assert kept.last(60).notes[-1] == "This covers the last 60 s."
        assert "only some times older than ten minutes are kept" in kept.last(900).notes[-1]

    @pytest.mark.parametrize("phase", range(5))
    def test_are_nearly_as_many_where_samples_come_every_fifth_second(self, phase: int) -> None:
        kept = Kept(drained_every=5)
        kept.pass_seconds(200, 0.5)
        kept.pass_seconds(200 + phase, 1.0)

        for wanted in (30, 60, 100, 150, 195):
            found = kept.last(wanted)
            observed_s = totals(found).observed_ns // S
            assert wanted - 5 <= observed_s <= wanted + 1
            assert totals(found).busy_ns == totals(found).observed_ns
            assert found.notes[-1].startswith(f"This covers the last {in_time(s(observed_s))}")

    def test_leave_out_runs_that_had_ended_before(self, kept: Kept) -> None:
        kept.pass_seconds(10, 1.0)
        for name in ("first", "second"):
            kept.ring(name)
            kept.pass_second(1.0, phases=[(0.0, STEP)], key=name)
            kept.pass_seconds(99, 1.0)
            kept.end_ring(name)
        kept.pass_seconds(50, 1.0)

        listed = {wanted: [run.run for run in kept.last(wanted).runs] for wanted in (40, 120, 240)}

        assert listed == {40: [], 120: ["second"], 240: ["first", "second"]}
        kept.rings.clear()
        kept.pass_second(1.0)
        assert not kept.history._ended_ns

    def test_of_a_day_cost_a_few_hundred_snapshots_and_an_hour_is_still_near(
        self, kept: Kept
    ) -> None:
        state = kept.pass_second(1.0)
        for at_ns in range(0, DAY_NS, s(10)):
            kept.history.keep(state._replace(taken_at_ns=at_ns, gpus=()))
        now = report_of(state)

        hour, day = (kept.history.since(now, DAY_NS, h * 3600) for h in (1, 23))

        assert s(3300) <= DAY_NS - hour.origin_ns <= s(3600)
        assert s(21.5 * 3600) <= DAY_NS - day.origin_ns <= s(23 * 3600)
        levels = kept.history._store._levels
        assert len({at_ns for level in levels for at_ns in level.stamps_ns}) <= 400

    def test_are_packed_once_while_nothing_new_is_observed(self, kept: Kept) -> None:
        state = kept.pass_second(1.0)
        with kept.history._lock:
            before = kept.history._newest

        for second in range(2, 5):  # the driver is not drained
            kept.history.keep(state._replace(taken_at_ns=state.taken_at_ns + s(second)))
        assert kept.history._newest is before

        kept.pass_second(1.0)
        assert kept.history._newest is not before


class TestAPauseThatBeganBefore:
    def test_counts_as_far_as_it_is_inside(self, kept: Kept) -> None:
        kept.pass_seconds(100, 1.0)
        kept.pass_seconds(50, 0.0)
        open_pause = totals(kept.last(30))
        kept.pass_seconds(20, 1.0)
        found = totals(kept.last(30))

        assert (open_pause.observed_ns, open_pause.pending_ns, open_pause.idle_ns) == (
            s(30), s(30), {},
        )  # fmt: skip
        assert (found.observed_ns, found.busy_ns) == (s(30), s(20))
        assert found.idle_ns == {IdleCause.UNKNOWN: s(10)}
        assert found.gaps.total_ns == found.gaps.longest_ns == found.lost_ns == s(10)

    def test_is_no_part_of_a_window_that_began_after_it(self, kept: Kept) -> None:
        kept.processes[0] = (ProcessSample(7, 1 << 30, uid=1000),)
        kept.pass_seconds(100, 1.0)
        kept.pass_seconds(500, 0.0)
        kept.pass_seconds(61, 1.0)

        found = totals(kept.last(60))

        assert (found.observed_ns, found.busy_ns, found.lost_ns) == (s(60), s(60), 0)

    def test_is_cut_where_a_first_batch_came_late(self, kept: Kept) -> None:
        kept.ring()
        kept.pass_second(0.0, phases=[(0.0, WAIT)])
        kept.pass_seconds(99, 0.0)
        kept.pass_second(1.0, phases=[(0.0, STEP)])
        kept.pass_seconds(9, 1.0)

        found = totals(kept.last(30))

        assert found.observed_ns == found.in_use_ns == s(30)
        assert found.idle_ns == {IdleCause.INPUT_WAIT: s(20)}
        assert sum(found.input_wait_by_reason_ns.values()) == s(20)


class Followed:
    """A story whose lanes are followed as a daemon does."""

    def __init__(self, drained_every: int = 1) -> None:
        self.story, self.history = Story(drained_every=drained_every), LaneHistory()

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
        for levels in ((0.02, 1.0), (None, 1.0), (1.0, 0.0)):
            followed.pass_second(*levels)

        first, second = followed.lanes.gpus
        assert first.busy_ns == (S // 50, 0, S)
        assert first.active_ns == (0, 0, S)  # in which it worked at all
        assert first.observed_ns == (S, 0, S)
        assert second.busy_ns == (S, S, 0)
        assert (second.start_ns, second.cell_ns, second.observed_ns) == (s(1000), S, (S, S, S))

    def test_has_the_time_of_its_samples_and_not_of_the_tick_that_brought_them(self) -> None:
        each, seldom = Followed(), Followed(drained_every=5)
        for second in range(60):
            level = None if 20 <= second < 32 else (0.02, 1.0, 0.4)[second % 3]
            for followed in (each, seldom):
                followed.pass_second(level)

        assert seldom.lanes.gpus == each.lanes.gpus

    def test_ends_with_its_samples_and_after_a_while_without_any(self) -> None:
        followed = Followed(drained_every=5)
        for _ in range(14):
            followed.pass_second(1.0)
        (fresh,) = followed.lanes.gpus
        for _ in range(63):
            followed.pass_second(None)
        (silent,) = followed.lanes.gpus
        for _ in range(3):
            followed.pass_second(1.0)
        (again,) = followed.lanes.gpus

        assert (fresh.end_ns, fresh.observed_ns) == (s(1010), (S,) * 10)
        assert (silent.end_ns, silent.cell_ns) == (s(1062), S)
        assert silent.observed_ns == (S,) * 14 + (0,) * 48
        assert (again.end_ns, again.observed_ns[-4]) == (s(1080), 0)
        assert again.observed_ns[-2] == again.cell_ns
        assert sum(again.observed_ns) == s(17)

    def test_is_empty_for_one_that_was_never_observed(self, followed: Followed) -> None:
        followed.pass_second(1.0)
        report = report_of(followed.story.state)
        unknown = replace(report, gpus=(replace(report.gpus[0], uuid=None),))

        (lane,) = followed.history.lanes(unknown, s(1001)).gpus

        assert lane.observed_ns == ()


class TestTheLaneOfARun:
    def test_has_the_time_in_each_phase_until_its_end(self, followed: Followed) -> None:
        followed.pass_second(0.0)
        followed.story.ring()
        followed.pass_second(0.5, input_wait=0.5, train_step=0.5)
        followed.pass_second(0.9, input_wait=0.1, train_step=0.9)
        followed.story.end_ring()
        for _ in range(5):
            followed.pass_second(0.0)

        run = followed.run
        assert (run.run, run.pid, run.start_ns, run.end_ns) == ("train", 42, s(1001), s(1003))
        assert run.phase_ns == {WAIT: (s(0.5), s(0.1)), STEP: (s(0.5), s(0.9))}

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
