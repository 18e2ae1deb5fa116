"""``PhaseTagger`` on what only torch is fed by, which it leaves as it was."""

from __future__ import annotations

import gc
import threading
import time
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from gpumon.core.phase import TrainingMode, TrainingPhase
from gpumon.core.ring_format.events import RingKind
from tests.keras.later import b, keras
from tests.keras.later import on_torch as t
from trainer_hooks import phase

pytestmark = pytest.mark.keras_torch
MS = 1_000_000


class TestTheWaitForInput:
    @pytest.mark.measured
    @pytest.mark.parametrize("ordinary", [False, True], ids=["asynchronous", "synchronous"])
    def test_is_as_long_as_a_dataset_behind_a_loader_reports(self, ordinary: bool) -> None:
        data, model = t.SlowRows(96, seconds=0.002), b.warmed_model()

        t.fit_on(t.loader_of(data), *b.others(ordinary), model=model, epochs=2)

        # Within 10 % of the truth, or 1 ms a step.
        assert b.phase_ns()["input_wait"] == pytest.approx(data.slept_ns, rel=0.10, abs=12 * MS)

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


class TestALoaderThatCannotBeginAgain:
    def test_ends_the_fit_with_what_it_raised(self) -> None:
        loader, begun = t.loader_of(t.SlowRows(32, seconds=0)), iter([1, 2])

        class Begins(type(loader)):  # type: ignore[misc]
            def __iter__(self) -> Iterator[Any]:
                if next(begun, None) is None:
                    raise OSError("the disk is gone")
                return iter(loader)

        with pytest.raises(OSError, match="disk"):
            t.fit_on(Begins(loader.dataset, batch_size=16), epochs=9)


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


class TestWhatKerasReports:
    def test_in_a_warning_is_the_same(self) -> None:
        def warned(*callbacks: Any) -> list[str]:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                data = t.loader_of(t.RowsThatEnd(60))
                b.normalized_model().fit(data, epochs=2, verbose=0, callbacks=list(callbacks))
            # Others come from the threads of callbacks, now and then.
            return [str(w.message) for w in caught if issubclass(w.category, UserWarning)]

        assert warned(b.tagger()) == warned()

    def test_when_it_refuses_several_steps_an_execution_is_the_same(self) -> None:
        def refusal(*callbacks: Any) -> str:
            with pytest.raises(ValueError, match="steps_per_execution") as refused:
                b.fit_rows(b.small_model(steps_per_execution=3), 60, *callbacks)
            return str(refused.value)

        assert refusal(b.tagger()) == refusal()


class TestSeveralStepsAnExecution:
    def test_are_counted_where_a_model_takes_them(self) -> None:
        """Keras hands them over in one list; its own torch models refuse them so far."""

        class Several(keras.Sequential):  # type: ignore[misc]
            def make_train_function(self, force: bool = False) -> Any:
                self.train_function = lambda data: [self.train_step(one) for one in data][-1]

        model = b.small_model(kind=Several, steps_per_execution=3)

        t.fit_on(t.loader_of(t.SlowRows(100)), model=model)

        assert b.marks(RingKind.STEP) == [3, 6, 7]
        assert b.marks(RingKind.SAMPLES)[-1] == 100


class TestAFitThatRaises:
    def assert_followed_by_another(self, data: Any, error: type[Exception], steps: int) -> None:
        """Is tried on data whose first steps, so many, can be taken."""
        model, hook = b.warmed_model(), b.tagger()
        bare = model.train_function

        with pytest.raises(error):
            model.fit(data, verbose=0, callbacks=[hook])
        assert model.train_function is bare
        assert b.present_phase() is TrainingPhase.OTHER
        b.fit(model, b.SlowBatches(0.0), hook, steps=5, epochs=1)

        assert model.train_function is bare
        assert b.marks(RingKind.STEP) == list(range(1, steps + 6))

    @pytest.mark.parametrize("workers", [0, 1])
    def test_in_the_data_of_a_loader_can_be_followed_by_another(self, workers: int) -> None:
        class Broken(t.SlowRows):
            def __getitem__(self, index: int) -> Any:
                if index == 40:
                    raise OSError("disk")
                return super().__getitem__(index)

        self.assert_followed_by_another(t.loader_of(Broken(96), num_workers=workers), OSError, 2)

    def test_in_the_step_can_be_followed_by_another(self) -> None:
        too_narrow = ((rows[:, :3], sums) for rows, sums in [b.rows_and_sums(b.BATCH)] * 3)

        self.assert_followed_by_another(too_narrow, ValueError, 0)


class TestTheTraining:
    def test_has_its_loader_as_it_was(self) -> None:
        loader = t.loader_of(t.SlowRows(64))
        before = dict(vars(loader))

        t.fit_on(loader, epochs=2)

        assert vars(loader) == before
        assert len(list(loader)) == 4

    def test_is_not_kept_alive(self) -> None:
        data, model, hook = t.SlowRows(64), b.small_model(), b.tagger()
        model.fit(t.loader_of(data), verbose=0, callbacks=[hook])
        gone = weakref.ref(data)

        del data
        gc.collect()

        assert gone() is None

    def test_may_use_its_steps_from_other_threads(self) -> None:
        model = b.warmed_model()
        rows, sums = b.rows_and_sums(16)
        losses: list[float] = []

        def test_elsewhere(own: Any) -> None:
            thread = threading.Thread(
                target=lambda: losses.append(own.model.test_on_batch(rows, sums))
            )
            thread.start()
            thread.join()

        beside = b.Does(test_elsewhere, "on_epoch_end")
        b.fit(model, b.SlowBatches(0.0), b.tagger(), beside, steps=3)

        assert len(losses) == 2
        assert b.marks(RingKind.STEP) == [1, 2, 3, 4, 5, 6]
