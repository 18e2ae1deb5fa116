"""What a step knows of a batch's shape while it is traced is the same with a tagger and without."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.imported_later import ImportedLater
from tests.keras.later import builders, keras, tf
from tests.needs import in_make_truth

eager_fetch: Any = ImportedLater("tests.keras.fetching_eagerly")

pytestmark = pytest.mark.keras_tensorflow
ROWS = 2 * 16 + 8
EACH_WAY: dict[str, dict[str, Any]] = {
    "compiled": {},
    "several steps": {"steps_per_execution": 2},
    "eager": {"run_eagerly": True},
    "several eager steps": {"run_eagerly": True, "steps_per_execution": 2},
}


def data(seed: int = 3) -> tuple[Any, Any]:
    """Rows, and a target for each of two outputs."""
    rows, sums = builders.rows_and_sums(ROWS, seed)
    return rows, {"a": sums, "b": 2 * sums}


def batches() -> Iterator[Any]:
    for at in range(0, ROWS, builders.BATCH):
        yield tf.nest.map_structure(lambda values: values[at : at + builders.BATCH], data())  # noqa: B023


def as_py_dataset() -> Any:
    class Dataset(keras.utils.PyDataset):  # type: ignore[misc]
        num_batches = 3

        def __len__(self) -> int:
            return self.num_batches

        def __getitem__(self, index: int) -> Any:
            return list(batches())[index]

    return Dataset()


def as_tf_data(*, drop_remainder: bool) -> Any:
    return tf.data.Dataset.from_tensor_slices(data()).batch(
        builders.BATCH, drop_remainder=drop_remainder
    )


SOURCES: dict[str, Callable[[], dict[str, Any]]] = {
    "arrays": lambda: {**dict(zip("xy", data(), strict=True)), "batch_size": builders.BATCH},
    "tf.data": lambda: {"x": as_tf_data(drop_remainder=False)},
    "tf.data of one size": lambda: {"x": as_tf_data(drop_remainder=True)},
    "PyDataset": lambda: {"x": as_py_dataset()},
    "generator": lambda: {"x": batches()},
}
TRIED = SOURCES if os.environ.get("GPUMON_WHOLE_TABLE") else ("arrays",)


def seen_in(source: str, *callbacks: Any, **compiled: Any) -> tuple[list[Any], Any]:
    """Train, validate, and train on a batch of its own.

    Returns:
        The shapes that a loss was traced with, or called with where nothing is traced; and what
        the training left in its history, with a loss of each output.
    """
    shapes: list[Any] = []

    def loss(sums: Any, predicted: Any) -> Any:
        shapes.append((tuple(sums.shape), tuple(predicted.shape)))
        return keras.ops.mean(keras.ops.square(sums - predicted), axis=-1)

    keras.utils.set_random_seed(1)
    rows = keras.layers.Input((builders.FEATURES,))
    outputs = {"a": keras.layers.Dense(1)(rows), "b": keras.layers.Dense(1)(rows)}
    model = keras.Model(rows, outputs)
    model.compile("sgd", {"a": loss, "b": "mse"}, **compiled)
    settings = {
        "shuffle": False,
        "validation_data": data(seed=5),
        "validation_batch_size": builders.BATCH,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras says that a generator is not shuffled
        history = model.fit(**SOURCES[source](), **settings, verbose=0, callbacks=list(callbacks))
    model.train_on_batch(*next(batches()))
    return shapes, history.history


class TestShapesAndLosses:
    @pytest.mark.parametrize(
        ("source", "way"),
        [
            pytest.param(source, way, marks=in_make_truth if "eager" in way else [])
            for source in TRIED
            for way in EACH_WAY
            if way == "compiled" or source in ("arrays", "tf.data of one size")
        ],
    )
    def test_are_those_without_a_tagger(self, source: str, way: str) -> None:
        settings = EACH_WAY[way]

        assert seen_in(source, builders.tagger(), **settings) == seen_in(source, **settings)

    @pytest.mark.parametrize("source", TRIED)
    def test_are_those_without_one_where_keras_fetches_outside_of_the_graph(
        self, source: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        eager_fetch.fetch_eagerly(monkeypatch)

        bare = seen_in(source)

        assert ((builders.BATCH, 1), (builders.BATCH, 1)) in bare[0]
        assert seen_in(source, builders.tagger()) == bare
