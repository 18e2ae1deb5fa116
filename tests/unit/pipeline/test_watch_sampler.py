"""Specification of the sampler: a fixed grid, lateness as data, and a source that hangs alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import pairwise

import pytest

from gpumon.core.sample import Frame
from gpumon.errors import RestartNeededError, SourceUnavailableError
from gpumon.pipeline.watch import Sampler, SourceThread, next_deadline_ns
from gpumon.sources.system_clock import SystemClock
from tests.builders_time import s


class GridClock:
    """A clock that stands still but while somebody sleeps; the test may let time pass."""

    def __init__(self) -> None:
        self.now_ns = s(100)
        self.slept_until: list[int] = []

    def monotonic_ns(self) -> int:
        return self.now_ns

    def wall_time_s(self) -> float:
        return 0.0

    def sleep_until_ns(self, deadline_ns: int) -> None:
        self.slept_until.append(deadline_ns)
        self.now_ns = max(self.now_ns, deadline_ns)


class ScriptedSource:
    """A source whose reads do what the test says."""

    def __init__(self, clock: GridClock, read: Callable[[], None] = lambda: None) -> None:
        self._clock = clock
        self._read = read
        self.closed = False

    def read(self) -> Frame:
        self._read()
        return Frame(taken_at_ns=self._clock.monotonic_ns())

    def close(self) -> None:
        self.closed = True


class TestTheGrid:
    @pytest.mark.parametrize(
        ("now", "expected"), [(10.0, 11), (10.2, 11), (11.0, 12), (13.7, 14), (9.0, 11)]
    )
    def test_the_next_deadline_is_on_it_and_in_the_future(self, now: float, expected: int) -> None:
        assert next_deadline_ns(s(10), s(now), s(1)) == s(expected)

    def test_does_not_drift_when_reads_take_time(self) -> None:
        clock = GridClock()

        def slow() -> None:
            clock.now_ns += s(0.3)

        thread = SourceThread(lambda: ScriptedSource(clock, slow), clock)
        sampler = Sampler(thread, clock, period_ns=s(1))
        for _ in range(5):
            sampler.tick()
        thread.stop(1.0)

        assert clock.slept_until == [s(100 + k) for k in range(5)]

    def test_an_overrun_is_counted_and_not_caught_up(self) -> None:
        clock = GridClock()
        thread = SourceThread(lambda: ScriptedSource(clock), clock)
        sampler = Sampler(thread, clock, period_ns=s(1))
        sampler.tick()
        clock.now_ns += s(4.5)

        late = sampler.tick()
        after = sampler.tick()
        thread.stop(1.0)

        assert late.missed_count == 4
        assert after.missed_count == 0
        assert clock.slept_until[1:] == [s(105), s(106)]

    def test_lateness_is_said(self) -> None:
        clock = GridClock()

        def slow() -> None:
            clock.now_ns += s(0.25)

        thread = SourceThread(lambda: ScriptedSource(clock, slow), clock)
        tick = Sampler(thread, clock, period_ns=s(1)).tick()
        thread.stop(1.0)

        assert tick.late_ns == s(0.25)
        assert tick.duration_seconds == pytest.approx(0.25)


class TestAHangingCall:
    @pytest.mark.measured
    def test_costs_ticks_and_nothing_else_and_its_frame_is_not_lost(self) -> None:
        release = threading.Event()
        clock = SystemClock()

        class Hanging:
            reads = 0

            def read(self) -> Frame:
                self.reads += 1
                if self.reads == 2:
                    release.wait(10)
                return Frame(taken_at_ns=clock.monotonic_ns())

            def close(self) -> None: ...

        thread = SourceThread(Hanging, clock)
        sampler = Sampler(thread, clock, period_ns=s(0.05))
        first = sampler.tick()
        began_s = time.monotonic()
        hanging = [sampler.tick() for _ in range(5)]
        lasted_s = time.monotonic() - began_s
        threads = threading.active_count()
        release.set()
        back = [sampler.tick() for _ in range(5)]
        thread.stop(1.0)

        assert len(first.frames) == 1
        assert all(tick.frames == () for tick in hanging)
        assert all("not answered" in (tick.error or "") for tick in hanging)
        assert lasted_s < 2.0
        assert sum(len(tick.frames) for tick in back) >= 5
        assert back[-1].error is None
        assert threading.active_count() <= threads

    @pytest.mark.measured
    def test_does_not_keep_the_process_from_ending(self) -> None:
        release = threading.Event()
        clock = SystemClock()

        class Stuck:
            def read(self) -> Frame:
                release.wait(10)
                return Frame(taken_at_ns=0)

            def close(self) -> None: ...

        thread = SourceThread(Stuck, clock)
        thread.ask()
        began_s = time.monotonic()
        thread.stop(0.2)
        release.set()

        assert time.monotonic() - began_s < 2.0


class TestASourceThatCannotBeRead:
    def test_is_said_in_each_tick_until_it_can(self) -> None:
        clock = GridClock()
        tries: list[int] = []

        def make() -> ScriptedSource:
            tries.append(clock.now_ns)
            if len(tries) < 3:
                raise SourceUnavailableError("no driver")
            return ScriptedSource(clock)

        thread = SourceThread(make, clock)
        sampler = Sampler(thread, clock, period_ns=s(1))
        ticks = [sampler.tick() for _ in range(6)]
        thread.stop(1.0)

        assert [tick.error for tick in ticks[:3]] == ["no driver"] * 3
        assert ticks[-1].error is None
        assert ticks[-1].frames

    @pytest.mark.parametrize("trouble", [SourceUnavailableError("no driver"), OSError("a bug")])
    def test_is_tried_again_at_longer_and_longer_intervals(self, trouble: Exception) -> None:
        clock = GridClock()
        tries: list[int] = []

        def make() -> ScriptedSource:
            tries.append(clock.now_ns)
            raise trouble

        thread = SourceThread(make, clock)
        sampler = Sampler(thread, clock, period_ns=s(1))
        for _ in range(300):
            sampler.tick()
        thread.stop(1.0)

        waits = [(after - before) / s(1) for before, after in pairwise(tries)]
        assert waits[:6] == [1, 2, 4, 8, 16, 32]
        assert set(waits[6:]) == {60}

    @pytest.mark.parametrize("made", [True, False], ids=["when-read", "when-made"])
    def test_by_this_process_any_more_says_that_a_new_one_is_needed(self, made: bool) -> None:
        clock = GridClock()
        trouble = RestartNeededError("start gpumon again")

        def fail() -> None:
            raise trouble

        def make() -> ScriptedSource:
            if not made:
                fail()
            return ScriptedSource(clock, fail)

        thread = SourceThread(make, clock)
        assert thread.restart_needed is None
        tick = Sampler(thread, clock, period_ns=s(1)).tick()
        thread.stop(1.0)

        assert tick.error == "start gpumon again"
        assert thread.restart_needed is trouble

    def test_never_ends_the_thread_whatever_it_raises(self) -> None:
        clock = GridClock()
        troubles = [RuntimeError("driver bug"), ValueError("another")]

        def read() -> None:
            if troubles:
                raise troubles.pop()

        thread = SourceThread(lambda: ScriptedSource(clock, read), clock)
        sampler = Sampler(thread, clock, period_ns=s(1))
        ticks = [sampler.tick() for _ in range(3)]
        thread.stop(1.0)

        assert ticks[0].error == "ValueError: another"
        assert ticks[2].frames

    def test_is_closed_when_it_is_stopped(self) -> None:
        clock = GridClock()
        source = ScriptedSource(clock)
        thread = SourceThread(lambda: source, clock)
        Sampler(thread, clock, period_ns=s(1)).tick()
        thread.stop(1.0)

        assert source.closed
