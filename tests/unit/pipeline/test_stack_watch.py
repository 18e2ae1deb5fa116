"""The shares that `gpumon why` finds in simulated training loops, against the known ones."""

from __future__ import annotations

from random import Random
from statistics import mean
from typing import Any, cast

import pytest

from gpumon.core.phase import IdleCause
from gpumon.core.sample import BusySample, Device, Frame, GpuSample
from gpumon.core.stacks.place import Place
from gpumon.core.stacks.stack import ProcessStack, StackSample
from gpumon.pipeline.stack_watch import StackWatch, Target, WatchedTime, WatchReader
from tests.builders.time import HandClock, s
from tests.unit.pipeline.simulated_loops import (
    INPUT,
    LONG_WINDOW,
    WINDOW,
    Loop,
    SimulatedLoop,
    alternating,
    bursty,
    in_phase,
    mixed,
)

GPU = Device(uuid="GPU-0", index=0)
WATCHED_S = 60.0
NO_PROCESS = 4_194_300


class Driver:
    """Reports a window when it ends; a read takes 5 ms."""

    idle = True

    def __init__(self, clock: HandClock, loop: SimulatedLoop, window_s: float) -> None:
        self._clock, self._loop, self._window_s = clock, loop, window_s
        self._from_s = loop.began_s

    def request(self, _: object) -> None:
        self._clock.pass_seconds(0.005)

    def collect(self, _: float) -> tuple[tuple[Frame, ...], None, float]:
        windows = []
        while s(self._from_s + self._window_s) <= self._clock.now_ns:
            end_s = self._from_s + self._window_s
            busy_s = self._loop.seconds_of(None, self._from_s, end_s)
            ratio = min(1.0, busy_s / self._window_s)
            windows.append(BusySample(s(self._from_s), s(end_s), ratio))
            self._from_s = end_s
        gpu = GpuSample(device=GPU, busy=tuple(windows))
        return (Frame(taken_at_ns=self._clock.now_ns, gpus=(gpu,)),), None, 0.0


def simulated(loop: Loop, seed: int) -> SimulatedLoop:
    """It, watched from any time on."""
    random = Random(seed)
    return SimulatedLoop(loop, random, WATCHED_S, from_s=random.uniform(0, 10))


def watched(loop: SimulatedLoop, seed: int, window_s: float) -> WatchedTime:
    clock = HandClock()
    clock.now_ns = s(loop.began_s)

    def read(pid: int) -> StackSample:
        began_ns = clock.now_ns
        clock.pass_seconds(0.02)
        cause = loop.cause_at(began_ns / s(1))
        process = ProcessStack(pid, None, cause.name if cause else "", ())
        return StackSample(began_ns, began_ns + s(0.01), pid, (process,))

    def place_of(sample: StackSample) -> Place:
        name = sample.processes[0].program
        return Place(IdleCause[name] if name else None)

    driver: Any = Driver(clock, loop, window_s)
    reader = WatchReader(read, place_of)
    watch = StackWatch(driver, Target("0", NO_PROCESS), reader, cast("Any", clock))
    watch.random.seed(seed)
    return watch.run(WATCHED_S, is_alive=lambda: True)


class Found:
    """Of twenty watches of a loop: errors of the share of input, and how often its interval holds.

    Watches with too few samples for a share are left out.
    """

    def __init__(self, loop: Loop, window_s: float = WINDOW) -> None:
        self.errors: list[float] = []
        self.covered: list[bool] = []
        self.times: list[WatchedTime] = []
        for seed in range(20):
            one = simulated(loop, seed)
            time = watched(one, seed, window_s)
            self.times.append(time)
            shares = [share for share in time.finding.causes if share.cause is INPUT]
            for share in shares if time.finding.is_enough else ():
                self.errors.append(share.ratio - one.input_share)
                self.covered.append(share.low <= one.input_share <= share.high)

    @property
    def is_unbiased(self) -> bool:
        # The edges of a pause are never seen. Where they are all alike, an error of up to half a
        # window remains, which the interval does not know.
        return abs(mean(self.errors)) <= 0.06 and mean(self.covered) >= 0.8


class TestTheShareOfAWatch:
    @pytest.mark.parametrize("pause_s", [0.3, 1.0, 10.0])
    def test_is_unbiased_for_pauses_of_one_length(self, pause_s: float) -> None:
        assert Found(mixed(pause_s, pause_s, pause_s)).is_unbiased

    @pytest.mark.parametrize("pause_s", [0.3, 1.0])
    def test_is_unbiased_for_pauses_of_any_length(self, pause_s: float) -> None:
        assert Found(bursty(pause_s)).is_unbiased

    @pytest.mark.parametrize(("input_s", "save_s"), [(1.0, 10.0), (0.5, 3.0), (3.0, 0.5)])
    def test_is_unbiased_where_one_cause_has_short_pauses_and_the_other_long_ones(
        self, input_s: float, save_s: float
    ) -> None:
        assert Found(mixed(input_s, save_s, 1.0)).is_unbiased

    @pytest.mark.parametrize(("period_s", "idle_s"), [(1.0, 0.8), (2.0, 1.5), (5.0, 4.0)])
    def test_is_unbiased_for_a_loop_in_phase_with_the_reading(
        self, period_s: float, idle_s: float
    ) -> None:
        assert Found(in_phase(period_s, idle_s), 0.17).is_unbiased

    @pytest.mark.parametrize(("period_s", "idle_s"), [(0.5, 0.4), (1.0, 0.8), (1.0, 0.5)])
    def test_is_unbiased_for_pauses_in_phase_with_the_reading(
        self, period_s: float, idle_s: float
    ) -> None:
        assert Found(alternating(period_s, idle_s)).is_unbiased

    @pytest.mark.parametrize("pause_s", [1.0, 10.0])
    def test_is_within_ten_points_after_a_minute(self, pause_s: float) -> None:
        found = Found(mixed(pause_s, pause_s, pause_s))

        assert mean(abs(error) <= 0.1 for error in found.errors) >= 0.95

    def test_is_unbiased_with_windows_of_a_second(self) -> None:
        assert Found(mixed(10.0, 10.0, 3.0), LONG_WINDOW).is_unbiased


class TestTheTimesOfAWatch:
    @pytest.mark.parametrize("pause_s", [0.1, 1.0, 10.0])
    def test_add_up(self, pause_s: float) -> None:
        for time in Found(mixed(pause_s, pause_s, pause_s)).times:
            assert 0 <= time.seen_idle_ns <= time.idle_ns <= time.observed_ns <= time.passed_ns
            assert time.finding.idle_samples + time.finding.busy_samples <= 125


class TestPausesThatAreTooShort:
    def test_for_a_window_are_set_apart_from_those_that_are_seen(self) -> None:
        for time in Found(mixed(0.5, 5.0, 0.5), LONG_WINDOW).times:
            assert not time.sees_most
            assert time.seen_idle_ns < 0.75 * time.idle_ns

    def test_for_any_window_leave_shares_of_all_samples_alone(self) -> None:
        time = watched(simulated(in_phase(0.4, 0.2), 1), 1, LONG_WINDOW)
        share = next(share for share in time.finding.at_random if share.cause is INPUT)

        assert time.is_short
        assert time.finding.idle_samples == 0
        assert share.low <= 0.3 <= share.high
