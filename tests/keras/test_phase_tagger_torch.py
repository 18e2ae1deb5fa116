"""``PhaseTagger`` on torch: what only torch is fed by, and what comes back to the training."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from gpumon.core.phase import TrainingMode, TrainingPhase
from gpumon.core.ring.events import RingKind
from tests.keras.later import b, keras
from tests.keras.later import on_torch as t
from trainer_hooks import phase

pytestmark = pytest.mark.keras_torch
MS = 1_000_000


class TestTheWaitForInput:
    def assert_truthful(self, true_ns: int, steps: int) -> None:
        """Within 10 % of the truth, or 1 ms a step."""
        assert b.phase_ns()["input_wait"] == pytest.approx(true_ns, rel=0.10, abs=steps * MS)

    @pytest.mark.parametrize("ordinary", [False, True], ids=["asynchronous", "synchronous"])
    def test_is_as_long_as_a_dataset_behind_a_loader_says(self, ordinary: bool) -> None:
        data, model = t.SlowRows(96, seconds=0.002), b.warmed_model()

        t.fit_on(t.loader_of(data), *b.others(ordinary), model=model, epochs=2)

        self.assert_truthful(data.slept_ns, steps=12)

    @pytest.mark.measured
    def test_is_as_long_as_a_sequence_says(self) -> None:
        model, data = b.small_model(), b.SlowSequence(12, seconds=0.02)
        model.fit(b.SlowSequence(2, seconds=0.0), verbose=0)

        t.fit_on(data, model=model)

        assert data.slept_ns >= 12 * 20 * MS
        self.assert_truthful(data.slept_ns, steps=12 + 10)  # Keras looks at the first one twice

    @pytest.mark.measured
    def test_is_what_remains_where_workers_prepare_batches(self) -> None:
        model = b.warmed_model(b.SleepingCompute(0.02))

        t.fit_on(b.SlowSequence(12, seconds=0.02, workers=4), model=model)

        assert b.phase_ns()["input_wait"] < 12 * 15 * MS

    @pytest.mark.measured
    @pytest.mark.parametrize("workers", [1, 2])
    def test_has_the_start_of_a_loaders_workers(self, workers: int) -> None:
        data = t.SlowRows(64, seconds=0.002)
        began_ns = time.monotonic_ns()

        t.fit_on(t.loader_of(data, num_workers=workers), model=b.warmed_model())

        # Each worker has a batch of 16 rows ready after 32 ms at the earliest.
        assert 32 * MS <= b.phase_ns()["input_wait"] < time.monotonic_ns() - began_ns
        assert b.marks(RingKind.STEP) == [1, 2, 3, 4]

    @pytest.mark.measured
    def test_has_the_search_for_a_batch_that_does_not_come_and_ends_there(self) -> None:
        data = t.RowsThatEnd(48, seconds_at_the_end=0.05)
        phases: list[Any] = []
        late = b.Does(lambda _: phases.extend(b.phases_in(TrainingMode.TRAIN)[-2:]), "on_epoch_end")

        t.fit_on(t.loader_of(data), late, model=b.warmed_model(), epochs=1)

        assert 50 * MS <= b.phase_ns()["input_wait"] < 80 * MS
        assert phases == [TrainingPhase.BETWEEN_EPOCHS, TrainingPhase.CALLBACKS]
        assert b.marks(RingKind.STEP) == [1, 2, 3]

    def test_for_a_split_off_validation_is_none_of_the_trainings(self) -> None:
        b.fit_rows(b.small_model(), 160, b.tagger(), validation_split=0.2, epochs=2)

        assert b.marks(RingKind.STEP)[-1] == 2 * 8
        assert b.phases_in(TrainingMode.VALIDATION).count(TrainingPhase.INPUT_WAIT) >= 2 * 2


class TestAValidationInACallback:
    def test_that_raised_and_was_caught_leaves_the_training_tagged(self) -> None:
        class Evaluate(keras.callbacks.Callback):  # type: ignore[misc]
            def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
                raise KeyError(batch)

            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                with pytest.raises(KeyError):
                    model.evaluate(*b.rows_and_sums(32), verbose=0, callbacks=own_list)

        model = b.small_model()
        callbacks = [b.tagger(), Evaluate()]
        own_list = keras.callbacks.CallbackList(callbacks, add_history=True, model=model)

        b.fit_rows(model, 32, epochs=2, callbacks=own_list)

        assert b.marks(RingKind.STEP) == [1, 2, 3, 4]
        assert set(b.marks(RingKind.ENTER)[-4:]) <= {TrainingMode.TRAIN, TrainingMode.VALIDATION}
        assert b.phases_in(TrainingMode.TRAIN).count(TrainingPhase.TRAIN_STEP) >= 4


class TestAGeneratorThatHandsOutBatchesFromInsideARegion:
    def batches(self) -> Iterator[Any]:
        rows_and_sums = b.rows_and_sums(8)
        while True:
            with phase("input_wait"):
                yield rows_and_sums

    def test_lets_no_phase_of_a_fit_outlast_it(self) -> None:
        batches, after = self.batches(), []
        for _ in range(2):
            b.fit(b.small_model(), batches, b.tagger(), steps=4, epochs=1)
            after.append(b.present_phase())
        del batches

        assert [*after, b.present_phase()] == [TrainingPhase.OTHER] * 3
