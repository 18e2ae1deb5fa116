"""CUDA events of steps on a real device (``make gpu``), with a torch for CUDA."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainer_hooks.ddp.ratio_balancer import ComputeClock, seconds_of
from trainer_hooks.taps.cuda_events import CudaEvents, events_of_this_device

pytestmark = pytest.mark.gpu
MS = 1_000_000


@pytest.fixture
def torch() -> Any:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch sees no GPU")
    torch.cuda.init()
    return torch


@pytest.fixture
def reported_ns() -> dict[int, int]:
    return {}


@pytest.fixture
def witness(torch: Any, reported_ns: dict[int, int]) -> Iterator[CudaEvents]:
    found = events_of_this_device(reported_ns.__setitem__)
    assert found is not None
    yield found
    found.stop()


@pytest.fixture
def work(torch: Any) -> Any:
    """About 20 ms of work in few launches: a launch waits once CUDA's queue has a thousand."""
    matrix = torch.randn(8192, 8192, device="cuda")

    def multiply(times: int) -> None:
        for _ in range(times):
            torch.mm(matrix, matrix)

    multiply(2)
    torch.cuda.synchronize()
    began_ns = time.monotonic_ns()
    multiply(10)
    torch.cuda.synchronize()
    times = max(1, round(10 * 20 * MS / (time.monotonic_ns() - began_ns)))
    return lambda: multiply(times)


class TestTheEndOfAStep:
    def test_is_reported_within_a_millisecond_while_the_host_waits(
        self, torch: Any, witness: CudaEvents, reported_ns: dict[int, int], work: Any
    ) -> None:
        true_ns = {}
        for step in range(1, 51):
            witness.step_begins()
            work()
            witness.step_ended(step)
            torch.cuda.synchronize()  # by the training run, not by ours
            true_ns[step] = time.monotonic_ns()
        witness.stop()

        assert len(reported_ns) >= 45
        late_ns = [true_ns[step] - at_ns for step, at_ns in reported_ns.items() if step > 5]
        assert min(late_ns) > -1 * MS
        assert statistics.median(late_ns) < 1 * MS

    def test_is_reported_while_the_run_waits_for_input(
        self, torch: Any, witness: CudaEvents, reported_ns: dict[int, int], work: Any
    ) -> None:
        seen_ns = {}
        for step in range(1, 31):
            witness.step_begins()
            work()
            witness.step_ended(step)
            mine = torch.cuda.Event()
            mine.record()
            while not mine.query():
                time.sleep(0.0001)
            seen_ns[step] = time.monotonic_ns()
            time.sleep(0.06)

            assert step < 5 or step in reported_ns
        errors_ns = [abs(seen_ns[step] - at_ns) for step, at_ns in reported_ns.items() if step > 5]
        assert statistics.median(errors_ns) < 1 * MS

    def test_makes_the_host_wait_for_nothing(
        self, torch: Any, witness: CudaEvents, work: Any
    ) -> None:
        spent_ns = []
        for step in range(1, 21):
            for _ in range(3):
                work()
            began_ns = time.monotonic_ns()
            witness.step_begins()
            witness.step_ended(step)
            spent_ns.append(time.monotonic_ns() - began_ns)
            time.sleep(0.002)
        torch.cuda.synchronize()

        assert statistics.median(spent_ns) < 0.2 * MS


class TestAGraph:
    def test_can_be_captured_inside_a_step(self, torch: Any, witness: CudaEvents) -> None:
        rows = torch.ones(64, device="cuda")
        doubled = rows * 2
        torch.cuda.synchronize()

        for step in range(1, 4):
            witness.step_begins()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                time.sleep(0.05)  # longer than the polling thread waits
                doubled = rows * 2
            graph.replay()
            witness.step_ended(step)
        torch.cuda.synchronize()

        assert doubled.sum().item() == 128

    def test_can_be_captured_between_steps_while_the_thread_polls(
        self, torch: Any, witness: CudaEvents, work: Any
    ) -> None:
        rows = torch.ones(64, device="cuda")
        doubled = rows * 2
        graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        witness.step_begins()
        for _ in range(10):
            work()
        witness.step_ended(1)

        with torch.cuda.stream(side):
            graph.capture_begin()  # `torch.cuda.graph` would wait for the device first
            time.sleep(0.1)
            doubled = rows * 2
            graph.capture_end()
            graph.replay()
        torch.cuda.synchronize()

        assert doubled.sum().item() == 128


class TestTheClockOfARank:
    def test_measures_the_computation_of_the_gpu(self, torch: Any, work: Any) -> None:
        class Busy(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.linear = torch.nn.Linear(4, 1)

            def forward(self, rows: Any) -> Any:
                work()
                return self.linear(rows)

        model = Busy().cuda()
        clock = ComputeClock(model)
        for _ in range(2):
            model(torch.ones(2, 4, device="cuda")).sum().backward()
        spans = clock.spans_so_far()

        assert len(spans) == 2
        assert 0.03 < seconds_of(spans) < 0.2
        assert clock.spans_so_far() == []


class TestAKerasRun:
    @pytest.fixture(autouse=True)
    def keras(self, torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
        keras = pytest.importorskip("keras")
        if keras.backend.backend() != "torch":
            pytest.skip("Keras runs on another backend: KERAS_BACKEND=torch make gpu")
        from trainer_hooks.ring import process_ring

        monkeypatch.setenv("GPUMON_RUNTIME_DIR", str(tmp_path))
        monkeypatch.setattr(process_ring._Slot, "ring", None)
        return keras

    def test_has_the_device_end_of_nearly_every_step(self) -> None:
        from gpumon.core.phase import TrainingPhase
        from gpumon.core.ring_format.events import RingKind
        from tests.keras import builders_keras as builders

        model = builders.small_model()
        builders.fit(model, builders.SlowBatches(0.0), steps=3, epochs=1)
        builders.fit(model, builders.SlowBatches(0.02), builders.tagger(), steps=50, epochs=1)

        begun = [
            e.at_ns
            for e in builders.records()
            if e.kind is RingKind.ENTER and e.phase is TrainingPhase.TRAIN_STEP
        ]
        done = {e.value: e.at_ns for e in builders.records() if e.kind is RingKind.DEVICE_DONE}
        assert len(done) >= 45
        assert all(at_ns > begun[step - 1] for step, at_ns in done.items())
        # The next batch comes 20 ms later: long after such a small step is done.
        assert all(at_ns < begun[step] for step, at_ns in done.items() if step < 50)
