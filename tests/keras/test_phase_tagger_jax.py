"""``PhaseTagger`` on JAX, against truth from below the hooks: sleeps that time themselves."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.join.timeline import PhaseTimeline
from gpumon.core.phase import IdleCause, TrainingMode, TrainingPhase
from gpumon.core.ring.events import RingKind, RingRecords
from tests.keras.later import b

pytestmark = pytest.mark.keras_jax
MS = 1_000_000


class TestTheWaitForInput:
    def assert_truthful(self, source: Any, edges: Any, steps: int) -> None:
        """Within 10 % of the truth, or 1 ms a step."""
        told_ns, true_ns = b.phase_ns()["input_wait"], source.spent_ns(edges)
        assert told_ns == pytest.approx(true_ns, rel=0.10, abs=steps * MS)

    @pytest.mark.measured
    @pytest.mark.oldest_keras
    @pytest.mark.parametrize("ordinary", [False, True], ids=["asynchronous", "synchronous"])
    def test_is_as_long_as_the_source_says(self, ordinary: bool) -> None:
        model, source, edges = (
            b.small_model(b.SleepingCompute(0.005)),
            b.SlowBatches(0.02),
            b.Edges(),
        )
        others = [b.an_ordinary_callback()] if ordinary else []

        b.fit(model, source, b.tagger(), edges, *others)

        assert source.spent_ns(edges) > 28 * 20 * MS
        self.assert_truthful(source, edges, steps=30)

    @pytest.mark.measured
    def test_is_short_where_batches_are_ready(self) -> None:
        model = b.small_model(b.SleepingCompute(0.005))

        model.fit(*b.rows_and_sums(480), batch_size=16, verbose=0, callbacks=[b.tagger()])

        assert b.phase_ns()["input_wait"] / 30 < 2 * MS

    @pytest.mark.measured
    def test_leaves_the_compute_to_the_step(self) -> None:
        model, source = b.small_model(b.SleepingCompute(0.02)), b.SlowBatches(0.001)
        b.fit(model, source, steps=2, epochs=1)

        b.fit(model, source, b.tagger(), b.an_ordinary_callback())

        told = b.phase_ns()
        assert (told["train_step"] + told["device_sync"]) / 30 == pytest.approx(20 * MS, rel=0.25)

    def test_is_told_per_batch_with_several_steps_per_execution(self) -> None:
        model = b.small_model(b.SleepingCompute(0.002), steps_per_execution=4)
        source, edges = b.SlowBatches(0.01), b.Edges()

        b.fit(model, source, b.tagger(), edges, steps=16, epochs=1)

        self.assert_truthful(source, edges, steps=16)
        assert [e.value for e in b.records() if e.kind is RingKind.STEP] == [4, 8, 12, 16]

    @pytest.mark.measured
    def test_beside_steps_of_the_same_execution_is_gross_and_not_called_hidden(self) -> None:
        model = b.small_model(b.SleepingCompute(0.002), steps_per_execution=4)
        source, edges = b.SlowBatches(0.01), b.Edges()

        b.fit(model, source, b.tagger(), edges, steps=16, epochs=1)

        timeline = PhaseTimeline()
        timeline.extend(RingRecords.of(b.records()), time.monotonic_ns())
        told = timeline.parts(edges.made_ns, edges.ended_ns)
        told_ns = told.gross_input_wait_ns + told.waits[IdleCause.INPUT_WAIT]
        assert told_ns == pytest.approx(source.spent_ns(edges), rel=0.10, abs=16 * MS)
        assert told.gross_input_wait_ns > 9 * 10 * MS
        assert told.hidden_input_wait_ns < 4 * MS
        assert b.facts_of_the_loader()["input_wait"] == "gross"

    def test_is_told_where_nothing_is_compiled(self) -> None:
        model, source, edges = b.small_model(run_eagerly=True), b.SlowBatches(0.01), b.Edges()

        b.fit(model, source, b.tagger(), edges, steps=8, epochs=1)

        self.assert_truthful(source, edges, steps=8)


class TestOtherPhases:
    @pytest.mark.measured
    def test_sum_to_the_time_of_the_training(self) -> None:
        edges = b.Edges()

        b.fit(b.small_model(), b.SlowBatches(0.005), b.tagger(), edges)

        assert edges.tagged_ns / edges.wall_ns == pytest.approx(1.0, abs=0.01)
        assert b.phase_ns()["other"] == 0

    @pytest.mark.measured
    @pytest.mark.parametrize(
        "method", ["on_epoch_begin", "on_epoch_end", "on_train_batch_begin", "on_train_batch_end"]
    )
    def test_callbacks_are_as_long_as_they_sleep(self, method: str) -> None:
        model, sleeper = b.small_model(), b.SleepingCallback(method, seconds=0.02)
        b.fit(model, b.SlowBatches(0.0), steps=2, epochs=1)

        b.fit(model, b.SlowBatches(0.0), b.tagger(), sleeper, steps=5, epochs=3)

        assert b.phase_ns()["callbacks"] == pytest.approx(sleeper.spent_ns, rel=0.10, abs=15 * MS)

    @pytest.mark.measured
    def test_an_asynchronous_callback_beside_the_training_is_no_phase(self) -> None:
        sleeper = b.SleepingCallback("on_train_batch_end", seconds=0.002)
        sleeper.async_safe = True
        model = b.small_model()
        b.fit(model, b.SlowBatches(0.0), steps=2, epochs=1)

        b.fit(model, b.SlowBatches(0.004), b.tagger(), sleeper)

        assert sleeper.spent_ns > 30 * 2 * MS
        assert b.phase_ns()["callbacks"] < sleeper.spent_ns / 2

    @pytest.mark.measured
    def test_a_checkpoint_is_told_from_the_callbacks_around_it(self, tmp_path: Path) -> None:
        import keras

        class SlowCheckpoint(keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                time.sleep(0.03)
                super().on_epoch_end(epoch, logs)

        checkpoint = SlowCheckpoint(str(tmp_path / "model.keras"))
        sleeper = b.SleepingCallback("on_epoch_end", seconds=0.02)

        b.fit(b.small_model(), b.SlowBatches(0.0), sleeper, checkpoint, b.tagger(), steps=3)

        told = b.phase_ns()
        assert told["checkpoint"] >= 60 * MS
        assert told["callbacks"] >= 40 * MS
        assert (tmp_path / "model.keras").exists()

    @pytest.mark.measured
    @pytest.mark.oldest_keras
    def test_validation_is_told_and_its_wait_for_input_within_it(self) -> None:
        model = b.small_model(b.SleepingCompute(0.005))
        source, edges = b.SlowBatches(0.02), b.Edges()

        model.fit(
            *b.rows_and_sums(48),
            batch_size=16,
            epochs=2,
            verbose=0,
            validation_data=iter(source),
            validation_steps=5,
            callbacks=[b.tagger(), edges],
        )

        modes = [
            event.phase
            for event in b.records()
            if event.kind is RingKind.ENTER and event.value == TrainingMode.VALIDATION
        ]
        assert modes.count(TrainingPhase.INPUT_WAIT) >= 2 * 5
        assert set(modes) == {TrainingPhase.INPUT_WAIT, TrainingPhase.VALIDATION}
        assert b.phase_ns()["validation"] >= 2 * 5 * 5 * MS
        true_ns = source.spent_in_validation_ns(edges)
        assert true_ns > 4 * 20 * MS
        assert b.phase_ns()["input_wait"] == pytest.approx(true_ns, rel=0.10, abs=16 * MS)

    @pytest.mark.measured
    @pytest.mark.oldest_keras
    def test_compiling_is_told_where_jax_compiles_and_nowhere_else(self) -> None:
        import jax

        compiled: list[float] = []
        jax.monitoring.register_event_duration_secs_listener(
            lambda event, seconds, **_: compiled.append("backend_compile" in event)
        )
        model = b.small_model()
        rows, sums = b.rows_and_sums(64)

        fits = []
        for _ in range(3):
            compiled.clear()
            before_ns = b.phase_ns()["compile"]
            model.fit(rows, sums, verbose=0, callbacks=[b.tagger()])
            fits.append((sum(compiled), b.phase_ns()["compile"] - before_ns))

        assert fits[0][0] > 0
        assert fits[0][1] > 5 * MS
        assert fits[2][0] == 0  # an older Keras compiles in the second fit, too
        assert all(told_ns < fits[0][1] / 4 for number, told_ns in fits if number == 0)

    @pytest.mark.measured
    def test_evaluate_and_predict_alone_are_told(self) -> None:
        model, hook = b.small_model(b.SleepingCompute(0.01)), b.tagger()
        rows, sums = b.rows_and_sums(64)

        model.evaluate(rows, sums, verbose=0, callbacks=[hook])
        evaluated = b.phase_ns()
        model.predict(rows, verbose=0, callbacks=[hook])

        assert evaluated["validation"] >= 2 * 10 * MS
        assert b.phase_ns()["predict"] >= 2 * 10 * MS
        assert b.present_phase() is TrainingPhase.OTHER

    def test_a_validation_by_somebodys_callback_comes_back_to_it(self) -> None:
        import keras

        rows, sums = b.rows_and_sums(64)
        after = []

        class Evaluate(keras.callbacks.Callback):  # type: ignore[misc]
            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                self.model.evaluate(rows, sums, verbose=0)
                after.append(b.present_phase())

        model = b.small_model()
        model.fit(
            rows,
            sums,
            validation_data=(rows, sums),
            epochs=2,
            verbose=0,
            callbacks=[b.tagger(), Evaluate()],
        )

        assert after == [TrainingPhase.CALLBACKS] * 2


class TestMarks:
    @pytest.mark.oldest_keras
    def test_steps_samples_and_epochs_are_counted(self) -> None:
        b.fit(b.small_model(), b.SlowBatches(0.0), b.tagger(), steps=4, epochs=3)

        values = {
            kind: [e.value for e in b.records() if e.kind is kind]
            for kind in (RingKind.STEP, RingKind.SAMPLES, RingKind.EPOCH)
        }
        assert values[RingKind.STEP] == list(range(1, 13))
        assert values[RingKind.SAMPLES][-1] == 12 * b.BATCH
        assert values[RingKind.EPOCH] == [0, 1, 2]

    @pytest.mark.measured
    @pytest.mark.parametrize("ordinary", [False, True], ids=["asynchronous", "synchronous"])
    def test_the_device_is_done_with_a_step_after_its_compute(self, ordinary: bool) -> None:
        model = b.small_model(b.SleepingCompute(0.02))
        others = [b.an_ordinary_callback()] if ordinary else []
        for _ in range(2):  # all that there is to compile
            b.fit(model, b.SlowBatches(0.0), steps=2, epochs=1)

        b.fit(model, b.SlowBatches(0.0), b.tagger(), *others, steps=10, epochs=1)

        began = [
            e.at_ns
            for e in b.records()
            if e.kind is RingKind.ENTER and e.phase is TrainingPhase.TRAIN_STEP
        ]
        done = {e.value: e.at_ns for e in b.records() if e.kind is RingKind.DEVICE_DONE}
        assert len(began) == 10
        assert len(done) >= 8
        for step, at_ns in done.items():
            assert at_ns >= began[step - 1] + 20 * MS
            if step < 10:
                assert at_ns < began[step - 1] + 200 * MS

    @pytest.mark.oldest_keras
    def test_the_facts_say_what_trains_and_on_what(self) -> None:
        from trainer_hooks.ring.process_ring import process_ring

        hook = b.tagger(run="resnet", gpus=[1])
        rows, sums = b.rows_and_sums(64)
        b.small_model().fit(rows, sums, batch_size=16, verbose=0, callbacks=[hook])

        writer = process_ring().writer
        assert writer is not None
        assert (writer.facts.run, writer.facts.gpus) == ("resnet", ("1",))
        assert writer.facts.framework == "keras/jax"
        assert writer.facts.loader["batch_size"] == 16
        assert writer.facts.loader["adapter"] == "ArrayDataAdapter"
