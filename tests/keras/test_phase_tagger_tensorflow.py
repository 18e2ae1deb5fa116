"""``PhaseTagger`` on TensorFlow tells every phase, in ``fit``, ``evaluate`` and ``predict``."""

from __future__ import annotations

import time
from typing import Any

import pytest

from gpumon.core.phase import TrainingMode, TrainingPhase
from gpumon.core.ring.events import RingKind
from tests.keras.later import b
from tests.keras.later import on_tensorflow as t

pytestmark = pytest.mark.keras_tensorflow
MS = 1_000_000


class TestOtherPhases:
    @pytest.mark.measured
    @pytest.mark.parametrize("steps_per_execution", [1, 4])
    def test_sum_to_the_time_of_the_training(self, steps_per_execution: int) -> None:
        model, edges = b.small_model(steps_per_execution=steps_per_execution), b.Edges()
        hook = b.tagger()

        model.fit(
            t.synchronous(b.SlowBatches(0.005)),
            validation_data=b.rows_and_sums(48),
            epochs=2,
            verbose=0,
            callbacks=[hook, edges],
        )

        assert edges.tagged_ns / edges.wall_ns == pytest.approx(1.0, abs=0.01)
        assert b.phase_ns()["other"] < 0.01 * edges.wall_ns

    @pytest.mark.measured
    def test_the_step_holds_the_compute_and_the_wait_none_of_it(self) -> None:
        compute = t.noting_compute(0.02)
        model = b.small_model(compute)
        b.fit(model, b.SlowBatches(0.0), steps=2, epochs=1)
        compute.spans_ns.clear()

        b.fit(model, b.SlowBatches(0.001), b.tagger(), steps=15, epochs=1)

        told, true_ns = b.phase_ns(), sum(end - start for start, end in compute.spans_ns)
        assert told["train_step"] + told["device_sync"] >= true_ns
        assert t.in_a_quiet_moment(t.waits_told_ns()) < 10 * MS

    @pytest.mark.measured
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
        model.fit(*b.rows_and_sums(64), batch_size=16, verbose=0, callbacks=[b.tagger()])
        first = b.phase_ns()
        true_ns = sum(traced_ns)
        model.fit(*b.rows_and_sums(64), batch_size=16, verbose=0, callbacks=[b.tagger()])

        assert true_ns >= 200 * MS
        assert first["compile"] >= true_ns
        assert first["train_step"] < 100 * MS
        assert sum(traced_ns) == true_ns
        assert b.phase_ns()["compile"] == first["compile"]

    @pytest.mark.measured
    def test_a_trace_that_nobody_foresaw_is_compile_too(self) -> None:
        model, hook = b.small_model(), b.tagger()
        rows, sums = b.rows_and_sums(64)
        model.fit(rows, sums, batch_size=64, verbose=0, callbacks=[hook])
        before = b.phase_ns()

        model.fit(rows.astype("int32"), sums, batch_size=64, verbose=0, callbacks=[hook])

        told = b.phase_ns()
        assert [e.phase for e in b.records() if e.kind is RingKind.AMOUNT] == [
            TrainingPhase.COMPILE
        ]
        assert told["compile"] - before["compile"] > 10 * MS
        assert told["train_step"] - before["train_step"] < 5 * MS


class TestEvaluateAndPredict:
    @pytest.mark.measured
    def test_tell_the_wait_inside_fit(self) -> None:
        model = b.small_model(b.SleepingCompute(0.005))
        rows, sums = b.rows_and_sums(32)

        told_ns, true_ns = t.usually_told_and_true_ns(
            lambda source, hook: model.fit(
                rows, sums, verbose=0, validation_data=t.synchronous(source, 8), callbacks=[hook]
            ),
            lambda: t.waits_told_ns(TrainingMode.VALIDATION),
        )

        assert true_ns > 40 * MS
        assert told_ns == t.within_a_tenth(true_ns)
        assert b.phase_ns()["validation"] >= 3 * 8 * 5 * MS
        assert b.present_phase() is TrainingPhase.OTHER

    @pytest.mark.measured
    @pytest.mark.parametrize(
        ("call", "mode"),
        [("evaluate", TrainingMode.VALIDATION), ("predict", TrainingMode.PREDICT)],
    )
    def test_tell_it_alone(self, call: str, mode: TrainingMode) -> None:
        model = b.small_model(b.SleepingCompute(0.01))

        told_ns, true_ns = t.usually_told_and_true_ns(
            lambda source, hook: getattr(model, call)(
                t.synchronous(source, 8), verbose=0, callbacks=[hook]
            ),
            lambda: t.waits_told_ns(mode),
        )

        assert true_ns > 40 * MS
        assert told_ns == t.within_a_tenth(true_ns)
        assert b.phase_ns()["validation" if call == "evaluate" else "predict"] >= 3 * 8 * 10 * MS
        assert b.present_phase() is TrainingPhase.OTHER

    @pytest.mark.measured
    def test_leave_a_slow_callback_out_of_the_wait(self) -> None:
        model = b.small_model()
        sleeper = b.SleepingCallback("on_predict_batch_end", "on_test_batch_end", seconds=0.02)
        rows, sums = b.rows_and_sums(80)

        model.predict(rows, batch_size=16, verbose=0, callbacks=[b.tagger(), sleeper])
        model.evaluate(rows, sums, batch_size=16, verbose=0, callbacks=[b.tagger(), sleeper])

        assert sleeper.spent_ns >= 10 * 20 * MS
        assert b.phase_ns()["input_wait"] < sleeper.spent_ns / 4


class TestMarks:
    def test_steps_samples_and_epochs_are_counted(self) -> None:
        model = b.small_model()

        model.fit(*b.rows_and_sums(60), batch_size=16, epochs=3, verbose=0, callbacks=[b.tagger()])

        values = {
            kind: [e.value for e in b.records() if e.kind is kind]
            for kind in (RingKind.STEP, RingKind.SAMPLES, RingKind.EPOCH)
        }
        assert values[RingKind.STEP] == list(range(1, 13))
        assert values[RingKind.SAMPLES][-1] == 3 * 60
        assert values[RingKind.EPOCH] == [0, 1, 2]

    @pytest.mark.measured
    def test_the_device_is_done_with_a_step_after_its_compute(self) -> None:
        compute = t.noting_compute(0.01)
        model = b.small_model(compute)
        b.fit(model, b.SlowBatches(0.0), steps=2, epochs=1)
        compute.spans_ns.clear()

        b.fit(model, b.SlowBatches(0.0), b.tagger(), steps=8, epochs=1)

        done = [e.at_ns for e in b.records() if e.kind is RingKind.DEVICE_DONE]
        assert len(done) == 8
        assert all(
            end <= at <= end + 100 * MS for (_, end), at in zip(compute.spans_ns, done, strict=True)
        )
