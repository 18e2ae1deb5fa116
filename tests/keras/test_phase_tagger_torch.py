"""``PhaseTagger`` on torch, against truth from below the hooks: sleeps that time themselves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.phase import TrainingMode, TrainingPhase
from gpumon.core.ring.events import RingKind
from tests.keras.later import b
from tests.keras.later import on_torch as t
from trainer_hooks import phase

pytestmark = pytest.mark.keras_torch
MS = 1_000_000

both_ways = pytest.mark.parametrize("ordinary", [False, True], ids=["asynchronous", "synchronous"])
"""Keras calls callbacks on other threads where all of them allow it."""


class TestTheWaitForInput:
    def assert_truthful(self, true_ns: int, steps: int) -> None:
        """Within 10 % of the truth, or 1 ms a step."""
        assert b.phase_ns()["input_wait"] == pytest.approx(true_ns, rel=0.10, abs=steps * MS)

    @pytest.mark.measured
    @both_ways
    def test_is_as_long_as_a_generator_says(self, ordinary: bool) -> None:
        model, source, edges = t.warmed_model(), b.SlowBatches(0.02), b.Edges()

        b.fit(model, source, b.tagger(), edges, *t.others(ordinary))

        assert source.spent_ns(edges) > 28 * 20 * MS
        self.assert_truthful(source.spent_ns(edges), steps=30)

    @both_ways
    def test_is_as_long_as_a_dataset_behind_a_loader_says(self, ordinary: bool) -> None:
        data, model = t.SlowRows(96, seconds=0.002), t.warmed_model()

        t.fit_on(t.loader_of(data), *t.others(ordinary), model=model, epochs=2)

        self.assert_truthful(data.slept_ns, steps=12)

    @pytest.mark.measured
    def test_is_as_long_as_a_sequence_says(self) -> None:
        model, data = b.small_model(), t.SlowSequence(12, seconds=0.02)
        model.fit(t.SlowSequence(2, seconds=0.0), verbose=0)

        t.fit_on(data, model=model)

        assert data.slept_ns >= 12 * 20 * MS
        self.assert_truthful(data.slept_ns, steps=12 + 10)  # Keras looks at the first one twice

    @pytest.mark.measured
    def test_is_what_remains_where_workers_prepare_batches(self) -> None:
        model = t.warmed_model(b.SleepingCompute(0.02))

        t.fit_on(t.SlowSequence(12, seconds=0.02, workers=4), model=model)

        assert b.phase_ns()["input_wait"] < 12 * 15 * MS

    @pytest.mark.measured
    @pytest.mark.parametrize("workers", [1, 2])
    def test_has_the_start_of_a_loaders_workers(self, workers: int) -> None:
        data = t.SlowRows(64, seconds=0.002)
        began_ns = time.monotonic_ns()

        t.fit_on(t.loader_of(data, num_workers=workers), model=t.warmed_model())

        # Each worker has a batch of 16 rows ready after 32 ms at the earliest.
        assert 32 * MS <= b.phase_ns()["input_wait"] < time.monotonic_ns() - began_ns
        assert t.marks(RingKind.STEP) == [1, 2, 3, 4]

    @pytest.mark.measured
    def test_is_short_where_batches_are_ready(self) -> None:
        model = t.warmed_model(b.SleepingCompute(0.005))

        model.fit(*b.rows_and_sums(480), batch_size=16, verbose=0, callbacks=[b.tagger()])

        assert b.phase_ns()["input_wait"] < b.phase_ns()["train_step"] / 3

    @pytest.mark.measured
    @both_ways
    def test_leaves_the_compute_to_the_step(self, ordinary: bool) -> None:
        model, source, edges = (
            t.warmed_model(b.SleepingCompute(0.02)),
            b.SlowBatches(0.001),
            b.Edges(),
        )

        b.fit(model, source, b.tagger(), edges, *t.others(ordinary))

        told_ns = b.phase_ns()["train_step"] + b.phase_ns()["device_sync"]
        assert told_ns >= 30 * 20 * MS
        assert told_ns <= edges.wall_ns - source.spent_ns(edges) + 30 * MS

    @pytest.mark.measured
    def test_has_the_search_for_a_batch_that_does_not_come_and_ends_there(self) -> None:
        data = t.RowsThatEnd(48, seconds_at_the_end=0.05)
        phases: list[Any] = []

        class Late(b.Edges):
            def on_epoch_end(self, epoch: int, logs: object = None) -> None:
                phases.extend(t.phases_in(TrainingMode.TRAIN)[-2:])

        t.fit_on(t.loader_of(data), Late(), model=t.warmed_model(), epochs=1)

        assert 50 * MS <= b.phase_ns()["input_wait"] < 80 * MS
        assert phases == [TrainingPhase.BETWEEN_EPOCHS, TrainingPhase.CALLBACKS]
        assert t.marks(RingKind.STEP) == [1, 2, 3]


class TestOtherPhases:
    @pytest.mark.measured
    @both_ways
    def test_sum_to_the_time_of_the_training(self, ordinary: bool) -> None:
        edges = b.Edges()

        b.fit(b.small_model(), b.SlowBatches(0.005), b.tagger(), edges, *t.others(ordinary))

        assert edges.tagged_ns / edges.wall_ns == pytest.approx(1.0, abs=0.01)
        assert b.phase_ns()["other"] == 0

    @pytest.mark.measured
    @pytest.mark.parametrize(
        "method", ["on_epoch_begin", "on_epoch_end", "on_train_batch_begin", "on_train_batch_end"]
    )
    def test_callbacks_are_as_long_as_they_sleep(self, method: str) -> None:
        model, sleeper = t.warmed_model(), b.SleepingCallback(method, seconds=0.02)

        b.fit(model, b.SlowBatches(0.0), b.tagger(), sleeper, steps=5, epochs=3)

        assert b.phase_ns()["callbacks"] == pytest.approx(sleeper.spent_ns, rel=0.10, abs=15 * MS)

    @pytest.mark.measured
    def test_a_callback_on_another_thread_is_no_phase(self) -> None:
        import keras

        if not hasattr(keras.callbacks.CallbackList, "_async_dispatch"):
            pytest.skip("this Keras calls all callbacks on the thread that trains")
        sleeper = b.SleepingCallback("on_train_batch_end", seconds=0.004)
        sleeper.async_safe = True

        b.fit(t.warmed_model(), b.SlowBatches(0.006), b.tagger(), sleeper)

        assert sleeper.spent_ns > 30 * 4 * MS
        assert b.phase_ns()["callbacks"] < sleeper.spent_ns / 2

    @pytest.mark.measured
    @both_ways
    def test_a_checkpoint_is_told_from_the_callbacks_around_it(
        self, ordinary: bool, tmp_path: Path
    ) -> None:
        import keras

        class SlowCheckpoint(keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
            async_safe = True

            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                time.sleep(0.03)
                super().on_epoch_end(epoch, logs)

        checkpoint = SlowCheckpoint(str(tmp_path / "model.keras"))
        sleeper = b.SleepingCallback("on_epoch_end", seconds=0.02)

        source = b.SlowBatches(0.0)
        b.fit(
            b.small_model(), source, sleeper, checkpoint, b.tagger(), *t.others(ordinary), steps=3
        )

        told = b.phase_ns()
        assert told["checkpoint"] >= 60 * MS
        assert told["callbacks"] >= 40 * MS
        assert (tmp_path / "model.keras").exists()

    @pytest.mark.measured
    @both_ways
    def test_validation_is_told_and_its_wait_for_input_within_it(self, ordinary: bool) -> None:
        model = t.warmed_model(b.SleepingCompute(0.005))
        source, edges = b.SlowBatches(0.02), b.Edges()

        model.fit(
            *b.rows_and_sums(48),
            batch_size=16,
            epochs=2,
            verbose=0,
            validation_data=iter(source),
            validation_steps=5,
            callbacks=[b.tagger(), edges, *t.others(ordinary)],
        )

        modes = t.phases_in(TrainingMode.VALIDATION)
        assert modes.count(TrainingPhase.INPUT_WAIT) >= 2 * 5
        assert set(modes) == {TrainingPhase.INPUT_WAIT, TrainingPhase.VALIDATION}
        assert b.phase_ns()["validation"] >= 2 * 5 * 5 * MS
        true_ns = source.spent_in_validation_ns(edges)
        assert true_ns > 4 * 20 * MS
        # Of sixteen batches six are the training's, and each validation makes its loader anew.
        assert b.phase_ns()["input_wait"] == pytest.approx(true_ns, rel=0.10, abs=16 * 2 * MS)

    def test_the_wait_for_a_split_off_validation_is_none_of_the_trainings(self) -> None:
        rows, sums = b.rows_and_sums(160)

        t.fit_on(rows, y=sums, batch_size=16, validation_split=0.2, epochs=2)

        assert t.marks(RingKind.STEP)[-1] == 2 * 8
        assert t.phases_in(TrainingMode.VALIDATION).count(TrainingPhase.INPUT_WAIT) >= 2 * 2

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
        assert TrainingPhase.INPUT_WAIT in t.phases_in(TrainingMode.PREDICT)

    @pytest.mark.parametrize("run", ["evaluate", "predict"])
    def test_a_run_by_somebodys_callback_comes_back_to_it(self, run: str) -> None:
        import keras

        rows, sums = b.rows_and_sums(64)
        after = []

        class Run(keras.callbacks.Callback):  # type: ignore[misc]
            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                getattr(self.model, run)(*[rows, sums][: 1 + (run == "evaluate")], verbose=0)
                after.append(b.present_phase())

        t.fit_on(rows, Run(), y=sums, validation_data=(rows, sums), epochs=2)

        assert after == [TrainingPhase.CALLBACKS] * 2
        assert t.marks(RingKind.STEP) == [1, 2, 3, 4]
        assert b.present_phase() is TrainingPhase.OTHER

    def test_go_on_after_a_validation_that_raised_and_was_caught(self) -> None:
        import keras

        class Evaluate(keras.callbacks.Callback):  # type: ignore[misc]
            def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
                raise KeyError(batch)

            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                with pytest.raises(KeyError):
                    self.model.evaluate(rows, sums, verbose=0, callbacks=own_list)

        rows, sums = b.rows_and_sums(32)
        hook, callback = b.tagger(), Evaluate()
        own_list = keras.callbacks.CallbackList([hook, callback], add_history=True)
        model = b.small_model()
        own_list.set_model(model)

        model.fit(rows, sums, batch_size=16, epochs=2, verbose=0, callbacks=own_list)

        assert t.marks(RingKind.STEP) == [1, 2, 3, 4]
        last = [e.value for e in b.records() if e.kind is RingKind.ENTER][-4:]
        assert set(last) <= {TrainingMode.TRAIN, TrainingMode.VALIDATION}
        assert t.phases_in(TrainingMode.TRAIN).count(TrainingPhase.TRAIN_STEP) >= 4


class TestAGeneratorThatHandsOutBatchesFromInsideARegion:
    def batches(self) -> Iterator[Any]:
        rows_and_sums = b.rows_and_sums(8)
        while True:
            with phase("input_wait"):
                yield rows_and_sums

    def test_lets_no_phase_of_a_fit_outlast_it(self) -> None:
        batches, after = self.batches(), []
        for _ in range(2):
            b.small_model().fit(batches, steps_per_epoch=4, verbose=0, callbacks=[b.tagger()])
            after.append(b.present_phase())
        del batches

        assert [*after, b.present_phase()] == [TrainingPhase.OTHER] * 3
