"""``PhaseTagger`` on TensorFlow: steps, traces, ``evaluate``, and functions that it gives back."""

from __future__ import annotations

import sys
import time
import types
from functools import partial
from itertools import islice
from typing import Any

import pytest

from gpumon.core.phase import TrainingMode, TrainingPhase
from gpumon.core.ring_format.events import RingKind
from tests.keras.later import b, keras, tf
from tests.keras.later import on_tensorflow as t
from tests.keras.test_phase_tagger_harmless import data_of

pytestmark = pytest.mark.keras_tensorflow
MS = 1_000_000


@pytest.mark.measured
class TestOtherPhases:
    @pytest.mark.parametrize("steps_per_execution", [1, 4])
    def test_sum_to_the_time_of_the_training(self, steps_per_execution: int) -> None:
        model, edges = b.small_model(steps_per_execution=steps_per_execution), b.Edges()

        model.fit(
            t.synchronous(b.SlowBatches(0.005)),
            validation_data=b.rows_and_sums(48),
            epochs=2,
            verbose=0,
            callbacks=[b.tagger(), edges],
        )

        assert edges.tagged_ns / edges.wall_ns == pytest.approx(1.0, abs=0.01)
        assert b.phase_ns()["other"] < 0.01 * edges.wall_ns

    @pytest.mark.versions
    def test_the_step_has_the_compute_and_the_wait_none_of_it(self) -> None:
        compute = b.SleepingCompute(0.02)

        b.fit(b.warmed_model(compute), b.SlowBatches(0.001), b.tagger(), epochs=1)

        recorded, true_ns = b.phase_ns(), sum(b.lengths_ns(compute.spans_ns))
        assert recorded["train_step"] + recorded["device_sync"] >= true_ns
        assert t.in_a_quiet_moment(t.recorded_waits_ns()) < 10 * MS

    @pytest.mark.parametrize("steps_per_execution", [1, 4])
    def test_tracing_is_compile_and_recorded_once(self, steps_per_execution: int) -> None:
        traced_ns = []

        class Tracing(b.SleepingCompute):
            def call(self, rows: Any) -> Any:
                began_ns = time.monotonic_ns()
                time.sleep(0.2)  # runs while it is traced, and not in the graph
                traced_ns.append(time.monotonic_ns() - began_ns)
                return rows

        model = b.small_model(Tracing(0.0), steps_per_execution=steps_per_execution)
        traced_ns.clear()  # Keras traced shapes to build the model
        b.fit_rows(model, 64, b.tagger())
        first, true_ns = b.phase_ns(), sum(traced_ns)
        b.fit_rows(model, 64, b.tagger())

        assert true_ns >= 200 * MS
        assert first["compile"] >= true_ns
        assert first["train_step"] < 100 * MS
        assert sum(traced_ns) == true_ns
        assert b.phase_ns()["compile"] == first["compile"]

    def test_a_trace_that_no_one_foresaw_is_compile_too(self) -> None:
        model, hook = b.small_model(), b.tagger()
        rows, sums = b.rows_and_sums(64)
        model.fit(rows, sums, batch_size=64, verbose=0, callbacks=[hook])
        before = b.phase_ns()

        model.fit(rows.astype("int32"), sums, batch_size=64, verbose=0, callbacks=[hook])

        recorded = b.phase_ns()
        amounts = [event for event in b.records() if event.kind is RingKind.AMOUNT]
        assert [event.phase for event in amounts] == [TrainingPhase.COMPILE]
        assert recorded["compile"] - before["compile"] > 10 * MS
        assert recorded["train_step"] - before["train_step"] < 5 * MS


@pytest.mark.measured
class TestEvaluateAndPredict:
    @pytest.mark.parametrize(
        ("call", "mode", "phase"),
        [
            ("fit", TrainingMode.VALIDATION, "validation"),
            ("evaluate", TrainingMode.VALIDATION, "validation"),
            ("predict", TrainingMode.PREDICT, "predict"),
        ],
    )
    def test_record_the_wait_inside_fit_and_alone(
        self, call: str, mode: TrainingMode, phase: str
    ) -> None:
        model = b.small_model(b.SleepingCompute(0.01))

        def validate(data: Any, **words: Any) -> None:
            b.fit_rows(model, 32, validation_data=data, **words)

        recorded_ns, true_ns = t.usual_recorded_and_true_ns(
            validate if call == "fit" else getattr(model, call),
            partial(t.recorded_waits_ns, mode),
            batches=8,
        )

        assert true_ns > 40 * MS
        assert recorded_ns == t.within_a_tenth(true_ns)
        assert b.phase_ns()[phase] >= 3 * 8 * 10 * MS
        assert b.present_phase() is TrainingPhase.OTHER

    def test_leave_a_slow_callback_out_of_the_wait(self) -> None:
        model = b.small_model()
        sleeper = b.SleepingCallback("on_predict_batch_end", "on_test_batch_end", seconds=0.02)
        rows, sums = b.rows_and_sums(80)

        model.predict(rows, batch_size=16, verbose=0, callbacks=[b.tagger(), sleeper])
        model.evaluate(rows, sums, batch_size=16, verbose=0, callbacks=[b.tagger(), sleeper])

        assert sleeper.spent_ns >= 10 * 20 * MS
        assert b.phase_ns()["input_wait"] < sleeper.spent_ns / 4


@pytest.mark.versions
class TestResultsDoNotChange:
    def test_with_a_train_step_of_ones_own(self) -> None:
        assert left_by_own_step(b.tagger()) == left_by_own_step()


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
    @pytest.mark.versions
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

        with b.one_warning("cannot see the wait for input"):
            b.fit(model, source, b.tagger(), edges, steps=8)

        recorded = b.phase_ns()
        assert recorded["train_step"] > 8 * 5_000_000
        assert recorded["input_wait"] < source.peeked_ns(edges) + 2_000_000
        assert b.marks(RingKind.STEP) == [4, 8, 12, 16]
