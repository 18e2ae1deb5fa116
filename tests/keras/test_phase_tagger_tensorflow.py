"""``PhaseTagger`` on TensorFlow tells steps, traces, and what ``evaluate`` and ``predict`` do."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pytest

from gpumon.core.phase import TrainingMode, TrainingPhase
from gpumon.core.ring.events import RingKind
from tests.keras.later import b
from tests.keras.later import on_tensorflow as t

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

    def test_the_step_holds_the_compute_and_the_wait_none_of_it(self) -> None:
        compute = b.SleepingCompute(0.02)

        b.fit(b.warmed_model(compute), b.SlowBatches(0.001), b.tagger(), epochs=1)

        told, true_ns = b.phase_ns(), sum(b.lengths_ns(compute.spans_ns))
        assert told["train_step"] + told["device_sync"] >= true_ns
        assert t.in_a_quiet_moment(t.waits_told_ns()) < 10 * MS

    @pytest.mark.parametrize("steps_per_execution", [1, 4])
    def test_tracing_is_compile_and_told_once(self, steps_per_execution: int) -> None:
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

    def test_a_trace_that_nobody_foresaw_is_compile_too(self) -> None:
        model, hook = b.small_model(), b.tagger()
        rows, sums = b.rows_and_sums(64)
        model.fit(rows, sums, batch_size=64, verbose=0, callbacks=[hook])
        before = b.phase_ns()

        model.fit(rows.astype("int32"), sums, batch_size=64, verbose=0, callbacks=[hook])

        told = b.phase_ns()
        amounts = [event for event in b.records() if event.kind is RingKind.AMOUNT]
        assert [event.phase for event in amounts] == [TrainingPhase.COMPILE]
        assert told["compile"] - before["compile"] > 10 * MS
        assert told["train_step"] - before["train_step"] < 5 * MS


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
    def test_tell_the_wait_inside_fit_and_alone(
        self, call: str, mode: TrainingMode, phase: str
    ) -> None:
        model = b.small_model(b.SleepingCompute(0.01))

        def validate(data: Any, **words: Any) -> None:
            b.fit_rows(model, 32, validation_data=data, **words)

        told_ns, true_ns = t.usually_told_and_true_ns(
            validate if call == "fit" else getattr(model, call),
            partial(t.waits_told_ns, mode),
            batches=8,
        )

        assert true_ns > 40 * MS
        assert told_ns == t.within_a_tenth(true_ns)
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
