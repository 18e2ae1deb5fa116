"""Specification of silence: since when a run counts no step, and when that is a hang."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gpumon.core.phase import TrainingMode, TrainingPhase
from gpumon.core.ring_format.events import LOOP_BEGAN, LOOP_ENDED, RingEvent, RingKind, RingRecords
from gpumon.core.ring_format.silence import RunSilence, StepClock
from tests.builders.monitor import run_reading
from tests.builders.time import s

WAIT, STEP, OTHER = TrainingPhase.INPUT_WAIT, TrainingPhase.TRAIN_STEP, TrainingPhase.OTHER
CALLBACKS = TrainingPhase.CALLBACKS
UNTIMED = [TrainingPhase.START_UP, TrainingPhase.COMPILE]
LONG = [TrainingPhase.VALIDATION, TrainingPhase.PREDICT, TrainingPhase.CHECKPOINT]


class Run:
    """A run whose ring is read once a second."""

    def __init__(self) -> None:
        self.clock = StepClock()
        self.second = self.steps = 0
        self.median_ns: int | None = None
        self._phase = TrainingPhase.START_UP

    @property
    def silence(self) -> RunSilence | None:
        return self.clock.silence

    @property
    def silent_s(self) -> float | None:
        """For how long it has counted no step."""
        silence = self.silence
        return None if silence is None else (s(self.second) - silence.since_ns) / s(1)

    @property
    def hangs(self) -> bool:
        return self.silence is not None and self.silence.is_hanging

    def hangs_after(self, seconds: int, phase: TrainingPhase, *, within_s: int = 1) -> bool:
        """Whether it hangs after more than so many seconds in a phase, and not before."""
        self.passes(seconds, phase)
        hung_before = self.hangs
        self.passes(within_s, phase)
        return self.hangs and not hung_before

    def passes(
        self,
        seconds: int,
        phase: TrainingPhase,
        *,
        steps: int = 0,
        mode: TrainingMode = TrainingMode.TRAIN,
        stopped: bool = False,
        first_wait_since: int | None = None,
        marks: Sequence[int] = (),
        is_over: bool = False,
        alive: bool = True,
    ) -> None:
        """So many seconds in a phase, with so many steps in each."""
        for _ in range(seconds):
            began_ns = s(self.second)
            self.second += 1
            events = [RingEvent(RingKind.EVENT, began_ns, self._phase, mark) for mark in marks]
            marks = ()
            if phase is not self._phase:
                events.append(RingEvent(RingKind.ENTER, began_ns, phase, mode))
                self._phase = phase
            for number in range(steps):
                self.steps += 1
                at_ns = began_ns + s((number + 1) / steps)
                events.append(RingEvent(RingKind.STEP, at_ns, phase, self.steps))
            reading = run_reading()._replace(
                events=RingRecords.of(events), read_at_ns=s(self.second), steps=self.steps,
                alive=alive, ended_ns=None if alive else began_ns,
            )  # fmt: skip
            self.clock.update(
                reading,
                median_ns=self.median_ns,
                first_wait_since_ns=None if first_wait_since is None else s(first_wait_since),
                stopped_ns=s(1) if stopped else 0,
                is_over=is_over,
            )


@pytest.fixture
def run() -> Run:
    """One that has trained for ten seconds, ten steps in each."""
    made = Run()
    made.passes(10, STEP, steps=10)
    made.median_ns = s(0.1)
    return made


class TestARunThatCountsNoStep:
    @pytest.mark.parametrize("phase", [WAIT, STEP, CALLBACKS, OTHER])
    def test_hangs_after_thirty_seconds_in_any_phase_of_training_until_it_counts_one(
        self, run: Run, phase: TrainingPhase
    ) -> None:
        run.passes(30, phase)
        assert (run.silent_s, run.hangs) == (30, False)
        run.passes(1, phase)

        silence = run.silence
        assert silence is not None
        assert (silence.phase, silence.since_ns, silence.hanging_from_ns) == (phase, s(10), s(40))

        run.passes(1, STEP, steps=1)
        assert (run.silent_s, run.hangs) == (0, False)

    def test_may_take_twenty_medians(self, run: Run) -> None:
        run.median_ns = s(5)

        assert run.hangs_after(100, WAIT)

    def test_may_take_three_times_as_long_as_it_ever_took(self, run: Run) -> None:
        run.passes(25, WAIT)
        run.passes(1, STEP, steps=1)

        assert run.hangs_after(78, WAIT)

    def test_may_take_three_times_as_long_as_its_first_step_which_compiled(self) -> None:
        run = Run()
        run.passes(119, STEP)
        run.passes(1, STEP, steps=1)

        assert run.hangs_after(360, STEP)

    def test_is_known_by_the_gaps_of_a_ring_that_is_read_late(self) -> None:
        run = Run()
        events = [RingEvent(RingKind.ENTER, s(0.5), STEP, TrainingMode.TRAIN)]
        events += [
            RingEvent(RingKind.STEP, s(at_s), STEP, number)
            for number, at_s in enumerate((1, 2, 52, 53), start=1)
        ]
        reading = run_reading()._replace(events=RingRecords.of(events), read_at_ns=s(150), steps=4)
        for read_at_s, hangs in ((150, False), (203, False), (204, True)):
            run.clock.update(
                reading._replace(read_at_ns=s(read_at_s)),
                median_ns=None, first_wait_since_ns=None, stopped_ns=0, is_over=False,
            )  # fmt: skip
            reading = reading._replace(events=RingRecords.of(()))
            assert run.hangs is hangs


class TestASilentRun:
    @pytest.mark.parametrize("phase", UNTIMED)
    def test_may_compile_or_start_up_for_any_time(self, run: Run, phase: TrainingPhase) -> None:
        run.passes(400, phase)
        assert run.silence is None
        run.passes(30, STEP)
        assert not run.hangs

    def test_does_not_hang_before_its_first_step_except_in_the_first_wait(self) -> None:
        run = Run()
        run.passes(400, STEP)

        assert run.silence is None

    def test_does_not_hang_once_training_is_over(self, run: Run) -> None:
        run.passes(100, OTHER, is_over=True)

        assert run.silence is None

    def test_does_not_hang_while_its_process_is_stopped(self, run: Run) -> None:
        run.passes(20, WAIT)
        run.passes(100, WAIT, stopped=True)

        assert run.hangs_after(10, WAIT)

    def test_does_not_hang_after_the_last_batch_of_its_loop(self, run: Run) -> None:
        run.passes(1, STEP, steps=1, marks=[LOOP_BEGAN])
        run.passes(100, OTHER, marks=[LOOP_ENDED])

        assert run.silence is None


class TestALoopThatMarksItsEnd:
    def test_hangs_in_untagged_code_before_that(self, run: Run) -> None:
        run.passes(1, STEP, steps=1, marks=[LOOP_BEGAN])
        run.passes(600, OTHER)

        assert run.hangs
        assert not run.clock.may_be_over

    def test_may_be_over_after_its_end_or_without_marks(self, run: Run) -> None:
        assert run.clock.may_be_over
        run.passes(1, OTHER, marks=[LOOP_BEGAN, LOOP_ENDED])
        assert run.clock.may_be_over


class TestAFirstBatch:
    def test_may_take_five_minutes(self) -> None:
        run = Run()
        run.passes(5, TrainingPhase.START_UP)
        run.passes(300, WAIT, first_wait_since=5)
        assert run.silence == RunSilence(s(5), WAIT, s(300), is_first_batch=True)
        run.passes(1, WAIT, first_wait_since=5)

        assert run.silence is not None
        assert (run.silence.is_hanging, run.silence.hanging_from_ns) == (True, s(305))


class TestALongPhase:
    @pytest.mark.parametrize("phase", LONG)
    def test_may_take_half_an_hour_the_first_time(self, run: Run, phase: TrainingPhase) -> None:
        assert run.hangs_after(1_800, phase, within_s=2)

    def test_may_take_three_times_as_long_as_the_longest_so_far(self, run: Run) -> None:
        phase = TrainingPhase.CHECKPOINT
        run.passes(100, phase)
        run.passes(5, STEP, steps=2)

        assert run.hangs_after(295, phase, within_s=10)

    def test_is_found_by_the_mode_too(self, run: Run) -> None:
        run.passes(600, WAIT, mode=TrainingMode.VALIDATION)

        assert not run.hangs

    def test_restarts_the_step_clock(self, run: Run) -> None:
        run.passes(600, TrainingPhase.VALIDATION)

        assert run.hangs_after(30, WAIT, within_s=2)
