"""A Keras that has other private names: a tagger knows less then, and the training is the same."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import pytest

from tests.keras.later import builders, keras, nan_guard
from trainer_hooks import prefetch_to_device
from trainer_hooks.taps import keras_private

ON_EACH = ("FLUSH", "RUNS_ASIDE", "BUILD", "FINITE", "ORDER")
USED_ON = {
    "jax": (*ON_EACH, "JAX_STATE", "JAX_STATE_IS_SYNCED"),
    "tensorflow": (*ON_EACH, "ONE_BATCH", "ITERATOR", "DATASET", "TF_DATASET"),
    "torch": (*ON_EACH, "LOADER"),
}
"""Of ``keras_private``, what no training needs."""


def as_py_dataset() -> Any:
    class Dataset(keras.utils.PyDataset):  # type: ignore[misc]
        num_batches = 4

        def __len__(self) -> int:
            return self.num_batches

        def __getitem__(self, index: int) -> Any:
            return builders.rows_and_sums(builders.BATCH, seed=index)

    return Dataset()


def left_by(*callbacks: Any, reads_ahead: bool, **compiled: Any) -> list[bytes]:
    """Weights after training on a ``PyDataset``, and a prediction."""
    model, data = builders.small_model(**compiled), as_py_dataset()
    if reads_ahead:
        data = prefetch_to_device(data, depth=2)
    model.fit(data, epochs=2, shuffle=False, verbose=0, callbacks=list(callbacks))
    taggers = [one for one in callbacks if "PhaseTagger" in type(one).__name__]
    outputs = model.predict(builders.rows_and_sums(32)[0], verbose=0, callbacks=taggers)
    return [outputs.tobytes(), *(weight.tobytes() for weight in model.get_weights())]


@cache
def left_without_hooks(**compiled: Any) -> list[bytes]:
    return left_by(reads_ahead=False, **compiled)


@pytest.mark.parametrize(
    ("backend", "name"),
    [
        pytest.param(backend, name, marks=getattr(pytest.mark, f"keras_{backend}"))
        for backend, names in USED_ON.items()
        for name in names
    ],
)
def test_training_goes_on_where_keras_has_another_name(
    backend: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"steps_per_execution": 2} if name in ("ONE_BATCH", "ITERATOR") else {}
    bare = left_without_hooks(**settings)
    monkeypatch.setattr(keras_private, name, "_another_name_tomorrow")

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        left = left_by(builders.tagger(), nan_guard.NaNGuard(every=1), reads_ahead=True, **settings)

    assert left == bare
    assert len([one for one in warned if "gpumon" in str(one.message)]) <= 1


@pytest.mark.keras_jax
def test_each_other_name_of_that_file_is_needed() -> None:
    needed = {"NEEDED", "COMPILED", "SEEN_IN", "MASK", "SCHEDULE", "REDUCES", "SPARED", "KEY_BASE"}
    names = {name for name in vars(keras_private) if name.isupper() and not name.startswith("_")}

    assert names - needed - {*sum(USED_ON.values(), ())} == {
        "INFINITE"
    }  # as FINITE, without an end
