"""What is expected of a prefetched ``PyDataset`` on whichever backend Keras runs."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.builders_prefetch import readers
from tests.keras.later import b
from tests.patience import until
from trainer_hooks.prefetch import prefetch_to_device

LENGTH = 10


class PyDatasetSpecification:
    @pytest.fixture
    def rows(self) -> Callable[..., Any]:
        """Makes one that notes what it is asked for, and how many ask at once."""
        import keras

        class Rows(keras.utils.PyDataset):  # type: ignore[misc]
            def __init__(self, batches: int | None = LENGTH, **said: Any) -> None:
                super().__init__(**said)
                self.batches = batches
                self.asked: list[int] = []
                self.spans_s: list[tuple[float, float]] = []
                self.begun = self.ended = self.at_once = self.most_at_once = 0
                self.seconds = 0.0

            @property
            def num_batches(self) -> int | None:
                return self.batches

            def __len__(self) -> int:
                assert self.batches is not None
                return self.batches

            def __getitem__(self, index: int) -> Any:
                self.at_once += 1
                self.most_at_once = max(self.most_at_once, self.at_once)
                self.asked.append(index)
                began_s = time.monotonic()
                time.sleep(self.seconds)
                self.spans_s.append((began_s, time.monotonic()))
                self.at_once -= 1
                return b.rows_and_sums(b.BATCH, seed=index)

            def on_epoch_begin(self) -> None:
                self.begun += 1

            def on_epoch_end(self) -> None:
                self.ended += 1

        return Rows

    def trained(self, data: Any, **said: Any) -> Any:
        random.seed(3)
        model = b.small_model()
        history = model.fit(data, epochs=2, verbose=0, **said).history
        return history, [weight.tolist() for weight in model.get_weights()]

    @pytest.mark.parametrize("shuffle", [False, True])
    def test_gives_the_same_batches_in_the_same_order_shuffled_or_not(
        self, rows: Any, shuffle: bool
    ) -> None:
        source, bare = rows(), rows()

        ahead = self.trained(prefetch_to_device(source, depth=3), shuffle=shuffle)

        assert ahead == self.trained(bare, shuffle=shuffle)
        assert (source.begun, source.ended) == (bare.begun, bare.ended)
        assert source.most_at_once == 1
        assert readers() == []

    def test_without_an_end_gives_the_same_batches(self, rows: Any) -> None:
        ahead = self.trained(prefetch_to_device(rows(None)), steps_per_epoch=3)

        assert ahead == self.trained(rows(None), steps_per_epoch=3)

    def test_is_read_while_a_step_is_at_work(self, rows: Any) -> None:
        def reads_beside_a_step(source: Any, data: Any) -> int:
            source.seconds = 0.02
            compute = _noting_compute(0.02)
            b.small_model(compute).fit(data, verbose=0)
            return sum(
                any(began < span[1] and span[0] < ended for span in compute.spans_s)
                for began, ended in source.spans_s
            )

        bare, source = rows(), rows()

        assert reads_beside_a_step(bare, bare) == 0
        assert reads_beside_a_step(source, prefetch_to_device(source)) >= LENGTH / 2

    def test_is_ahead_by_the_depth_and_never_by_more(self, rows: Any) -> None:
        source = rows()
        data = prefetch_to_device(source, depth=3)

        def _finite_generator() -> Any:  # as Keras asks
            indices = range(LENGTH)
            for i in indices:
                yield data[i]

        for number, _ in enumerate(_finite_generator()):
            expected = min(number + 4, LENGTH)
            assert until(lambda: len(source.asked) >= expected)  # noqa: B023 (called at once)
            time.sleep(0.005)
            assert len(source.asked) == expected

    def test_has_the_length_the_attributes_and_the_batches_of_its_source(self, rows: Any) -> None:
        source = rows()
        ahead = prefetch_to_device(source)

        assert (len(ahead), ahead.num_batches, ahead.seconds) == (LENGTH, LENGTH, 0.0)
        assert [float(batch.sum()) for batch in ahead[2]] == pytest.approx(
            [float(batch.sum()) for batch in source[2]], rel=1e-5
        )

    def test_keeps_the_queue_of_keras_that_it_was_given(self, rows: Any) -> None:
        source = rows(workers=2, max_queue_size=7)
        ahead = prefetch_to_device(source)

        assert (ahead.workers, ahead.max_queue_size) == (2, 7)
        self.trained(ahead)
        assert set(source.asked) == set(range(LENGTH))
        assert readers() == []


def _noting_compute(seconds: float) -> Any:
    """Sleeps inside each step, and notes when it did."""

    class NotingCompute(b.SleepingCompute):
        def __init__(self) -> None:
            super().__init__(seconds)
            self.spans_s: list[tuple[float, float]] = []

        def _sleep(self, values: Any) -> Any:
            began_s = time.monotonic()
            slept = super()._sleep(values)
            self.spans_s.append((began_s, time.monotonic()))
            return slept

    return NotingCompute()
