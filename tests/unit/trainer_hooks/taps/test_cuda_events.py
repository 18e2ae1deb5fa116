"""Specification of the second witness: events in a device's queue tell when a step was done."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable

import pytest

from trainer_hooks.taps.cuda_events import CudaEvents, events_of_this_device

MS = 1_000_000
A_LOT_OF_STEPS = 500


class Gpu:
    """A device with a queue of work and a clock of its own, which runs a little fast."""

    def __init__(self, *, fast_by: float = 5e-5) -> None:
        self.host_ns = 5_000_000_000_000
        self.free_at_ns = 0
        self.questions = self.records = self.events = 0
        self._fast_by = fast_by
        self._ahead_ms, self._jumped_at_ns = 0.0, 0

    def jump(self, ahead_ms: float) -> None:
        """From now on the device's clock is ahead of what it would have said."""
        self._ahead_ms, self._jumped_at_ns = ahead_ms, self.host_ns

    def event(self) -> Event:
        self.events += 1
        return Event(self)

    def work(self, duration_ms: float) -> None:
        """Handed over now, done as soon as what is before it is done."""
        self.free_at_ns = max(self.free_at_ns, self.host_ns) + round(duration_ms * MS)

    def pass_ms(self, duration_ms: float) -> None:
        """The host does something else."""
        self.host_ns += round(duration_ms * MS)

    def wait_for_it(self) -> None:
        """The host waits until the device has nothing left to do."""
        self.host_ns = max(self.host_ns, self.free_at_ns)

    def ticks_ms(self, host_ns: int) -> float:
        return host_ns * (1 + self._fast_by) / MS + self._ahead_ms * (host_ns > self._jumped_at_ns)


class Event:
    """A mark in that queue, as picky as CUDA's."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._due_ns: int | None = None

    def record(self) -> None:
        assert self._due_ns is None or self._is_past, "this event still stands in the queue"
        self._gpu.records += 1
        self._due_ns = max(self._gpu.free_at_ns, self._gpu.host_ns)

    def query(self) -> bool:
        self._gpu.questions += 1
        return self._is_past

    def elapsed_time(self, end_event: object) -> float:
        assert isinstance(end_event, Event)
        assert self._is_past, "an event that is not done tells no time"
        assert end_event._is_past, "an event that is not done tells no time"
        assert self._due_ns is not None
        assert end_event._due_ns is not None
        return self._gpu.ticks_ms(end_event._due_ns) - self._gpu.ticks_ms(self._due_ns)

    @property
    def _is_past(self) -> bool:
        return self._due_ns is not None and self._gpu.host_ns >= self._due_ns


class Training:
    """A loop of steps whose truth is known."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.told_ns: dict[int, int] = {}
        self.true_ns: dict[int, int] = {}
        self.witness = CudaEvents(gpu.event, self.told_ns.__setitem__, now_ns=lambda: gpu.host_ns)

    def steps(
        self, count: int, *, fetch_ms: float, dispatch_ms: float, work_ms: float, waits: bool
    ) -> None:
        gpu = self.gpu
        for _ in range(count):
            gpu.pass_ms(fetch_ms)
            self.witness.step_begins()
            gpu.work(work_ms)
            gpu.pass_ms(dispatch_ms)
            step = len(self.true_ns) + 1
            self.true_ns[step] = gpu.free_at_ns
            self.witness.step_ended(step)
            if waits:
                gpu.wait_for_it()

    def worst_error_ms(self) -> float:
        return max(abs(at - self.true_ns[step]) for step, at in self.told_ns.items()) / MS


class TestAStepOfTheDevice:
    def test_is_told_where_the_device_waits_for_input(self) -> None:
        training = Training(Gpu())

        training.steps(50, fetch_ms=20, dispatch_ms=1, work_ms=8, waits=False)

        assert len(training.told_ns) >= 48
        assert training.worst_error_ms() < 1.0

    def test_is_told_where_the_host_waits_for_each(self) -> None:
        training = Training(Gpu())

        training.steps(50, fetch_ms=0.2, dispatch_ms=1, work_ms=30, waits=True)

        assert len(training.told_ns) >= 45
        assert training.worst_error_ms() < 1.0

    def test_is_told_where_the_device_is_a_step_behind(self) -> None:
        training = Training(Gpu())

        training.steps(100, fetch_ms=9.5, dispatch_ms=1, work_ms=10, waits=False)

        assert len(training.told_ns) >= 90
        assert training.worst_error_ms() < 5.0

    def test_is_told_as_well_after_an_hour_of_two_clocks_that_part(self) -> None:
        training = Training(Gpu(fast_by=3e-4))

        training.steps(360, fetch_ms=9_990, dispatch_ms=1, work_ms=8, waits=False)

        assert len(training.told_ns) >= 350
        assert training.worst_error_ms() < 1.0

    def test_is_told_again_after_the_clocks_jumped(self) -> None:
        gpu = Gpu()
        training = Training(gpu)
        training.steps(20, fetch_ms=20, dispatch_ms=1, work_ms=8, waits=False)
        before = dict(training.told_ns)
        gpu.pass_ms(100)
        gpu.jump(-3_600)

        training.steps(20, fetch_ms=20, dispatch_ms=1, work_ms=8, waits=False)

        assert len(training.told_ns) >= len(before) + 18
        assert training.worst_error_ms() < 1.0

    def test_is_not_told_while_nobody_can_say_when_it_was(self) -> None:
        training = Training(Gpu())
        training.gpu.work(300)

        training.steps(1, fetch_ms=0, dispatch_ms=1, work_ms=100, waits=False)
        training.gpu.pass_ms(500)
        training.witness.stop()

        assert training.told_ns == {}

    def test_is_told_in_order_and_once(self) -> None:
        told: list[int] = []
        gpu = Gpu()
        training = Training(gpu)
        training.witness = CudaEvents(
            gpu.event, lambda step, _: told.append(step), now_ns=lambda: gpu.host_ns
        )

        training.steps(50, fetch_ms=3, dispatch_ms=1, work_ms=4, waits=False)

        assert told == sorted(set(told))


class TestTheQueue:
    def test_holds_few_events_however_far_the_device_is_behind(self) -> None:
        training = Training(Gpu())

        training.steps(A_LOT_OF_STEPS, fetch_ms=1, dispatch_ms=1, work_ms=1_000, waits=False)

        assert training.gpu.events <= 64
        assert training.gpu.questions <= 3 * A_LOT_OF_STEPS

    def test_is_used_again_when_the_device_caught_up(self) -> None:
        training = Training(Gpu())
        training.steps(100, fetch_ms=1, dispatch_ms=1, work_ms=100, waits=False)
        training.gpu.wait_for_it()

        training.steps(20, fetch_ms=20, dispatch_ms=1, work_ms=8, waits=False)

        assert max(training.told_ns) >= 118

    def test_gets_no_events_of_steps_too_short_to_be_worth_them(self) -> None:
        training = Training(Gpu())

        training.steps(100, fetch_ms=0.05, dispatch_ms=0.05, work_ms=0.01, waits=False)

        assert training.gpu.records <= 2 * 11


class TestAWitnessThatWouldDoHarm:
    def test_keeps_out_of_a_graph_that_is_being_captured(self) -> None:
        gpu = Gpu()
        witness = CudaEvents(
            gpu.event,
            lambda *_: None,
            now_ns=lambda: gpu.host_ns,
            is_capturing=lambda: True,
        )

        for step in range(5):
            gpu.pass_ms(10)
            witness.step_begins()
            witness.step_ended(step)

        assert (gpu.records, gpu.questions) == (0, 0)

    def test_warns_once_of_an_error_and_asks_no_more(self) -> None:
        calls = []

        def broken() -> Event:
            calls.append(1)
            raise RuntimeError("no context")

        gpu = Gpu()
        witness = CudaEvents(broken, lambda *_: None, now_ns=lambda: gpu.host_ns)

        gpu.pass_ms(10)
        with pytest.warns(RuntimeWarning, match="no longer asks CUDA"):
            witness.step_begins()
        for step in range(3):  # a second warning would be an error here
            witness.step_ended(step)
            gpu.pass_ms(10)
            witness.step_begins()
        witness.stop()

        assert len(calls) == 1

    def test_says_nothing_of_an_error_at_the_very_end(self) -> None:
        training = Training(Gpu())
        training.steps(1, fetch_ms=5, dispatch_ms=1, work_ms=100, waits=False)

        def fail() -> bool:
            raise RuntimeError("device-side assert")

        training.witness._pending[0].event.query = fail  # type: ignore[method-assign]
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            training.witness.stop()

        assert warned == []

    def test_is_not_there_where_nobody_imported_torch(self) -> None:
        assert events_of_this_device(lambda *_: None) is None


class LiveGpu(Gpu):
    """The same on the real clock, for what happens on another thread."""

    @property
    def host_ns(self) -> int:
        return time.monotonic_ns()

    @host_ns.setter
    def host_ns(self, _: int) -> None: ...


def until(condition: Callable[[], bool]) -> bool:
    deadline_s = time.monotonic() + 5.0
    while not condition() and time.monotonic() < deadline_s:
        time.sleep(0.005)
    return condition()


class TestWhileTheTrainingIsElsewhere:
    @pytest.fixture
    def gpu(self) -> LiveGpu:
        return LiveGpu()

    def witness(self, gpu: LiveGpu, told: list[int]) -> CudaEvents:
        return CudaEvents(gpu.event, lambda step, _: told.append(step), enter_thread=lambda: None)

    def train(self, witness: CudaEvents, gpu: LiveGpu, step: int, *, work_ms: float) -> None:
        witness.step_begins()
        gpu.work(work_ms)
        time.sleep(0.002)
        witness.step_ended(step)

    def test_a_thread_hears_that_the_device_is_done(self, gpu: LiveGpu) -> None:
        told: list[int] = []
        witness = self.witness(gpu, told)
        for step in range(1, 6):  # the clocks are told apart
            self.train(witness, gpu, step, work_ms=0)
            time.sleep(0.002)

        self.train(witness, gpu, 6, work_ms=60)

        assert 6 not in told
        assert until(lambda: 6 in told)
        witness.stop()

    def test_nobody_asks_while_a_step_is_handed_over(self, gpu: LiveGpu) -> None:
        witness = self.witness(gpu, [])
        self.train(witness, gpu, 1, work_ms=200)
        time.sleep(0.01)

        witness.step_begins()
        before = gpu.questions
        time.sleep(0.1)

        assert gpu.questions == before
        witness.stop()

    def test_the_thread_ends_with_the_training(self, gpu: LiveGpu) -> None:
        witness = self.witness(gpu, [])
        self.train(witness, gpu, 1, work_ms=1_000)

        witness.stop()

        assert until(lambda: "gpumon-cuda" not in {t.name for t in threading.enumerate()})
