"""``PhaseTagger`` on TensorFlow harms nothing: results, errors, functions and traces stay."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import types
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpumon.core.phase import TrainingPhase
from gpumon.core.ring.events import RingKind
from tests.keras.later import b

pytestmark = pytest.mark.keras_tensorflow


def uneven_batches() -> Any:
    rows, sums = b.rows_and_sums(60)
    for first in range(0, 60, 16):
        yield rows[first : first + 16], sums[first : first + 16]


def data_of(kind: str) -> dict[str, Any]:
    """What ``fit`` is called with; each kind leaves a last batch of twelve, but the generator."""
    import tensorflow as tf

    rows, sums = b.rows_and_sums(60)
    arrays = {"x": rows, "y": sums, "batch_size": 16}
    if kind == "tf.data":
        return {"x": tf.data.Dataset.from_tensor_slices((rows, sums)).batch(16)}
    if kind == "unknown length":
        spec = tf.TensorSpec((None, b.FEATURES)), tf.TensorSpec((None, 1))
        return {"x": tf.data.Dataset.from_generator(uneven_batches, output_signature=spec)}
    if kind == "generator":
        return {"x": iter(b.SlowBatches(0.0)), "steps_per_epoch": 4}
    if kind == "class weight":
        return {**arrays, "y": (sums > 0).astype("int32"), "class_weight": {0: 1.0, 1: 3.0}}
    return {**arrays, "validation_split": 0.2} if kind == "validation split" else arrays


def a_model(**compiled: Any) -> Any:
    import keras

    keras.utils.set_random_seed(1)
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input((b.FEATURES,)),
            layers.BatchNormalization(),
            layers.Dropout(0.3),
            layers.Dense(1),
        ]
    )
    model.compile(optimizer=keras.optimizers.SGD(0.01, momentum=0.9), loss="mse", **compiled)
    return model


def numbers_of(callbacks: list[Any], kind: str, **compiled: Any) -> dict[str, Any]:
    """Everything a training leaves behind."""
    model = a_model(**compiled)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras says that the data ran out: it was meant to
        history = model.fit(**data_of(kind), epochs=2, verbose=0, callbacks=callbacks)
    digest = hashlib.md5()
    for weight in model.get_weights():
        digest.update(np.ascontiguousarray(weight).tobytes())
    numbers: dict[str, Any] = {
        "history": history.history,
        "iterations": int(model.optimizer.iterations),
        "weights": digest.hexdigest(),
    }
    # What fit was given is nothing to these two, and XLA would compile them for seconds each.
    if kind == "arrays" and not compiled.get("jit_compile"):
        rows, sums = b.rows_and_sums(32)
        numbers["evaluate"] = model.evaluate(rows, sums, verbose=0, callbacks=callbacks)
        numbers["predict"] = model.predict(rows, verbose=0, callbacks=callbacks).tobytes()
    return numbers


KINDS = ("tf.data", "unknown length", "arrays", "generator", "class weight", "validation split")
WAYS: dict[str, dict[str, Any]] = {
    "compiled": {"jit_compile": False},
    "several steps": {"jit_compile": False, "steps_per_execution": 4},
    "jit": {"jit_compile": True},
    "eager": {"run_eagerly": True},
    "several eager steps": {"run_eagerly": True, "steps_per_execution": 4},
}
TELLING = {
    "jit": ("tf.data", "unknown length"),
    "eager": ("arrays", "unknown length", "validation split"),
    "several eager steps": ("arrays", "unknown length"),
}
"""Where the way leaves little for the kind to change, these kinds stand for the others."""
CELLS = [(kind, way) for way in WAYS for kind in TELLING.get(way, KINDS)]


class TestResultsDoNotChange:
    @pytest.mark.parametrize(("kind", "way"), CELLS)
    def test_with_the_hook(self, kind: str, way: str) -> None:
        bare = numbers_of([], kind, **WAYS[way])

        assert numbers_of([b.tagger(logs=False)], kind, **WAYS[way]) == bare

    def test_with_a_train_step_of_ones_own(self) -> None:
        assert own_train_step_weights([b.tagger(logs=False)]) == own_train_step_weights([])

    def test_on_two_devices_of_a_mirrored_strategy(self, tmp_path: Path) -> None:
        script = Path(__file__).with_name("mirrored_training.py")

        done = subprocess.run(
            [sys.executable, str(script)], capture_output=True, text=True, timeout=400, check=False
        )

        assert done.returncode == 0, done.stderr[-2000:]
        assert "bare and tagged are equal" in done.stdout


def own_train_step_weights(callbacks: list[Any]) -> list[bytes]:
    import keras
    import tensorflow as tf

    class Own(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(1)

        def call(self, rows: Any) -> Any:
            return self.dense(rows)

        def train_step(self, data: Any) -> dict[str, Any]:
            rows, sums = data
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self(rows) - sums) ** 2)
            variables = self.trainable_variables
            gradients = tape.gradient(loss, variables)
            self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
            return {"loss": loss}

    keras.utils.set_random_seed(1)
    model = Own()
    model.compile(optimizer="adam")
    model.fit(*b.rows_and_sums(60), batch_size=16, epochs=2, verbose=0, callbacks=callbacks)
    return [weight.tobytes() for weight in model.get_weights()]


def traces_of(model: Any) -> dict[str, int]:
    """How often the functions behind the train function were traced."""
    from trainer_hooks.taps.tensorflow.functions import form_of

    form: Any = form_of(model.train_function)
    return {
        name: function.experimental_get_tracing_count()
        for name, function in (("one step", form.one_step), ("fused", form.fused))
    }


class TestTraces:
    @pytest.mark.parametrize("kind", ["arrays", "tf.data", "generator"])
    def test_are_as_many_as_keras_makes_itself(self, kind: str) -> None:
        model, data = a_model(), data_of(kind)
        model.fit(**data, epochs=2, verbose=0)
        bare = traces_of(model)["one step"]

        hooked = a_model()
        hooked.fit(**data_of(kind), epochs=2, verbose=0, callbacks=[b.tagger(logs=False)])

        assert traces_of(hooked) == {"one step": bare, "fused": 0}

    def test_grow_neither_with_steps_nor_with_fits(self) -> None:
        model, hook = a_model(), b.tagger()
        model.fit(**data_of("arrays"), verbose=0, callbacks=[hook])
        first = traces_of(model)

        for _ in range(3):
            model.fit(**data_of("arrays"), epochs=2, verbose=0, callbacks=[hook])

        assert traces_of(model) == first

    def test_without_timers_are_made_once_more_with_them(self) -> None:
        model, hook = a_model(steps_per_execution=4), b.tagger()
        model.fit(**data_of("arrays"), verbose=0)
        bare = model.train_function

        for _ in range(3):
            model.fit(**data_of("arrays"), epochs=2, verbose=0, callbacks=[hook])

        assert model.train_function is not bare
        assert traces_of(model)["fused"] == 1


class TestTheModel:
    def test_has_its_functions_back_when_it_is_over(self) -> None:
        model = a_model()
        model.fit(**data_of("validation split"), verbose=0)
        bare = model.train_function, model.test_function

        model.fit(**data_of("validation split"), verbose=0, callbacks=[b.tagger(logs=False)])

        assert (model.train_function, model.test_function) == bare

    @pytest.mark.parametrize("steps_per_execution", [1, 4])
    def test_can_be_trained_on_after_a_fit_that_raised(self, steps_per_execution: int) -> None:
        def raising() -> Any:
            for number, batch in enumerate(b.SlowBatches(0.0)):
                if number == 9:
                    raise OSError("disk")
                yield batch

        def error_of(*callbacks: Any) -> type[BaseException]:
            with pytest.raises(Exception, match="disk") as raised:
                b.fit(a_model(steps_per_execution=steps_per_execution), raising(), *callbacks)
            return raised.type

        bare, hook = error_of(), b.tagger()
        assert error_of(hook) is bare
        assert b.present_phase() is TrainingPhase.OTHER

        model = a_model(steps_per_execution=steps_per_execution)
        b.fit(model, b.SlowBatches(0.0), hook, steps=8, epochs=1)

        assert not hasattr(model.train_function, "bare")

    def test_is_freed_of_what_a_fit_left_that_died_in_a_callback(self) -> None:
        import keras

        class Raise(keras.callbacks.Callback):  # type: ignore[misc]
            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                raise KeyError(epoch)

        model = a_model()
        with pytest.raises(KeyError):
            b.fit(model, b.SlowBatches(0.0), b.tagger(), Raise(), steps=3)
        b.fit(model, b.SlowBatches(0.0), b.tagger(), steps=5, epochs=1)

        assert not hasattr(model.train_function, "bare")
        assert [e.value for e in b.records() if e.kind is RingKind.STEP][-1] == 8

    def test_may_be_trained_evaluated_and_asked_by_somebodys_callback(self) -> None:
        import keras

        rows, sums = b.rows_and_sums(32)
        found = []

        class Meddle(keras.callbacks.Callback):  # type: ignore[misc]
            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                self.model.train_on_batch(rows, sums)
                self.model.predict(rows, verbose=0)
                self.model.evaluate(rows, sums, verbose=0)
                self.model.test_on_batch(rows, sums)
                found.append(b.present_phase())

        model = a_model()
        model.fit(
            **data_of("validation split"), epochs=2, verbose=0, callbacks=[b.tagger(), Meddle()]
        )

        assert found == [TrainingPhase.CALLBACKS] * 2
        assert [e.value for e in b.records() if e.kind is RingKind.STEP][-1] == 6


class TestATensorflowThatLooksOtherwiseInside:
    def without_its_iterators(self, monkeypatch: pytest.MonkeyPatch) -> None:
        name = "tensorflow.python.data.ops.iterator_ops"
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))

    def fetching_in_another_way(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from trainer_hooks.taps.tensorflow import fetches as tensorflow_fetches

        monkeypatch.setattr(tensorflow_fetches, "_METHODS", ("get_next",))

    @pytest.mark.measured
    @pytest.mark.parametrize("other", [without_its_iterators, fetching_in_another_way])
    def test_gets_one_phase_and_one_warning(
        self, other: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = b.small_model(b.SleepingCompute(0.002), steps_per_execution=4)
        source, edges = b.SlowBatches(0.005), b.Edges()
        other(self, monkeypatch)

        with pytest.warns(RuntimeWarning, match="cannot see the wait for input") as warned:
            b.fit(model, source, b.tagger(), edges, steps=8)

        assert len([w for w in warned if "gpumon" in str(w.message)]) == 1
        told = b.phase_ns()
        assert told["train_step"] > 8 * 5_000_000
        assert told["input_wait"] < source.peeked_ns(edges) + 2_000_000
        assert [e.value for e in b.records() if e.kind is RingKind.STEP] == [4, 8, 12, 16]
