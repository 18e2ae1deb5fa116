"""``PhaseTagger`` harms nothing: results, errors, callbacks and the pace of the training stay."""

from __future__ import annotations

import copy
import hashlib
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpumon.core.phase import TrainingPhase
from gpumon.core.ring.events import RingKind
from tests.keras.later import b

pytestmark = pytest.mark.keras_jax
MS = 1_000_000


class TestAFitThatRaises:
    def raising(self, at: int) -> Any:
        def source() -> Any:
            for number, batch in enumerate(b.SlowBatches(0.0)):
                if number == at:
                    raise OSError("disk")
                yield batch

        return source()

    def still_usable(self, model: Any) -> Any:
        """The model, or another: some versions of Keras lose the weights in a fit that raises."""
        try:
            model.get_weights()
        except TypeError:
            return b.small_model()
        return model

    def test_leaves_the_model_as_it_was_and_can_be_followed_by_another(self) -> None:
        model, hook = b.small_model(), b.tagger()
        b.fit(model, b.SlowBatches(0.0), steps=1, epochs=1)
        bare = model.train_function

        with pytest.raises(OSError, match="disk"):
            b.fit(model, self.raising(at=5), hook)
        assert model.train_function is bare
        assert b.present_phase() is TrainingPhase.OTHER
        b.fit(self.still_usable(model), b.SlowBatches(0.01), hook, steps=5, epochs=1)

        assert model.train_function is bare
        assert [e.value for e in b.records() if e.kind is RingKind.EPOCH] == [0, 0]
        assert b.phase_ns()["input_wait"] >= 3 * 10 * MS  # Keras peeked at the other two

    def test_in_a_callback_can_be_followed_by_another(self) -> None:
        import keras

        class Raise(keras.callbacks.Callback):  # type: ignore[misc]
            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                raise KeyError(epoch)

        model, hook = b.small_model(), b.tagger()
        b.fit(model, b.SlowBatches(0.0), steps=1, epochs=1)
        bare = model.train_function

        with pytest.raises(KeyError):
            b.fit(model, b.SlowBatches(0.0), hook, Raise())
        b.fit(model, b.SlowBatches(0.0), hook, steps=5, epochs=1)

        assert model.train_function is bare
        steps = [e.value for e in b.records() if e.kind is RingKind.STEP]
        assert steps == list(range(1, 21))

    def test_with_a_callback_of_a_new_tagger_too(self) -> None:
        model = b.small_model()
        with pytest.raises(OSError, match="disk"):
            b.fit(model, self.raising(at=5), b.tagger())

        b.fit(self.still_usable(model), b.SlowBatches(0.0), b.tagger(), steps=5, epochs=1)

        assert [e.value for e in b.records() if e.kind is RingKind.STEP][-1] >= 8


def numbers_of(callbacks: Sequence[Any], kind: str, **compiled: Any) -> dict[str, Any]:
    """Everything a training leaves behind."""
    import keras

    model = b.small_model(keras.layers.BatchNormalization(), keras.layers.Dropout(0.3), **compiled)
    rows, sums = b.rows_and_sums(200)
    data: dict[str, Any] = {
        "arrays": {"x": rows, "y": sums, "batch_size": 16, "validation_split": 0.2},
        "unknown length": {"x": ((rows[n : n + 16], sums[n : n + 16]) for n in range(0, 200, 16))},
        "generator": {"x": iter(b.SlowBatches(0.0)), "steps_per_epoch": 7},
    }[kind]
    epochs = 1 if kind == "unknown length" else 2
    history = model.fit(**data, epochs=epochs, verbose=0, callbacks=list(callbacks))
    digest = hashlib.md5()
    for weight in model.get_weights():
        digest.update(np.ascontiguousarray(weight).tobytes())
    return {
        "history": history.history,
        "iterations": int(model.optimizer.iterations),
        "weights": digest.hexdigest(),
        "evaluate": model.evaluate(rows, sums, verbose=0, callbacks=list(callbacks)),
        "predict": model.predict(rows, verbose=0, callbacks=list(callbacks)).tobytes(),
    }


class TestResultsDoNotChange:
    @pytest.mark.parametrize("kind", ["arrays", "generator", "unknown length"])
    @pytest.mark.parametrize(
        "compiled",
        [{}, {"steps_per_execution": 3}, {"run_eagerly": True}],
        ids=["compiled", "several steps", "eager"],
    )
    def test_with_the_hook(self, kind: str, compiled: dict[str, Any]) -> None:
        assert numbers_of([b.tagger()], kind, **compiled) == numbers_of([], kind, **compiled)

    @pytest.mark.oldest_keras
    def test_with_the_hook_and_an_ordinary_callback(self) -> None:
        with_hook = numbers_of([b.an_ordinary_callback(), b.tagger()], "arrays")

        assert with_hook == numbers_of([], "arrays")


class TestTheTraining:
    @pytest.mark.oldest_keras
    def test_stays_asynchronous(self) -> None:
        def period_s(*callbacks: Any) -> float:
            began = time.monotonic()
            b.fit(model, b.SlowBatches(0.015), *callbacks, steps=20, epochs=1)
            return time.monotonic() - began

        model = b.small_model(b.SleepingCompute(0.015))
        period_s()
        bare = min(period_s() for _ in range(3))
        tagged = min(period_s(b.tagger()) for _ in range(3))

        assert tagged < 1.3 * bare

    def test_has_its_callbacks_back_when_it_is_over(self) -> None:
        import keras

        mine = keras.callbacks.CallbackList([b.tagger()], add_history=True)
        before = list(mine.callbacks)
        model = b.small_model()
        mine.set_model(model)

        model.fit(*b.rows_and_sums(32), verbose=0, callbacks=mine)

        assert mine.callbacks == before

    def test_goes_on_where_no_ring_can_be_made(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("GPUMON_RUNTIME_DIR", str(tmp_path / "file"))

        with pytest.warns(RuntimeWarning, match="records no phases"):
            hook = b.tagger()
        history = b.small_model().fit(*b.rows_and_sums(32), verbose=0, callbacks=[hook])

        assert len(history.history["loss"]) == 1

    def test_can_have_a_copy_of_the_tagger(self) -> None:
        hook = b.tagger(run="a")
        b.small_model().fit(*b.rows_and_sums(32), verbose=0, callbacks=[hook])

        b.small_model().fit(*b.rows_and_sums(32), verbose=0, callbacks=[copy.deepcopy(hook)])

        assert [e.value for e in b.records() if e.kind is RingKind.EPOCH] == [0, 0]

    def test_leaves_no_thread_behind(self) -> None:
        import threading

        before = set(threading.enumerate())
        b.fit(b.small_model(b.SleepingCompute(0.005)), b.SlowBatches(0.0), b.tagger())

        new = set(threading.enumerate()) - before
        assert [thread.name for thread in new if thread.name.startswith("gpumon")] == []


class TestAnotherBackend:
    @pytest.fixture(autouse=True)
    def backend(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import keras

        monkeypatch.setattr(keras.backend, "backend", lambda: "openvino")

    def test_is_said_once_to_have_no_wait_for_input_and_none_is_told(self) -> None:
        sleeper = b.SleepingCallback("on_epoch_end", seconds=0.02)
        model, hook = b.small_model(), b.tagger()

        with pytest.warns(RuntimeWarning, match="the wait for input and the step are both 'other'"):
            b.fit(model, b.SlowBatches(0.01), hook, sleeper, steps=5)
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            b.fit(model, b.SlowBatches(0.01), hook, sleeper, steps=5)

        told = b.phase_ns()
        assert (told["input_wait"], told["train_step"]) == (0, 0)
        assert told["callbacks"] >= sleeper.spent_ns
        assert told["other"] >= 2 * 8 * 10 * MS
        assert [e.value for e in b.records() if e.kind is RingKind.STEP][-1] == 20
