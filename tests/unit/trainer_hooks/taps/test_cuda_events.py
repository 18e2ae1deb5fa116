"""Events in a device's queue show when a step was done."""

from __future__ import annotations

import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest

from tests.cuda_driver import show_driver
from tests.cuda_queue import Event, Gpu, Training
from tests.waiting import until
from trainer_hooks.taps.cuda_events import CudaEvents, events_of_this_device

A_LOT_OF_STEPS = 500


class TestAStepOfTheDevice:
    @pytest.mark.parametrize(
        ("gpu", "steps", "fetch_ms", "work_ms", "waits", "error_ms"),
        [
            pytest.param(Gpu(), 50, 20, 8, False, 1.0, id="the device waits for input"),
            pytest.param(Gpu(), 100, 9.5, 10, False, 5.0, id="the device is a step behind"),
            pytest.param(Gpu(), 50, 0.2, 30, True, 1.0, id="the host waits for each step"),
            pytest.param(Gpu(fast_by=3e-4), 360, 9_990, 8, False, 1.0, id="an hour of two clocks"),
        ],
    )
    def test_is_recorded_in_order(
        self, gpu: Gpu, steps: int, fetch_ms: float, work_ms: float, waits: bool, error_ms: float
    ) -> None:
        training = Training(gpu)

        training.steps(steps, fetch_ms=fetch_ms, dispatch_ms=1, work_ms=work_ms, waits=waits)

        assert len(training.reported_ns) >= 0.9 * steps
        assert list(training.reported_ns) == sorted(training.reported_ns)
        assert training.worst_error_ms() < error_ms

    def test_is_recorded_again_after_the_clocks_jumped(self) -> None:
        gpu = Gpu()
        training = Training(gpu)
        training.steps(20, fetch_ms=20, dispatch_ms=1, work_ms=8, waits=False)
        before = dict(training.reported_ns)
        gpu.pass_ms(100)
        gpu.jump(-3_600)

        training.steps(20, fetch_ms=20, dispatch_ms=1, work_ms=8, waits=False)

        assert len(training.reported_ns) >= len(before) + 18
        assert training.worst_error_ms() < 1.0

    def test_is_not_recorded_while_no_one_can_say_when_it_was(self) -> None:
        training = Training(Gpu())
        training.gpu.work(300)

        training.steps(1, fetch_ms=0, dispatch_ms=1, work_ms=100, waits=False)
        training.gpu.pass_ms(500)
        training.witness.stop()

        assert training.reported_ns == {}


class TestTheQueue:
    def test_has_few_events_however_far_the_device_is_behind_and_reuses_them(self) -> None:
        training = Training(Gpu())

        training.steps(A_LOT_OF_STEPS, fetch_ms=1, dispatch_ms=1, work_ms=1_000, waits=False)

        assert training.gpu.events <= 64
        assert training.gpu.questions <= 3 * A_LOT_OF_STEPS
        training.gpu.wait_for_it()
        training.steps(20, fetch_ms=20, dispatch_ms=1, work_ms=8, waits=False)
        assert max(training.reported_ns) >= A_LOT_OF_STEPS + 18

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

    def test_reports_nothing_of_an_error_at_the_very_end(self) -> None:
        training = Training(Gpu())
        training.steps(1, fetch_ms=5, dispatch_ms=1, work_ms=100, waits=False)

        def fail() -> bool:
            raise RuntimeError("device-side assert")

        training.witness._pending[0].event.query = fail  # type: ignore[method-assign]
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            training.witness.stop()

        assert warned == []


class _CudaThatFails:
    """As ``torch`` is where its CUDA cannot be asked."""

    class cuda:  # noqa: N801  (torch calls it so)
        @staticmethod
        def is_initialized() -> bool:
            raise RuntimeError("CUDA error: unspecified launch failure")


def test_a_cuda_that_cannot_be_asked_is_warned_of_once_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert events_of_this_device(lambda *_: None) is None  # nothing has imported torch
    monkeypatch.setitem(sys.modules, "torch", _CudaThatFails)
    with pytest.warns(match="gpumon cannot ask CUDA when a step is done: .*launch failure"):
        events = events_of_this_device(lambda *_: None)

    assert events is None


class LiveGpu(Gpu):
    """The same on a clock that goes by itself, for what happens on another thread."""

    _ahead_ns = 0

    @property
    def host_ns(self) -> int:
        return time.monotonic_ns() + self._ahead_ns

    @host_ns.setter
    def host_ns(self, at_ns: int) -> None:
        self._ahead_ns = at_ns - time.monotonic_ns()


class TestWhileTheRunIsElsewhere:
    @pytest.fixture
    def gpu(self) -> LiveGpu:
        return LiveGpu()

    def witness(self, gpu: LiveGpu, recorded: list[int]) -> CudaEvents:
        return CudaEvents(
            gpu.event,
            lambda step, _: recorded.append(step),
            now_ns=lambda: gpu.host_ns,
            in_thread=nullcontext,
        )

    def train(self, witness: CudaEvents, gpu: LiveGpu, step: int, *, work_ms: float) -> None:
        witness.step_begins()
        gpu.work(work_ms)
        time.sleep(0.002)
        witness.step_ended(step)

    def test_a_thread_reports_that_the_device_is_done_and_ends_with_the_run(
        self, gpu: LiveGpu
    ) -> None:
        recorded: list[int] = []
        witness = self.witness(gpu, recorded)
        for step in range(1, 6):  # so that the offset of the clocks is known
            self.train(witness, gpu, step, work_ms=0)
            time.sleep(0.002)

        self.train(witness, gpu, 6, work_ms=5_000)

        assert 6 not in recorded
        gpu.pass_ms(5_000)
        assert until(lambda: 6 in recorded)
        witness.stop()
        assert until(lambda: "gpumon-cuda" not in {t.name for t in threading.enumerate()})

    def test_no_one_asks_while_a_step_is_handed_over(self, gpu: LiveGpu) -> None:
        witness = self.witness(gpu, [])
        self.train(witness, gpu, 1, work_ms=200)
        time.sleep(0.01)

        witness.step_begins()
        before = gpu.questions
        time.sleep(0.1)

        assert gpu.questions == before
        witness.stop()


def test_the_thread_leaves_captures_alone_and_is_on_the_device_of_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu, driver = LiveGpu(), show_driver(monkeypatch)

    @contextmanager
    def device(number: int) -> Iterator[None]:
        driver.noted.append(f"device {number}")
        yield

    cuda = SimpleNamespace(
        is_initialized=lambda: True,
        current_device=lambda: 2,
        Event=lambda enable_timing: gpu.event(),
        is_current_stream_capturing=lambda: False,
        device=device,
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    witness = events_of_this_device(lambda *_: None)
    assert witness is not None

    witness.step_begins()
    gpu.work(1_000)
    witness.step_ended(1)

    assert until(lambda: driver.noted == ["thread-local", "device 2"])
    witness.stop()
    assert until(lambda: driver.noted == ["thread-local", "device 2", "global"])
