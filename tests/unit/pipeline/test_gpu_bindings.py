"""A run that names a GPU is bound to it only by the driver's process list."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.sample import ProcessSample
from gpumon.core.state import GpuState, MonitorState
from gpumon.pipeline.gpu_bindings import AwaitedWork
from gpumon.pipeline.report_builder import RunReports
from gpumon.pipeline.state_report import report_of
from tests.builders.monitor import (
    ADA,
    ADAS_PID,
    ADAS_PROCESS,
    OTHER_USER,
    OTHER_USERS_PID,
    SAVE,
    STEP,
    WAIT,
    Phases,
    Story,
    gpu,
    other_user,
    starve,
    training,
)
from tests.builders.time import s

COMPILE = TrainingPhase.COMPILE
LEVELS = (1.0, 0.5, 0.0, 0.75) * 6
PHASES = ([(0.0, STEP)], [(0.0, STEP), (0.6, WAIT)], [(0.0, WAIT)], [(0.0, STEP)]) * 6
BOBS_PROCESS = ProcessSample(99, None, uid=1001)
STRANGERS_PROCESS = ProcessSample(99, None, uid=OTHER_USER)

Arrival = Callable[[Story], None]


def no_other(story: Story) -> None:
    """No other run."""


def stranger_who_steps(story: Story) -> None:
    """Another user's ring that counts steps."""
    other_user(story)
    story.alter_ring("stranger", steps=3)


@pytest.fixture
def story(story: Story) -> Story:
    """The driver lists a process of Ada's on GPU 0, and no other."""
    story.processes[0] = (ADAS_PROCESS,)
    return story


def closes(one: GpuState) -> bool:
    totals = one.totals
    settled_ns = totals.busy_ns + sum(totals.idle_ns.values())
    return settled_ns + totals.pending_ns == totals.observed_ns


def an_untagged_job(arrives: Arrival) -> GpuState:
    story = Story()
    story.pass_second(0.0)
    arrives(story)
    for level in [0.0, 0.0, 0.8, 0.3, 0.0, 1.0]:
        story.processes[0] = (ADAS_PROCESS,) if story.second >= 3 else ()
        starve(story, level)
    return gpu(story.state)


def the_end_of_a_job(arrives: Arrival) -> GpuState:
    story = Story()
    story.processes[0] = (ADAS_PROCESS,)
    for level in [1.0, 1.0, 0.0]:
        story.pass_second(level)
    arrives(story)
    story.processes[0] = ()
    starve(story, *[0.0] * 5)
    story.processes[0] = (ADAS_PROCESS,)
    return gpu(starve(story, 1.0))


def what_two_others_waited_for(arrives: Arrival) -> GpuState:
    story = Story()
    training(story)
    training(story, "bob", uid=1001, pid=99)
    arrives(story)
    reported = {"train": [(0.0, COMPILE)], "bob": [(0.0, SAVE)], "stranger": [(0.0, WAIT)]}
    for _ in range(4):
        story.pass_second_with(reported, 0.0)
    story.processes[0] = (ADAS_PROCESS, BOBS_PROCESS)
    return gpu(story.pass_second_with({}, 1.0))


class TestARunOfAnotherUser:
    def test_that_names_a_gpu_with_only_other_users_does_not_starve_it(self, story: Story) -> None:
        other_user(story)

        state = starve(story, *[0.5, 0.0] * 10)

        assert gpu(state).totals.starved_ns == 0
        assert state.runs[0].gpu_uuids == ()
        assert state.runs[0].refused_uuids == ("GPU-0",)
        assert gpu(state).claims_refused == 1

    @pytest.mark.parametrize("read_every", [1, 5])
    @pytest.mark.parametrize("comes_at", [-3, 0, 7])
    def test_does_not_affect_another_run(self, read_every: int, comes_at: int) -> None:
        alone, beside = played(None, read_every), played(comes_at, read_every)

        assert gpu(beside).totals == gpu(alone).totals
        assert gpu(beside).verdict == gpu(alone).verdict
        mine = [run for run in beside.runs if run.run == "train"]
        assert mine == list(alone.runs)

    @pytest.mark.parametrize(
        "state_of", [an_untagged_job, the_end_of_a_job, what_two_others_waited_for]
    )
    @pytest.mark.parametrize("arrives", [other_user, stranger_who_steps])
    def test_changes_nothing_of(
        self, state_of: Callable[[Arrival], GpuState], arrives: Arrival
    ) -> None:
        assert state_of(arrives).totals == state_of(no_other).totals

    def test_is_not_believed_where_proc_hides_whose_the_processes_are(self, story: Story) -> None:
        story.processes[0] = (ProcessSample(ADAS_PID, None, is_hidden=True),)
        training(story)
        other_user(story)
        story.pass_second(1.0, phases=[(0.0, STEP)])
        state = starve(story, *[0.5, 0.0] * 10)

        gpus = {run.run: (run.gpu_uuids, run.refused_uuids) for run in state.runs}
        assert gpus == {"train": (("GPU-0",), ()), "stranger": ((), ("GPU-0",))}
        assert gpu(state).totals.starved_ns == 0
        (note,) = (one for one in report_of(state).notes if one.startswith("Run stranger "))
        assert "hides which user the processes on it belong to (hidepid)" in note
        assert "the group that /proc is mounted with" in note

    def test_and_its_waits_are_proved_by_no_other_users_phase(self) -> None:
        assert what_two_others_waited_for(no_other).totals.resolved_ns == 0

    @pytest.mark.parametrize("is_hidden", [False, True])
    def test_gains_nothing_by_the_pid_of_another_in_a_ring_that_moves_without_a_lock(
        self, story: Story, is_hidden: bool
    ) -> None:
        uid = None if is_hidden else ADA
        story.processes[0] = (ProcessSample(ADAS_PID, None, uid=uid, is_hidden=is_hidden),)
        training(story, "stranger", uid=OTHER_USER, pid=ADAS_PID)
        story.alter_ring("stranger", is_pid_seen=False)

        state = starve(story, *[0.5, 0.0] * 10)

        assert gpu(state).totals.starved_ns == 0
        assert state.runs[0].refused_uuids == ("GPU-0",)

    def test_is_no_peer_of_a_run_whose_job_it_names(self, story: Story) -> None:
        story.processes[1] = (STRANGERS_PROCESS,)
        story.ring("train", gpus=("0",), pid=ADAS_PID, uid=ADA)
        story.ring("stranger", gpus=("1",), pid=99, uid=OTHER_USER)
        for key in ("train", "stranger"):
            story.pass_second(0.5, 1.0, phases=[(0.0, STEP)], key=key)
        state = story.pass_seconds(30, 0.5, 1.0)

        assert IdleCause.IMBALANCE not in gpu(state).totals.idle_ns
        assert len({run.job_key for run in report_of(state).runs}) == 2

    def test_makes_no_peers_of_the_gpus_that_it_names(self, story: Story) -> None:
        story.processes[1] = (BOBS_PROCESS,)
        training(story)
        story.ring("stranger", gpus=("0", "1"), pid=OTHER_USERS_PID, job="both", uid=OTHER_USER)
        for _ in range(5):
            reported = {"train": [(0.0, STEP)], "stranger": [(0.0, STEP)]}
            state = story.pass_second_with(reported, 0.5, 1.0)

        assert gpu(state).totals.idle_ns == {IdleCause.WITHIN_STEP: s(2.5)}
        assert state.runs[0].refused_uuids == ("GPU-0", "GPU-1")


def played(stranger_comes_at: int | None, read_every: int) -> MonitorState:
    """One run, with or without another user's run that names its GPU."""
    story = Story()
    for second in range(-5, len(LEVELS)):
        if second == stranger_comes_at:
            other_user(story)
        if second == -2:
            training(story)
        if second % read_every == 0:
            story.processes[0] = (ADAS_PROCESS,) if second >= 0 else ()
            story.processes_at_ns = story.now_ns + s(1)
        reported: dict[str, Phases] = {}
        if stranger_comes_at is not None and second >= stranger_comes_at:
            reported["stranger"] = [(0.0, WAIT)]
        if second >= -2:
            reported["train"] = PHASES[second] if second >= 0 else [(0.0, COMPILE)]
        state = story.pass_second_with(reported, LEVELS[second] if second >= 0 else 0.0)
        assert closes(gpu(state))
    return state


class TestABinding:
    @pytest.mark.parametrize(
        "listed",
        [
            (ProcessSample(OTHER_USERS_PID, None),),
            (STRANGERS_PROCESS, ADAS_PROCESS),
            (ProcessSample(99, None),),
            (ProcessSample(99, None), ADAS_PROCESS),
            (),
            None,
        ],
        ids=["pid", "uid of another process", "unknown uid", "one unknown uid", "empty", "no list"],
    )
    def test_stands_where_the_list_does_not_contradict_it(
        self, story: Story, listed: tuple[ProcessSample, ...] | None
    ) -> None:
        story.processes[0] = listed
        other_user(story)

        state = starve(story, 0.5, 0.0)

        assert gpu(state).totals.starved_ns == s(1.5)
        assert state.runs[0].refused_uuids == ()

    def test_waits_for_a_list_that_was_read_after_the_gpu_was_active_and_settles_as_it_says(
        self, story: Story
    ) -> None:
        story.processes_at_ns = story.now_ns
        other_user(story)

        waiting = gpu(starve(story, 0.5, 0.0))
        starve(story, 0.5)
        story.processes[0] = (ADAS_PROCESS, STRANGERS_PROCESS)
        story.processes_at_ns = story.now_ns + s(1)
        settled = gpu(starve(story, 1.0))

        assert (waiting.totals.observed_ns, waiting.totals.busy_ns) == (s(2), s(0.5))
        assert (waiting.totals.pending_ns, waiting.totals.idle_ns) == (s(1.5), {})
        assert waiting.claims_refused == 0
        assert settled.totals.idle_ns == {IdleCause.INPUT_WAIT: s(2)}
        assert settled.totals.pending_ns == 0

    def test_that_was_seen_stands_for_the_life_of_the_run(self, story: Story) -> None:
        story.processes[0] = (STRANGERS_PROCESS,)
        other_user(story)
        starve(story, 0.5)
        story.processes[0] = (ADAS_PROCESS,)

        assert gpu(starve(story, 0.5, 0.0)).totals.starved_ns == s(2)

    def test_is_decided_by_the_first_list_after_the_work_however_late_its_samples_are(self) -> None:
        of_unknown_user = ProcessSample(99, None)
        story = Story(drained_every=8)
        other_user(story)
        for listed in (of_unknown_user, ADAS_PROCESS):
            story.processes[0] = (listed,)
            state = starve(story, 0.5, 0.5, 0.5, 0.5)

        assert gpu(state).totals.starved_ns > 0
        assert gpu(state).claims_refused == 0

    def test_needs_a_process_list_from_the_first_ring_until_it_is_decided(
        self, story: Story
    ) -> None:
        story.processes[0] = ()
        needs = []
        for begins, listed, level in [
            (False, (), 0.0),
            (True, (), 0.0),
            (False, (ADAS_PROCESS,), 1.0),
        ]:
            if begins:
                training(story)
            story.processes[0] = listed
            story.pass_second(level)
            needs.append(story.monitor.has_open_bindings)

        assert needs == [False, True, False]

    def test_needs_no_process_list_after_the_end_of_a_run(self, story: Story) -> None:
        story.processes[0] = ()
        training(story)
        story.pass_second(0.0)
        story.end_ring()
        story.pass_second(0.0)

        assert not story.monitor.has_open_bindings

    def test_that_was_refused_counts_once_a_list_names_its_user(self, story: Story) -> None:
        other_user(story)
        before = starve(story, 0.5, 0.0, 0.5)
        story.processes[0] = (ADAS_PROCESS, STRANGERS_PROCESS)

        state = starve(story, 0.5)

        gained_ns = {
            cause: ns - gpu(before).totals.idle_ns.get(cause, 0)
            for cause, ns in gpu(state).totals.idle_ns.items()
        }
        assert gained_ns == {IdleCause.UNKNOWN: 0, IdleCause.INPUT_WAIT: s(0.5)}
        assert state.runs[0].refused_uuids == ()
        assert gpu(state).claims_refused == 1

    def test_without_a_list_is_refused_once_a_list_contradicts_it(self, story: Story) -> None:
        story.processes[0] = None
        other_user(story)
        before = starve(story, 0.5, 0.0)
        story.processes[0] = (ADAS_PROCESS,)

        state = starve(story, 0.5, 0.0, 0.0)

        assert gpu(before).totals.starved_ns == s(1.5)
        assert gpu(state).totals.starved_ns == s(1.5)
        assert state.runs[0].gpu_uuids == ()

    @pytest.mark.parametrize(("level_after", "starved_s"), [(0.0, 0), (0.05, 0), (0.06, 3.44)])
    def test_stays_open_after_an_empty_list_until_the_gpu_works_on(
        self, story: Story, level_after: float, starved_s: float
    ) -> None:
        story.pass_second(1.0)
        other_user(story)
        story.processes[0] = ()
        story.processes_at_ns = story.now_ns + s(1)

        state = starve(story, 0.5, level_after, 0.0, 0.0)

        assert gpu(state).totals.starved_ns == s(starved_s)

    def test_of_a_run_whose_process_left_with_it_is_not_lost(self, story: Story) -> None:
        story.processes[0] = ()
        story.processes_at_ns = story.now_ns
        training(story)
        starve(story, 0.5, 0.0, 0.5, key="train")
        story.end_ring()
        story.processes_at_ns = story.now_ns + s(1)

        assert gpu(story.pass_second(0.0)).totals.starved_ns == s(2)

    def test_stays_open_while_the_gpu_gives_no_answer(self, story: Story) -> None:
        story.processes_at_ns = story.now_ns
        other_user(story)
        starve(story, 0.5)
        story.errors[0] = "no answer"
        starve(story, 0.0)
        del story.errors[0]
        story.processes_at_ns = story.now_ns + s(1)
        state = starve(story, 0.5)

        assert state.runs[0].refused_uuids == ("GPU-0",)
        assert gpu(state).totals.starved_ns == 0

    def test_that_is_open_settles_once_its_gpu_leaves(self, story: Story) -> None:
        story.processes_at_ns = story.now_ns
        other_user(story)
        waiting = gpu(starve(story, 0.5, 0.0))
        gone = gpu(story.pass_second())

        assert waiting.totals.pending_ns == s(1.5)
        assert (gone.totals.pending_ns, gone.totals.observed_ns) == (0, s(2))

    def test_that_is_decided_settles_all_time_before_the_next_open_one(self, story: Story) -> None:
        story.processes_at_ns = story.now_ns
        other_user(story)
        starve(story, 0.5, 0.5)
        training(story, "later", pid=7)
        story.processes_at_ns = story.now_ns

        state = starve(story, 0.5, key="later")

        assert gpu(state).totals.idle_ns == {IdleCause.UNKNOWN: s(1)}
        assert gpu(state).totals.pending_ns == s(0.5)

    def test_is_awaited_by_the_report_of_a_run_that_ended_meanwhile(self, story: Story) -> None:
        reports = RunReports()
        story.processes_at_ns = story.now_ns
        story.processes[0] = (ADAS_PROCESS._replace(pid=99),)
        training(story)
        for second in range(9):
            if second == 4:
                story.end_ring()
            if second == 7:
                story.processes_at_ns = story.now_ns
            state = starve(story, 0.5 if second < 4 else 0.0, key="train" if second < 4 else "")
            reports.follow(state)

        (reported,) = reports.of("train", report_of(state)).gpus
        assert reported.totals.idle_ns[IdleCause.INPUT_WAIT] == s(2)


class TestSumsWhileABindingIsOpen:
    def test_close_at_every_instant_and_nothing_settled_is_moved(self, story: Story) -> None:
        settled: dict[IdleCause, int] = {}
        observed_ns = 0
        for second in range(40):
            if second % 3 == 0:
                other_user(story, f"stranger {second}")
            if second % 5 == 0:
                story.processes_at_ns = story.now_ns + s(1)
            state = starve(story, LEVELS[second % 24], key=f"stranger {second - second % 3}")
            totals = gpu(state).totals

            assert closes(gpu(state))
            assert totals.observed_ns == observed_ns + s(1)
            assert totals.pending_ns <= s(6)
            assert all(totals.idle_ns.get(cause, 0) >= ns for cause, ns in settled.items())
            settled, observed_ns = dict(totals.idle_ns), totals.observed_ns
        assert gpu(state).totals.starved_ns == 0


ANN, BOB, CID = (frozenset({uid}) for uid in (1001, 1002, 1003))


@pytest.fixture
def work() -> AwaitedWork:
    return AwaitedWork()


class TestPendingTime:
    def test_is_of_those_who_waited_when_it_came(self, work: AwaitedWork) -> None:
        work.note_pending(ANN, 100)
        work.note_pending(ANN | BOB, 150)
        work.note_pending(CID, 170)
        assert work.owners == ANN | BOB | CID
        assert work.drop(ANN) == 100

        work.note_pending(CID, 80)  # 70 are left of those above, and 10 are new

        assert (work.drop(BOB), work.drop(CID)) == (50, 30)

    @pytest.mark.parametrize(("left_ns", "owners"), [(40, BOB), (0, frozenset())])
    def test_that_shrinks_was_settled_and_the_rest_is_of_who_waits_now(
        self, work: AwaitedWork, left_ns: int, owners: frozenset[int]
    ) -> None:
        work.note_pending(ANN, 100)
        work.note_pending(BOB, left_ns)

        assert work.owners == owners
        assert work.drop(BOB) == left_ns
