"""The monitor ingests frames and rings, and returns one new state a tick."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import pytest

from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.ring_format.events import (
    RingEvent,
    RingKind,
    RingRecords,
    RingsReading,
    RunFacts,
)
from gpumon.core.sample import Device, Frame, GpuSample
from tests.builders.monitor import (
    SAVE,
    STEP,
    WAIT,
    Phases,
    Story,
    gpu,
    monitor,
    reading,
    ring_reading,
)
from tests.builders.time import every as samples_of
from tests.builders.time import s
from tests.call_count import count_calls

STEPS: Phases = ((0.0, WAIT), (0.05, STEP))
LOST, NO_DRIVER = "GPU is lost", "the driver is not loaded"


class TestAnIdleSecond:
    def test_during_a_tagged_wait_for_input_is_starved(self, training: Story) -> None:
        state = training.pass_second(0.0, phases=[(0.0, WAIT)])

        totals = gpu(state).totals
        assert totals.idle_ns == {IdleCause.INPUT_WAIT: s(1)}
        assert totals.resolved_ns == s(1)
        assert state.runs[0].gpu_uuids == ("GPU-0",)

    def test_is_not_blamed_on_a_run_that_has_not_used_the_gpu(self, story: Story) -> None:
        story.ring()
        state = story.pass_second(0.0, phases=[(0.0, WAIT)])

        assert gpu(state).totals.pending_ns == s(1)
        assert state.runs[0].gpu_uuids == ()

    def test_after_the_run_is_not_in_use(self, training: Story) -> None:
        training.end_ring()
        state = training.pass_seconds(2, 0.0, 0.0)

        for index in (0, 1):  # and so on another GPU
            assert gpu(state, index).totals.idle_ns == {IdleCause.NOT_IN_USE: s(2)}
            assert gpu(state, index).totals.pending_ns == 0

    def test_after_the_last_burst_still_belongs_to_the_phase_while_the_run_lives(
        self, training: Story
    ) -> None:
        state = training.pass_seconds(90, 0.0, phases=[(0.0, SAVE)])

        assert gpu(state).totals.idle_ns == {IdleCause.CHECKPOINT: s(90)}

    def test_is_split_between_two_runs_on_the_gpu(self, story: Story) -> None:
        story.ring("one")
        story.ring("two", job="other", pid=43)
        story.pass_second(1.0, phases=[(0.0, WAIT)], key="one")
        story.pass_second(1.0, phases=[(0.0, SAVE)], key="two")
        state = story.pass_second(0.0)

        assert gpu(state).totals.idle_ns == {
            IdleCause.INPUT_WAIT: s(0.5), IdleCause.CHECKPOINT: s(0.5),
        }  # fmt: skip

    def test_in_the_step_while_a_peer_of_the_job_works_is_imbalance(self, story: Story) -> None:
        story.ring(gpus=("0", "1"))
        story.pass_second(1.0, 1.0, phases=[(0.0, STEP)])
        state = story.pass_seconds(2, 0.9, 0.4)

        assert gpu(state, 1).totals.idle_ns[IdleCause.IMBALANCE] >= s(0.5)
        assert IdleCause.IMBALANCE not in gpu(state, 0).totals.idle_ns


class TestTwoFramesInOneTick:
    def test_are_both_explained_by_the_rings_read_after_them(self, training: Story) -> None:
        state = training.pass_seconds_at_once(0.0, 0.0, phases=[(0.0, WAIT)], in_frames=True)

        assert gpu(state).totals.idle_ns == {IdleCause.INPUT_WAIT: s(2)}
        assert state.samples_total == 3


class TestAGpuThatIsGoneForGood:
    def test_does_not_keep_every_phase_since_then_in_memory(self, story: Story) -> None:
        story.ring(gpus=("0", "1"))
        story.pass_second(1.0, 1.0, phases=[(0.0, STEP)])
        story.errors[1] = LOST
        story.pass_seconds(400, 0.5, 1.0, phases=[(0.0, STEP), (0.5, WAIT)])

        (run,) = story.monitor._runs.runs
        assert len(run.timeline._starts_ns) <= 2 * 130


class TestAGpuThatIsLost:
    @pytest.fixture
    def story(self, story: Story) -> Story:
        """Both GPUs have worked for a second; then one is lost."""
        story.pass_second(1.0, 1.0)
        story.errors[1] = LOST
        return story

    def test_is_absent_with_its_error_and_not_idle_until_it_is_back(self, story: Story) -> None:
        story.xid_errors[1] = ((79, 1),)
        state = story.pass_seconds(4, 1.0, 1.0)
        gone = story.miss(NO_DRIVER)
        del story.errors[1]
        back = gpu(story.pass_second(1.0, 1.0), 1)

        assert (gpu(state, 0).present, gpu(state, 1).present, back.present) == (True, False, True)
        assert (gpu(state, 1).error, gpu(state, 1).xid_errors) == (LOST, ((79, 1),))
        observed_ns = [one.totals.observed_ns for one in (*state.gpus, back)]
        assert observed_ns == [s(5), s(1), s(2)]
        assert state.collectors[0].message == f"GPU 1: {LOST}"
        assert gone.collectors[0].message == NO_DRIVER


class TestASourceThatHangs:
    def test_leaves_its_gpus_present_for_two_periods_and_a_half(self, story: Story) -> None:
        story.pass_second(1.0, 0.5)

        assert [gpu(story.miss()).present for _ in range(3)] == [True, True, False]

    def test_leaves_every_counter_as_it_is_until_the_next_frame(self, story: Story) -> None:
        before = story.pass_second(1.0, 0.5)
        for _ in range(5):
            state = story.miss()
        after = gpu(story.pass_second(1.0))

        assert gpu(state).totals == gpu(before).totals
        assert (gpu(state).listed, gpu(state).present) == (True, False)
        assert state.missed_total == 5
        assert not state.collectors[0].success
        assert (after.present, after.totals.observed_ns) == (True, s(2))


class TestRejectedValues:
    def test_are_counted_and_never_integrated(self, story: Story) -> None:
        state = story.pass_second(2.55)

        assert gpu(state).totals.observed_ns == 0
        assert state.collectors[0].errors_total == 1


class TestCounters:
    def test_never_fall_whatever_happens(self, story: Story) -> None:
        states = [story.pass_second(0.0, 1.0)]
        story.ring(gpus=("0", "1"))
        states += [
            story.pass_second(level, 1 - level, phases=[(0.0, STEP), (0.4, WAIT)])
            for level in (0.0, 1.0, 0.5, 0.0, 0.9, 0.0, 0.0)
        ]
        states.append(story.miss())
        story.end_ring()
        states += [story.pass_second(0.0, 0.0), story.pass_second(1.0, 0.3)]

        for before, after in pairwise(states):
            for early, late in zip(before.gpus, after.gpus, strict=True):
                totals = late.totals
                idle_ns = totals.idle_total_ns
                assert totals.busy_ns + idle_ns + totals.pending_ns == totals.observed_ns
                for cause, amount_ns in early.totals.idle_ns.items():
                    assert totals.idle_ns[cause] >= amount_ns

    @pytest.mark.parametrize(("phase", "known_ns"), [(SAVE, {SAVE: s(0.75)}), (STEP, {})])
    def test_of_a_run_include_the_phase_it_is_in_but_a_step_only_when_it_is_over(
        self, story: Story, phase: TrainingPhase, known_ns: dict[TrainingPhase, int]
    ) -> None:
        story.ring()
        (run,) = story.pass_second(1.0, phases=[(0.25, phase)]).runs

        assert (run.phase, run.phase_ns) == (phase, known_ns)


def test_the_drivers_calls_are_those_of_the_newest_frame() -> None:
    calls: dict[str, Any] = {
        "call_seconds": (("nvmlA", 0.5),),
        "call_counts": (("nvmlA", 2),),
        "call_errors": (("nvmlA", 15, 1),),
    }
    watching = monitor()
    watching.ingest(reading(s(1), Frame(s(1), (), **calls)))
    state = watching.ingest(reading(s(2)))

    assert {name: getattr(state, name) for name in calls} == calls
    assert state.collectors[0].errors_total == 1


def test_the_state_has_the_end_of_the_newest_sample(story: Story) -> None:
    state = story.pass_second(0.5)

    assert (gpu(state).last_sample_at_ns, gpu(state).resolution_ns) == (story.now_ns, s(1))


class TestASampleAtTheActivityThreshold:
    """A GPU works above 5 %, and not at 5 %."""

    @pytest.mark.parametrize(("level", "uuids"), [(0.05, ()), (0.06, ("GPU-0",))])
    def test_gives_a_run_its_gpu_only_above_it(
        self, story: Story, level: float, uuids: tuple[str, ...]
    ) -> None:
        story.ring()
        state = story.pass_second(level, phases=[(0.0, WAIT)])

        assert state.runs[0].gpu_uuids == uuids

    @pytest.mark.parametrize(("level", "resolved_ns"), [(0.05, s(0.95)), (0.06, 0)])
    def test_proves_a_wait_only_up_to_it(
        self, training: Story, level: float, resolved_ns: int
    ) -> None:
        state = training.pass_second(level, phases=[(0.0, WAIT)])

        assert gpu(state).totals.resolved_ns == resolved_ns

    @pytest.mark.parametrize(("level", "jobs_gpus"), [(0.05, []), (0.06, [2])])
    def test_makes_a_gpu_a_peer_only_above_it(
        self, story: Story, level: float, jobs_gpus: list[int]
    ) -> None:
        story.ring(gpus=("0", "1"))
        story.pass_second(1.0, level, phases=[(0.0, STEP)])

        jobs_of_several = story.monitor._busiest_of_jobs()
        assert [len(gpus) for gpus in jobs_of_several.values()] == jobs_gpus


class TestPhasesOfTheLastFiveSeconds:
    def test_are_kept_and_older_ones_are_not(self, training: Story) -> None:
        training.pass_seconds(60, 0.5, phases=[(0.0, STEP), (0.5, WAIT)])

        (run,) = training.monitor._runs.runs
        end_ns = gpu(training.state).last_sample_at_ns or 0
        assert run.timeline.parts(end_ns - s(5), end_ns).step_ns == s(2.5)
        assert run.timeline.covered_ns(end_ns - s(7), end_ns) == s(5)


def tagged(story: Story, second: int) -> None:
    works = second % 3
    phase, steps = (STEP, 5) if works else (WAIT, 0)
    story.pass_second(float(bool(works)), 0.9, phases=[(0.0, phase)], steps=steps)


def bursty(story: Story, second: int) -> None:
    story.pass_second(float(second % 4 < 2), 0.5)


def silent_for_a_while(story: Story, second: int) -> None:
    story.pass_second(None if 100 < second < 140 else float(second % 4 > 0), 0.97)


class TestSamplesThatComeEveryFewSeconds:
    @pytest.mark.parametrize("drained_every", [4, 5])
    @pytest.mark.parametrize("pass_second", [tagged, bursty, silent_for_a_while])
    def test_count_as_those_that_come_each_second(
        self, drained_every: int, pass_second: Callable[[Story, int], None]
    ) -> None:
        states = []
        for every in (1, drained_every):
            story = Story(drained_every=every)
            if pass_second is tagged:
                story.ring()
            for second in range(300):
                pass_second(story, second)
            states.append(story.state)
        each, seldom = states

        for one, other in zip(each.gpus, seldom.gpus, strict=True):
            assert one.totals == other.totals
            assert one.verdict == other.verdict
            assert one.last_sample_at_ns == other.last_sample_at_ns


class Machine:
    """GPUs with five samples a second, and runs on them that have all worked."""

    def __init__(self, gpus: int, runs: Iterable[tuple[str, Iterable[int]]] = ()) -> None:
        """``runs``: the job of each, and its GPUs."""
        self._monitor = monitor(simulated=True)
        self._second = 0
        self._devices = [Device(uuid=f"GPU-{n:03}", index=n) for n in range(gpus)]
        self._rings = [
            ring_reading(
                RunFacts(
                    run=f"run-{n}", job=job, pid=n, boot_id="", started_ns=0,
                    gpus=tuple(map(str, on)),
                )
            )
            for n, (job, on) in enumerate(runs)
        ]  # fmt: skip
        self._tick([(0.0, STEP)])
        for _ in range(3):
            self._tick()

    def calls(self, steps: int = 0, *, is_drained: bool = True) -> int:
        """The calls that the next tick takes."""
        phases = [(n / max(1, steps) + at, phase) for n in range(steps) for at, phase in STEPS]
        return count_calls(lambda: self._tick(phases, is_drained=is_drained))

    def _tick(self, phases: Phases = (), *, is_drained: bool = True) -> None:
        began_s, self._second = self._second, self._second + 1
        levels = (0.95, 0.9, 0.2, 0.95, 0.9) if is_drained else ()
        gpus = tuple(
            GpuSample(device, busy=tuple(samples_of(0.2, levels, began_s)))
            for device in self._devices
        )
        events = RingRecords.of(
            RingEvent(RingKind.ENTER, s(began_s + at), phase, 0) for at, phase in phases
        )
        now_ns = s(self._second)
        rings = [ring._replace(read_at_ns=now_ns, events=events) for ring in self._rings]
        frame = Frame(now_ns, gpus)
        self._monitor.ingest(reading(now_ns, frame, rings=RingsReading(rings=tuple(rings))))


class TestTheCostOfATick:
    """Counted in calls, which do not depend on the load of the machine."""

    @pytest.mark.parametrize(
        "runs",
        [
            lambda _: [],
            lambda gpus: [("job", range(gpus))],
            lambda gpus: [("job", [gpu]) for gpu in range(gpus)],
            lambda gpus: [(f"job {gpu}", [gpu]) for gpu in range(gpus)],
            lambda gpus: [(f"job {gpu} {n}", [gpu]) for gpu in range(gpus) for n in range(4)],
        ],
        ids=["no run", "one run", "the ranks of a job", "a job each", "four jobs each"],
    )
    def test_is_with_64_gpus_at_most_eight_times_that_with_8(
        self, runs: Callable[[int], list[tuple[str, Iterable[int]]]]
    ) -> None:
        few, many = (Machine(gpus, runs(gpus)).calls(steps=5) for gpus in (8, 64))

        assert many <= 8 * few

    @pytest.mark.parametrize(("is_drained", "most"), [(True, 260), (False, 125)])
    def test_grows_by_little_with_each_run_that_does_nothing(
        self, is_drained: bool, most: int
    ) -> None:
        none, hundred = (
            Machine(8, [(f"job {n}", [n % 8]) for n in range(runs)]).calls(is_drained=is_drained)
            for runs in (0, 100)
        )

        assert (hundred - none) / 100 <= most

    def test_is_a_quarter_between_two_drains(self) -> None:
        drained, between = (Machine(8).calls(is_drained=one) for one in (True, False))

        assert between <= drained / 4
