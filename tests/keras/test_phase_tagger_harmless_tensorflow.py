"""``PhaseTagger`` on TensorFlow harms nothing: own steps, strategies, functions and traces stay."""

from __future__ import annotations

import sys
import types
from itertools import islice
from typing import Any

import pytest

from gpumon.core.phase import TrainingPhase
from gpumon.core.ring.events import RingKind
from tests.keras.later import b, keras, tf
from tests.keras.test_phase_tagger_harmless import data_of
from tests.keras.told_by_script import told_on_two_devices

pytestmark = pytest.mark.keras_tensorflow


class TestResultsDoNotChange:
    def test_with_a_train_step_of_ones_own(self) -> None:
        assert left_by_own_step(b.tagger()) == left_by_own_step()

    def test_on_two_devices_of_a_mirrored_strategy(self) -> None:
        told = told_on_two_devices("mirrored_training")

        assert told["tagged"] == told["bare"]
        for phase in ("input_wait", "train_step", "validation"):
            assert told["phase_ns"][phase] > 0


def left_by_own_step(*callbacks: Any) -> dict[str, Any]:
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
    rows, sums = b.rows_and_sums(60)
    return b.left_by(model, *callbacks, x=rows, y=sums, batch_size=16, epochs=2)


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
        def traces(*callbacks: Any) -> dict[str, int]:
            model = b.normalized_model()
            model.fit(**data_of(kind), verbose=0, callbacks=list(callbacks))
            return traces_of(model)

        assert traces(b.tagger()) == {"one step": traces()["one step"], "fused": 0}

    def test_grow_neither_with_steps_nor_with_fits(self) -> None:
        model, hook = b.normalized_model(), b.tagger()
        b.fit_rows(model, 60, hook)
        first = traces_of(model)

        for _ in range(3):
            b.fit_rows(model, 60, hook, epochs=2)

        assert traces_of(model) == first

    def test_without_timers_are_made_once_more_with_them(self) -> None:
        model, hook = b.normalized_model(steps_per_execution=4), b.tagger()
        b.fit_rows(model, 60)
        bare = model.train_function

        for _ in range(3):
            b.fit_rows(model, 60, hook, epochs=2)

        assert model.train_function is not bare
        assert traces_of(model)["fused"] == 1


class TestTheModel:
    def test_has_its_functions_back_when_it_is_over(self) -> None:
        model = b.normalized_model()
        b.fit_rows(model, 60, validation_split=0.2)
        bare = model.train_function, model.test_function

        b.fit_rows(model, 60, b.tagger(), validation_split=0.2)

        assert (model.train_function, model.test_function) == bare

    def test_of_several_steps_an_execution_can_be_trained_on_after_a_fit_that_raised(self) -> None:
        def broken() -> Any:
            yield from islice(b.SlowBatches(0.0), 9)
            raise OSError("disk")

        def error_of(*callbacks: Any) -> type[BaseException]:
            with pytest.raises(Exception, match="disk") as raised:
                b.fit(b.normalized_model(steps_per_execution=4), broken(), *callbacks)
            return raised.type

        hook = b.tagger()
        assert error_of(hook) is error_of()
        assert b.present_phase() is TrainingPhase.OTHER

        model = b.normalized_model(steps_per_execution=4)
        b.fit(model, b.SlowBatches(0.0), hook, steps=8, epochs=1)

        assert not hasattr(model.train_function, "bare")


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
        assert b.marks(RingKind.STEP) == [4, 8, 12, 16]
