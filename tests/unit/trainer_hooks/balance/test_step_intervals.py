"""An interval is the mean over undisturbed steps with the same split."""

from __future__ import annotations

import pytest

from trainer_hooks.balance.step_intervals import (
    SpeedChanges,
    SpeedVerdict,
    SplitTimes,
    StepIntervals,
    TimedStep,
)


def intervals(*steps: TimedStep) -> StepIntervals:
    gathered = StepIntervals()
    gathered.add(steps)
    return gathered


def step(first: float, second: float, samples: tuple[int, ...] = (60, 40)) -> TimedStep:
    return TimedStep((first, second), samples)


SAME = step(2.0, 3.0)
THE_SAME = SplitTimes((60, 40), (2.0, 3.0))


class TestAnInterval:
    def test_is_the_mean_of_the_shorter_half_for_each_gpu(self) -> None:
        gathered = intervals(step(1.0, 9.0), step(3.0, 2.0), step(8.0, 4.0), step(9.0, 7.0))

        assert gathered.interval() == THE_SAME
        gathered.clear()
        assert gathered.interval() is None

    @pytest.mark.parametrize(
        "others",
        [
            [],
            [step(0.1, 0.1, (6, 4))] * 2,
            [step(1.0, 1.0, (50, 50))] * 9,
            [step(1.0, 1.0, (1, 0))] * 5,
            [step(0.0, 1.0), step(float("nan"), 1.0), step(-1.0, 1.0)],
        ],
        ids=["alone", "another size", "an earlier split", "a GPU without samples", "invalid times"],
    )
    def test_needs_three_usual_steps_and_ignores_others(self, others: list[TimedStep]) -> None:
        assert intervals(*others, SAME, SAME).interval() is None
        assert intervals(*others, SAME, SAME, SAME).interval() == THE_SAME

    def test_may_be_that_of_another_size(self) -> None:
        odd = [step(0.1, 0.1, (6, 4))] * 3

        found = intervals(*odd, *[SAME] * 3).interval(total=10)
        assert found == SplitTimes((6, 4), (0.1, 0.1))


class TestASpeedThatChangesWithTheSplit:
    BEFORE = SplitTimes((300, 300), (0.020, 0.030))

    @pytest.mark.parametrize(
        "now",
        [
            SplitTimes((360, 240), (0.024, 0.024)),
            SplitTimes((360, 240), (0.030, 0.019)),
            SplitTimes((600, 20), (0.036, 0.026)),
            SplitTimes((300, 300), (0.080, 0.030)),
        ],
        ids=["as expected", "within a wave", "with what each step costs anyway", "the same split"],
    )
    def test_is_not_reported_where_the_samples_explain_it(self, now: SplitTimes) -> None:
        speeds = SpeedChanges()
        speeds.update(self.BEFORE)

        assert speeds.update(now) is SpeedVerdict.FITS

    @pytest.mark.parametrize(
        "now", [SplitTimes((303, 297), (0.040, 0.030)), SplitTimes((240, 360), (0.020, 0.020))]
    )
    def test_is_reported_when_it_is_measured_twice(self, now: SplitTimes) -> None:
        speeds = SpeedChanges()

        assert speeds.update(self.BEFORE) is SpeedVerdict.FITS
        assert speeds.update(now) is SpeedVerdict.ODD
        assert speeds.update(now) is SpeedVerdict.CHANGED
        assert speeds.update(now) is SpeedVerdict.FITS

    def test_is_not_reported_when_it_is_measured_once(self) -> None:
        speeds, now = SpeedChanges(), SplitTimes((303, 297), (0.0202, 0.030))

        assert speeds.update(self.BEFORE) is SpeedVerdict.FITS
        assert speeds.update(now._replace(busy_seconds=(0.040, 0.030))) is SpeedVerdict.ODD
        assert speeds.update(now) is SpeedVerdict.FITS
