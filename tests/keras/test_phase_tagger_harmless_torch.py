"""``PhaseTagger`` on torch harms nothing: results, errors, functions and loaders stay."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from gpumon.core.phase import TrainingPhase
from gpumon.core.ring.events import RingKind
from tests.keras.later import b
from tests.keras.later import on_torch as t

pytestmark = pytest.mark.keras_torch
MS = 1_000_000


def data_of(kind: str) -> dict[str, Any]:
    """What ``fit`` is called with; but for the generator's, the last batch is smaller."""
    rows, sums = b.rows_and_sums(60)
    arrays = {"x": rows, "y": sums, "batch_size": 16}
    if kind == "loader":
        return {"x": t.loader_of(t.SlowRows(60))}
    if kind == "shuffled by workers":
        return {"x": t.loader_of(t.SlowRows(60), num_workers=2, shuffle=True)}
    if kind == "unknown length":
        return {"x": t.loader_of(t.RowsThatEnd(60))}
    if kind == "generator":
        return {"x": iter(b.SlowBatches(0.0)), "steps_per_epoch": 4}
    if kind == "sequence":
        return {"x": t.SlowSequence(4, seconds=0.0, workers=2)}
    if kind == "class weight":
        return {**arrays, "y": (sums > 0).astype("int32"), "class_weight": {0: 1.0, 1: 3.0}}
    return {**arrays, "validation_split": 0.2} if kind == "validation split" else arrays


KINDS = (
    "arrays",
    "loader",
    "shuffled by workers",
    "unknown length",
    "generator",
    "sequence",
    "class weight",
    "validation split",
)


def numbers_of(callbacks: Sequence[Any], kind: str, **compiled: Any) -> dict[str, Any]:
    """Everything a training leaves behind."""
    import keras

    layers = keras.layers
    model = b.small_model(layers.BatchNormalization(), layers.Dropout(0.3), **compiled)
    history = model.fit(**data_of(kind), epochs=3, verbose=0, callbacks=list(callbacks))
    digest = hashlib.md5()
    for weight in model.get_weights():
        digest.update(np.ascontiguousarray(weight).tobytes())
    rows, sums = b.rows_and_sums(60)
    return {
        "history": history.history,
        "iterations": int(keras.ops.convert_to_numpy(model.optimizer.iterations)),
        "weights": digest.hexdigest(),
        "evaluate": model.evaluate(rows, sums, verbose=0, callbacks=list(callbacks)),
        "predict": model.predict(rows, verbose=0, callbacks=list(callbacks)).tobytes(),
    }


class TestResultsDoNotChange:
    @pytest.mark.parametrize("kind", KINDS)
    def test_with_the_hook(self, kind: str) -> None:
        assert numbers_of([b.tagger(logs=False)], kind) == numbers_of([], kind)

    @pytest.mark.parametrize("kind", ["arrays", "loader", "validation split"])
    def test_with_the_hook_where_nothing_is_compiled(self, kind: str) -> None:
        with_hook = numbers_of([b.tagger(logs=False)], kind, run_eagerly=True)

        assert with_hook == numbers_of([], kind, run_eagerly=True)

    @pytest.mark.parametrize("kind", ["loader", "unknown length", "validation split"])
    def test_with_the_hook_and_an_ordinary_callback(self, kind: str) -> None:
        with_hook = numbers_of([b.an_ordinary_callback(), b.tagger(logs=False)], kind)

        assert with_hook == numbers_of([], kind)

    def test_not_even_what_keras_warns_of(self) -> None:
        def warned(*callbacks: Any) -> list[str]:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                numbers_of(callbacks, "unknown length")
            # Others come from the threads of callbacks, now and then.
            return [str(w.message) for w in caught if issubclass(w.category, UserWarning)]

        assert warned(b.tagger(logs=False)) == warned()

    def test_nor_the_refusal_of_several_steps_an_execution(self) -> None:
        refusals = []
        for callbacks in ([b.tagger()], []):
            with pytest.raises(ValueError, match="steps_per_execution") as refused:
                numbers_of(callbacks, "arrays", steps_per_execution=3)
            refusals.append(str(refused.value))

        assert refusals[0] == refusals[1]


class TestSeveralStepsAnExecution:
    def test_are_counted_where_a_model_takes_them(self) -> None:
        """Keras hands them over in one list; its own torch models refuse them so far."""
        import keras

        class Several(keras.Sequential):  # type: ignore[misc]
            def make_train_function(self, force: bool = False) -> Any:
                self.train_function = lambda data: [self.train_step(one) for one in data][-1]

        model = Several([keras.layers.Input((b.FEATURES,)), keras.layers.Dense(1)])
        model.compile(optimizer="adam", loss="mse", steps_per_execution=3)

        t.fit_on(t.loader_of(t.SlowRows(100)), model=model)

        assert t.marks(RingKind.STEP) == [3, 6, 7]
        assert t.marks(RingKind.SAMPLES)[-1] == 100


class TestAFitThatRaises:
    def trained_model(self) -> Any:
        model = t.warmed_model()
        self.bare = model.train_function
        return model

    def assert_followed_by_another(self, model: Any, hook: Any, steps_before: int) -> None:
        assert model.train_function is self.bare
        assert b.present_phase() is TrainingPhase.OTHER
        before_ns = b.phase_ns()["input_wait"]

        b.fit(model, b.SlowBatches(0.01), hook, steps=5, epochs=1)

        assert model.train_function is self.bare
        assert b.phase_ns()["input_wait"] - before_ns >= 3 * 10 * MS  # Keras peeked at two
        assert t.marks(RingKind.STEP) == list(range(1, steps_before + 6))

    @pytest.mark.parametrize("workers", [0, 1])
    def test_in_the_data(self, workers: int) -> None:
        class Broken(t.SlowRows):
            def __getitem__(self, index: int) -> Any:
                if index == 40:
                    raise OSError("disk")
                return super().__getitem__(index)

        model, hook = self.trained_model(), b.tagger()
        loader = t.loader_of(Broken(96), num_workers=workers)
        with pytest.raises(OSError, match="disk"):
            model.fit(loader, verbose=0, callbacks=[hook])

        self.assert_followed_by_another(model, hook, 2)

    def test_in_the_step(self) -> None:
        model, hook = self.trained_model(), b.tagger()
        rows, sums = b.rows_and_sums(32)

        with pytest.raises(ValueError):  # noqa: PT011 (Keras says much)
            model.fit(rows[:, :3], sums, verbose=0, callbacks=[hook])

        self.assert_followed_by_another(model, hook, 0)

    def test_in_a_callback(self) -> None:
        import keras

        class Raise(keras.callbacks.Callback):  # type: ignore[misc]
            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                if batch == 2:
                    raise KeyError(batch)

        model, hook = self.trained_model(), b.tagger()
        with contextlib.suppress(KeyError):  # it forgets the error, and so what led to it
            b.fit(model, b.SlowBatches(0.0), hook, Raise())
        gc.collect()

        self.assert_followed_by_another(model, hook, 3)

    def test_is_forgotten_by_a_new_tagger_too(self) -> None:
        import keras

        class Raise(keras.callbacks.Callback):  # type: ignore[misc]
            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                raise KeyError(epoch)

        model = self.trained_model()
        with pytest.raises(KeyError):
            b.fit(model, b.SlowBatches(0.0), b.tagger(), Raise(), steps=3)

        b.fit(model, b.SlowBatches(0.0), b.tagger(), steps=5, epochs=1)

        assert model.train_function is self.bare
        assert t.marks(RingKind.STEP) == list(range(1, 9))


class TestTheTraining:
    def test_has_its_loader_as_it_was(self) -> None:
        loader = t.loader_of(t.SlowRows(64))
        before = dict(vars(loader))

        t.fit_on(loader, epochs=2)

        assert vars(loader) == before
        assert len(list(loader)) == 4

    def test_is_not_kept_alive(self) -> None:
        import weakref

        data = t.SlowRows(64)
        model = b.small_model()
        hook = b.tagger()
        model.fit(t.loader_of(data), verbose=0, callbacks=[hook])
        gone = weakref.ref(data)

        del data
        gc.collect()

        assert gone() is None

    def test_may_use_its_steps_from_other_threads(self) -> None:
        import threading

        model = t.warmed_model()
        rows, sums = b.rows_and_sums(16)
        losses: list[float] = []

        class Beside(b.SleepingCallback):
            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                thread = threading.Thread(
                    target=lambda: losses.append(self.model.test_on_batch(rows, sums))
                )
                thread.start()
                thread.join()

        b.fit(model, b.SlowBatches(0.0), b.tagger(), Beside(seconds=0.0), steps=3)

        assert len(losses) == 2
        assert t.marks(RingKind.STEP) == [1, 2, 3, 4, 5, 6]

    def test_leaves_no_thread_behind(self) -> None:
        import threading

        t.fit_on(b.rows_and_sums(64)[0], y=b.rows_and_sums(64)[1])

        assert not [thread for thread in threading.enumerate() if "gpumon" in thread.name]
