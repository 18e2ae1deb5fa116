"""What Keras fetches before it calls any callback is told: there the first batch is waited for."""

from __future__ import annotations

import importlib
import time
from typing import Any

import pytest

from tests.keras.later import b, keras

FIRST_S = 0.6


class Slept:
    """A source whose first batch takes long, each time that it is asked for."""

    def __init__(self) -> None:
        self.first_s = 0.0

    def batch(self, index: int) -> Any:
        if index == 0:
            began_s = time.monotonic()
            time.sleep(FIRST_S)
            self.first_s += time.monotonic() - began_s
        return b.rows_and_sums(8, seed=index)

    def generator(self) -> Any:
        yield from map(self.batch, range(6))

    def py_dataset(self) -> Any:
        methods = {"__len__": lambda _: 6, "__getitem__": lambda _, index: self.batch(index)}
        return type("Dataset", (keras.utils.PyDataset,), methods)()

    def fit(self, kind: str, tagger: Any) -> Any:
        words = {"steps_per_epoch": 6, "shuffle": False, "verbose": 0}
        return b.small_model().fit(getattr(self, kind)(), callbacks=[tagger], **words)


def functions_of_keras() -> list[Any]:
    adapters = "keras.src.trainers.data_adapters"
    peeks = importlib.import_module(f"{adapters}.generator_data_adapter")
    datasets = importlib.import_module(f"{adapters}.py_dataset_adapter")
    trainer = importlib.import_module("keras.src.trainers.trainer")
    return [
        peeks.peek_and_restore,
        datasets.PyDatasetAdapter.get_tf_dataset,
        trainer.Trainer._symbolic_build,
    ]


@pytest.mark.usefixtures("each_backend")
@pytest.mark.parametrize("kind", ["generator", "py_dataset"])
class TestTheWaitForTheVeryFirstBatch:
    @pytest.mark.measured
    def test_is_recorded_wherever_keras_fetches_it(self, kind: str) -> None:
        source = Slept()
        source.fit(kind, b.tagger())

        recorded_ns = b.timeline().first_input_wait_ns
        assert recorded_ns is not None
        assert source.first_s >= FIRST_S
        assert recorded_ns / 1e9 == pytest.approx(source.first_s, rel=0.15, abs=0.3)

    def test_changes_nothing_in_keras_for_longer_than_until_the_training_begins(
        self, kind: str
    ) -> None:
        from trainer_hooks.keras.first_fetch import FirstFetches

        FirstFetches.remove()  # the tagger of another test may wait for a training that never came
        before = functions_of_keras()
        tagger = b.tagger()
        around = functions_of_keras()
        history = Slept().fit(kind, tagger)

        assert all(one is not other for one, other in zip(before, around, strict=True))
        assert functions_of_keras() == before
        assert len(history.history["loss"]) == 1
