"""``prefetch_to_device`` under Keras' fit: it learns the same from what is read ahead."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.builders.prefetch import readers
from tests.keras.later import builders, keras
from tests.waiting import until
from trainer_hooks.prefetch import prefetch_to_device

LENGTH = 10


def trained(data: Any, **settings: Any) -> Any:
    random.seed(3)
    return builders.left_by(builders.small_model(), x=data, epochs=2, **settings)


@pytest.mark.versions
@pytest.mark.usefixtures("each_backend")
def test_a_generator_gives_the_same_batches() -> None:
    earlier = set(readers())  # TensorFlow keeps the generator of a fit that failed, too
    ahead = prefetch_to_device(iter(builders.SlowBatches(0.0)))

    recorded = trained(ahead, steps_per_epoch=4)

    assert recorded == trained(iter(builders.SlowBatches(0.0)), steps_per_epoch=4)
    assert len(set(readers()) - earlier) == 1  # Keras keeps a generator: it could go on
    ahead.close()
    assert set(readers()) <= earlier


@pytest.mark.usefixtures("jax_and_torch")
class TestAPyDataset:
    @pytest.fixture
    def rows(self) -> Callable[..., Any]:
        """Makes one that notes what it is asked for, and how many ask at once."""

        class Rows(keras.utils.PyDataset):  # type: ignore[misc]
            def __init__(self, batches: int | None = LENGTH, **settings: Any) -> None:
                super().__init__(**settings)
                self.batches = batches
                self.asked: list[int] = []
                self.spans_ns: list[tuple[int, int]] = []
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
                began_ns = time.monotonic_ns()
                time.sleep(self.seconds)
                self.spans_ns.append((began_ns, time.monotonic_ns()))
                self.at_once -= 1
                return builders.rows_and_sums(builders.BATCH, seed=index)

            def on_epoch_begin(self) -> None:
                self.begun += 1

            def on_epoch_end(self) -> None:
                self.ended += 1

        return Rows

    @pytest.mark.parametrize("shuffle", [False, True])
    def test_gives_the_same_batches_in_the_same_order_shuffled_or_not(
        self, rows: Any, shuffle: bool
    ) -> None:
        source, bare = rows(), rows()

        ahead = trained(prefetch_to_device(source, depth=3), shuffle=shuffle)

        assert ahead == trained(bare, shuffle=shuffle)
        assert (source.begun, source.ended) == (bare.begun, bare.ended)
        assert source.most_at_once == 1
        assert readers() == []

    def test_without_an_end_gives_the_same_batches(self, rows: Any) -> None:
        ahead = trained(prefetch_to_device(rows(None)), steps_per_epoch=3)

        assert ahead == trained(rows(None), steps_per_epoch=3)

    @pytest.mark.measured
    def test_is_read_while_a_step_is_at_work(self, rows: Any) -> None:
        def reads_beside_a_step(source: Any, data: Any) -> int:
            source.seconds = 0.02
            compute = builders.SleepingCompute(0.02)
            builders.small_model(compute).fit(data, verbose=0)
            return sum(
                any(began < span[1] and span[0] < ended for span in compute.spans_ns)
                for began, ended in source.spans_ns
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
        trained(ahead)
        assert set(source.asked) == set(range(LENGTH))
        assert readers() == []
