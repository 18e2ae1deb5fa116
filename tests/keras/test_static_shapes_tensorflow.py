"""What a step knows of a batch's shape while it is traced is the same with a tagger and without."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

from tests.imported_later import ImportedLater
from tests.keras.later import b, keras, tf
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
    rows, sums = b.rows_and_sums(ROWS, seed)
    return rows, {"a": sums, "b": 2 * sums}


def as_arrays() -> dict[str, Any]:
    return {**dict(zip("xy", data(), strict=True)), "batch_size": b.BATCH}


def as_batches_of_one_size() -> dict[str, Any]:
    return {"x": tf.data.Dataset.from_tensor_slices(data()).batch(b.BATCH, drop_remainder=True)}


def seen_in(source: Callable[[], Any], *callbacks: Any, **compiled: Any) -> tuple[list[Any], Any]:
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
    rows = keras.layers.Input((b.FEATURES,))
    outputs = {"a": keras.layers.Dense(1)(rows), "b": keras.layers.Dense(1)(rows)}
    model = keras.Model(rows, outputs)
    model.compile("sgd", {"a": loss, "b": "mse"}, **compiled)
    settings = {"shuffle": False, "validation_data": data(seed=5), "validation_batch_size": b.BATCH}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras says that a generator is not shuffled
        history = model.fit(**source(), **settings, verbose=0, callbacks=list(callbacks))
    model.train_on_batch(*tf.nest.map_structure(lambda values: values[: b.BATCH], data()))
    return shapes, history.history


class TestShapesAndLosses:
    @pytest.mark.parametrize(
        ("source", "way"),
        [
            (as_arrays, "compiled"),
            (as_batches_of_one_size, "several steps"),
            pytest.param(as_arrays, "eager", marks=in_make_truth),
            pytest.param(as_batches_of_one_size, "several eager steps", marks=in_make_truth),
        ],
    )
    def test_are_those_without_a_tagger(self, source: Callable[[], Any], way: str) -> None:
        settings = EACH_WAY[way]

        assert seen_in(source, b.tagger(), **settings) == seen_in(source, **settings)

    def test_are_those_without_one_where_keras_fetches_outside_of_the_graph(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        eager_fetch.fetch_eagerly(monkeypatch)

        bare = seen_in(as_arrays)

        assert ((b.BATCH, 1), (b.BATCH, 1)) in bare[0]
        assert seen_in(as_arrays, b.tagger()) == bare
