"""``PhaseTagger`` harms nothing, on whichever backend: results, errors, models and threads stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from gpumon.core.phase import TrainingPhase
from gpumon.core.ring_format.events import RingKind
from tests.keras.later import builders, keras, on_torch, tf
from tests.needs import in_make_truth

MS = 1_000_000
WAYS: dict[str, dict[str, Any]] = {
    "compiled": {"jit_compile": False},
    "several steps": {"jit_compile": False, "steps_per_execution": 4},
    "jit": {"jit_compile": True},
    "eager": {"run_eagerly": True},
    "several eager steps": {"run_eagerly": True, "steps_per_execution": 4},
}
ON_ARRAYS = ("arrays", "class weight", "validation split")
ON_TENSORFLOW = ("tf.data", "unknown length", "generator", *ON_ARRAYS)
ON_TORCH = (
    "loader", "shuffled by workers", "unknown length", "generator", "sequence", *ON_ARRAYS,
)  # fmt: skip
CELLS: dict[tuple[str, str], tuple[str, ...]] = {
    ("jax", "compiled"): ("arrays", "validation split", "generator", "unknown length"),
    ("jax", "several steps"): ("arrays", "generator", "unknown length"),
    ("jax", "eager"): ("arrays", "generator", "unknown length"),
    ("tensorflow", "compiled"): ON_TENSORFLOW,
    ("tensorflow", "several steps"): ON_TENSORFLOW,
    ("tensorflow", "jit"): ("tf.data", "unknown length"),
    ("tensorflow", "eager"): ("arrays", "unknown length", "validation split"),
    ("tensorflow", "several eager steps"): ("arrays", "unknown length"),
    ("torch", "compiled"): ON_TORCH,
    ("torch", "eager"): ("arrays", "loader", "validation split"),
}
"""The data of each backend and way."""
IN_CI = {
    ("jax", "compiled"): ("validation split",),
    ("jax", "several steps"): ("generator",),
    ("jax", "eager"): ("unknown length",),
    ("tensorflow", "compiled"): ("tf.data", "generator"),
    ("tensorflow", "several steps"): ("tf.data", "unknown length"),
    ("tensorflow", "eager"): ("arrays",),
    ("tensorflow", "several eager steps"): ("unknown length",),
    ("torch", "compiled"): ("loader", "shuffled by workers", "validation split"),
    ("torch", "eager"): ("arrays",),
}
BESIDE_AN_ORDINARY_CALLBACK = {
    "jax": ("arrays",),
    "torch": ("unknown length",),
}


def cell(backend: str, *values: str, in_ci: bool = True) -> Any:
    marks = [getattr(pytest.mark, f"keras_{backend}"), *([] if in_ci else [in_make_truth])]
    return pytest.param(*values, marks=marks, id=", ".join([backend, *values]))


def uneven_batches() -> Iterator[Any]:
    rows, sums = builders.rows_and_sums(60)
    for first in range(0, 60, 16):
        yield rows[first : first + 16], sums[first : first + 16]


def of_unknown_length() -> dict[str, Any]:
    backend = keras.backend.backend()
    if backend == "jax":
        return {"x": uneven_batches(), "epochs": 1}
    if backend == "torch":
        return {"x": on_torch.loader_of(on_torch.RowsThatEnd(60))}
    spec = tf.TensorSpec((None, builders.FEATURES)), tf.TensorSpec((None, 1))
    return {"x": tf.data.Dataset.from_generator(uneven_batches, output_signature=spec)}


def data_of(kind: str) -> dict[str, Any]:
    """What ``fit`` is called with; but for the generator's and the sequence's, the last batch
    is smaller.
    """
    rows, sums = builders.rows_and_sums(60)
    arrays = {"x": rows, "y": sums, "batch_size": 16}
    weighted = {"y": (sums > 0).astype("int32"), "class_weight": {0: 1.0, 1: 3.0}}
    made: dict[str, Any] = {
        "arrays": lambda: arrays,
        "class weight": lambda: {**arrays, **weighted},
        "validation split": lambda: {**arrays, "validation_split": 0.2},
        "generator": lambda: {"x": iter(builders.SlowBatches(0.0)), "steps_per_epoch": 4},
        "unknown length": of_unknown_length,
        "tf.data": lambda: {"x": tf.data.Dataset.from_tensor_slices((rows, sums)).batch(16)},
        "loader": lambda: {"x": on_torch.loader_of(on_torch.SlowRows(60))},
        "shuffled by workers": lambda: {
            "x": on_torch.loader_of(on_torch.SlowRows(60), num_workers=2, shuffle=True)
        },
        "sequence": lambda: {"x": builders.SlowSequence(4, seconds=0.0, workers=2)},
    }
    return {"epochs": 2, **made[kind]()}


def numbers_of(kind: str, way: str, *callbacks: Any) -> dict[str, Any]:
    """Everything that training leaves behind, and what the model computes then."""
    model = builders.normalized_model(**WAYS[way])
    numbers = builders.left_by(model, *callbacks, **data_of(kind))
    # What fit was given is nothing to these two.
    if kind == "arrays":
        rows, sums = builders.rows_and_sums(32)
        numbers["evaluate"] = model.evaluate(rows, sums, verbose=0, callbacks=list(callbacks))
        asked = model.predict(rows, verbose=0, callbacks=list(callbacks))
        numbers["predict"] = asked.tobytes()
    return numbers


@cache
def numbers_without(kind: str, way: str) -> dict[str, Any]:
    return numbers_of(kind, way)


class TestResultsDoNotChange:
    @pytest.mark.parametrize(
        ("kind", "way"),
        [
            cell(backend, kind, way, in_ci=kind in IN_CI.get((backend, way), ()))
            for (backend, way), kinds in CELLS.items()
            for kind in kinds
        ],
    )
    def test_tagger_changes_no_result(self, kind: str, way: str) -> None:
        assert numbers_of(kind, way, builders.tagger()) == numbers_without(kind, way)

    @pytest.mark.versions
    @pytest.mark.parametrize(
        "kind",
        [cell(backend, kind) for backend, of in BESIDE_AN_ORDINARY_CALLBACK.items() for kind in of],
    )
    def test_tagger_and_ordinary_callback_change_no_result(self, kind: str) -> None:
        with_hook = numbers_of(kind, "compiled", builders.an_ordinary_callback(), builders.tagger())

        assert with_hook == numbers_without(kind, "compiled")


@pytest.mark.usefixtures("each_backend")
class TestAFitThatRaises:
    def still_usable(self, model: Any) -> Any:
        """The model, or another: some versions of Keras lose the weights in a fit that raises."""
        try:
            model.get_weights()
        except TypeError:
            return builders.small_model()
        return model

    def test_error_in_the_data_restores_the_model_for_the_next_fit(self) -> None:
        def broken() -> Iterator[Any]:
            for _, batch in zip(range(9), builders.SlowBatches(0.0), strict=False):
                yield batch
            raise OSError("disk")

        def error_of(model: Any, *callbacks: Any) -> type[BaseException]:
            with pytest.raises(Exception, match="disk") as raised:
                builders.fit(model, broken(), *callbacks)
            return raised.type

        model, hook = builders.warmed_model(), builders.tagger()
        bare = model.train_function

        assert error_of(model, hook) is error_of(builders.small_model())
        assert model.train_function is bare
        assert builders.present_phase() is TrainingPhase.OTHER
        builders.fit(self.still_usable(model), builders.SlowBatches(0.01), hook, steps=5, epochs=1)

        assert model.train_function is bare
        assert builders.marks(RingKind.EPOCH) == [0, 0]
        assert builders.phase_ns()["input_wait"] >= 3 * 10 * MS  # Keras peeked at the other two

    @pytest.mark.parametrize("is_kept", [True, False], ids=["kept", "forgotten"])
    def test_error_in_a_callback_allows_another_fit(self, is_kept: bool) -> None:
        model, hook = builders.warmed_model(), builders.tagger()
        bare = model.train_function

        with pytest.raises(KeyError) as kept:
            builders.fit(
                model, builders.SlowBatches(0.0), hook, builders.raising(KeyError), steps=3
            )
        if not is_kept:  # whoever keeps it keeps the frames of the fit alive
            del kept
            gc.collect()
        builders.fit(model, builders.SlowBatches(0.0), hook, steps=5, epochs=1)

        assert model.train_function is bare
        assert builders.present_phase() is TrainingPhase.OTHER
        assert builders.marks(RingKind.STEP) == list(range(1, 9))


@pytest.mark.usefixtures("each_backend")
class TestTheTraining:
    def test_may_be_trained_evaluated_and_asked_by_a_users_callback(self) -> None:
        rows, sums = builders.rows_and_sums(32)
        after: list[TrainingPhase] = []

        def meddle(own: Any) -> None:
            for call, data in {
                "train_on_batch": (rows, sums),
                "predict": (rows,),
                "evaluate": (rows, sums),
                "test_on_batch": (rows, sums),
            }.items():
                getattr(own.model, call)(*data)
                after.append(builders.present_phase())

        meddling = builders.Does(meddle, "on_epoch_end")
        split = {"validation_split": 0.2, "epochs": 2}
        builders.fit_rows(builders.small_model(), 60, builders.tagger(), meddling, **split)

        assert after == [TrainingPhase.CALLBACKS] * 4 * 2
        assert builders.marks(RingKind.STEP) == [1, 2, 3, 4, 5, 6]
        assert builders.present_phase() is TrainingPhase.OTHER
