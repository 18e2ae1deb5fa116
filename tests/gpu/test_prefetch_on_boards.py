"""``prefetch_to_device`` on real boards: where batches are, their values, and the time saved."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.builders.prefetch import Source, readers, usual_gap_s
from trainer_hooks.prefetch import prefetch_to_device

pytestmark = pytest.mark.gpu
ROWS, COLUMNS = 256, 65536  # 64 MiB of float32: a copy takes milliseconds


def numbered(count: int) -> list[Any]:
    return [np.full((ROWS, COLUMNS), number, "float32") for number in range(count)]


@pytest.fixture
def torch() -> Any:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch sees no GPU")
    return torch


@pytest.fixture
def jax() -> Any:
    os.environ.setdefault(
        "XLA_PYTHON_CLIENT_PREALLOCATE", "false"
    )  # other tests use this process, too
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("this JAX sees no GPU")
    return jax


@pytest.fixture
def tf() -> Any:
    tf = pytest.importorskip("tensorflow")
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        pytest.skip("this TensorFlow sees no GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    return tf


class TestOnTorch:
    def test_batches_are_on_the_current_device(self, torch: Any) -> None:
        last = torch.cuda.device_count() - 1
        with torch.cuda.device(last):
            found = list(prefetch_to_device(map(torch.from_numpy, numbered(3)), device="cuda"))

        assert [batch.device for batch in found] == [torch.device("cuda", last)] * 3
        assert [float(batch[0, 0]) for batch in found] == [0.0, 1.0, 2.0]

    def test_a_batch_is_unchanged_while_a_long_step_reads_it(self, torch: Any) -> None:
        """Each is released while the device works; its memory must not be reused."""
        busy = torch.randn(4096, 4096, device="cuda")
        sums = []
        for batch in prefetch_to_device(map(torch.from_numpy, numbered(20)), depth=2):
            for _ in range(10):
                torch.mm(busy, busy)
            sums.append(batch.double().mean())
            del batch

        assert [value.item() for value in sums] == list(range(20))
        assert readers() == []

    def test_objects_and_containers_are_moved_too(self, torch: Any) -> None:
        packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3)])

        (found,) = prefetch_to_device([{"packed": packed, "rows": (torch.ones(2), "a name")}])

        assert found["packed"].data.is_cuda
        assert found["rows"][0].is_cuda
        assert found["rows"][1] == "a name"

    def test_a_device_that_is_not_there_is_refused(self, torch: Any) -> None:
        count = torch.cuda.device_count()

        with pytest.raises(ValueError, match=f"torch sees {count}, the last"):
            prefetch_to_device([], device=f"cuda:{count}")

    def test_the_gap_between_batches_is_shorter_with_prefetch(self, torch: Any) -> None:
        matrix = torch.randn(4096, 4096, device="cuda")

        def train(batch: Any) -> None:
            for _ in range(20):
                torch.mm(matrix, matrix)
            batch.sum().item()

        source = Source([torch.from_numpy(batch) for batch in numbered(20)])

        def copied() -> Iterator[Any]:
            for batch in source:
                there = batch.to("cuda")
                torch.cuda.synchronize()
                yield there

        bare_s = usual_gap_s(copied(), train)
        assert usual_gap_s(prefetch_to_device(source), train) < bare_s / 2

    def test_a_copy_from_pinned_memory_does_not_delay_the_step(self, torch: Any) -> None:
        """The training run's stream works while the side stream copies."""
        matrix = torch.randn(8192, 8192, device="cuda")
        pinned = [torch.from_numpy(batch).pin_memory() for batch in numbered(12)]

        def wall_s(batches: Any) -> float:
            torch.cuda.synchronize()
            began_s = time.monotonic()
            for _ in batches:
                torch.mm(matrix, matrix)
            torch.cuda.synchronize()
            return time.monotonic() - began_s

        def in_turns() -> Iterator[Any]:
            for batch in pinned:
                yield batch.to("cuda", non_blocking=True)

        wall_s(in_turns())
        assert wall_s(prefetch_to_device(pinned, depth=3)) < wall_s(in_turns())

    def test_does_not_break_the_capture_of_a_graph(self, torch: Any) -> None:
        def growing() -> Iterator[Any]:
            for number in range(100):
                time.sleep(0.005)
                yield torch.full((10_000 * (number + 1),), float(number))

        rows = torch.ones(64, device="cuda")
        ahead = prefetch_to_device(growing(), depth=100)
        graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        next(ahead)

        with torch.cuda.stream(side):
            graph.capture_begin()
            time.sleep(0.2)
            doubled = rows * 2
            graph.capture_end()
            graph.replay()
        torch.cuda.synchronize()

        assert doubled.sum().item() == 128
        assert [batch.unique().tolist() for batch in ahead] == [[n] for n in range(1, 100)]


class TestOnJax:
    def test_batches_are_on_the_gpu_with_their_values(self, jax: Any) -> None:
        found = list(prefetch_to_device(numbered(3), device=jax.devices()[-1]))

        assert {device for batch in found for device in batch.devices()} == {jax.devices()[-1]}
        assert [float(batch.mean()) for batch in found] == [0.0, 1.0, 2.0]

    def test_the_gap_between_batches_is_shorter_with_prefetch(self, jax: Any) -> None:
        def train(batch: Any) -> None:
            (batch @ batch.T).block_until_ready()
            time.sleep(0.03)

        source = Source(numbered(15), seconds=0.005)
        copied = (jax.device_put(batch).block_until_ready() for batch in source)
        bare_s = usual_gap_s(copied, train)

        ahead = prefetch_to_device(source, device=jax.devices()[0])
        assert usual_gap_s(ahead, train) < bare_s / 2


class TestOnTensorFlow:
    def test_elements_are_on_the_first_gpu_with_their_values(self, tf: Any) -> None:
        data = tf.data.Dataset.from_tensor_slices(np.arange(12.0)).batch(4)

        found = list(prefetch_to_device(data))

        assert all(element.device.endswith("GPU:0") for element in found)
        assert [float(element[0]) for element in found] == [0.0, 4.0, 8.0]

    def test_elements_for_several_gpus_stay_on_the_host(self, tf: Any) -> None:
        data = tf.data.Dataset.range(3)

        assert all(
            element.device.endswith("CPU:0") for element in prefetch_to_device(data, device="CPU:0")
        )

    def test_a_gpu_that_is_not_there_is_refused(self, tf: Any) -> None:
        with pytest.raises(ValueError, match="'GPU:99'"):
            prefetch_to_device(tf.data.Dataset.range(3), device="GPU:99")

    def test_the_gap_between_batches_is_shorter_with_prefetch(self, tf: Any) -> None:
        def source() -> Iterator[Any]:
            for batch in numbered(15):
                time.sleep(0.01)
                yield batch

        def train(batch: Any) -> None:
            with tf.device("GPU:0"):
                tf.reduce_sum(batch).numpy()
            time.sleep(0.03)

        spec = tf.TensorSpec((ROWS, COLUMNS), tf.float32)
        data = tf.data.Dataset.from_generator(source, output_signature=spec)
        options = tf.data.Options()
        options.experimental_optimization.inject_prefetch = False
        bare_s = usual_gap_s(data.with_options(options), train)

        assert usual_gap_s(prefetch_to_device(data, device="GPU:0"), train) < bare_s / 2
