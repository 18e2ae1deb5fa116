"""Specification of the second witness's thread: it asks while the training is elsewhere."""

from __future__ import annotations

import threading
import time

import pytest

from tests.cuda_queue import Gpu
from tests.patience import until
from trainer_hooks.taps.cuda_events import CudaEvents


class LiveGpu(Gpu):
    """The same on a clock that goes by itself, for what happens on another thread."""

    _ahead_ns = 0

    @property
    def host_ns(self) -> int:
        return time.monotonic_ns() + self._ahead_ns

    @host_ns.setter
    def host_ns(self, at_ns: int) -> None:
        self._ahead_ns = at_ns - time.monotonic_ns()


class TestWhileTheTrainingIsElsewhere:
    @pytest.fixture
    def gpu(self) -> LiveGpu:
        return LiveGpu()

    def witness(self, gpu: LiveGpu, told: list[int]) -> CudaEvents:
        return CudaEvents(
            gpu.event,
            lambda step, _: told.append(step),
            now_ns=lambda: gpu.host_ns,
            enter_thread=lambda: None,
        )

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

        self.train(witness, gpu, 6, work_ms=5_000)

        assert 6 not in told
        gpu.pass_ms(5_000)
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
