"""``PhaseTagger`` in company: a second tagger, callbacks that raise, threads, and copies."""

from __future__ import annotations

import contextlib
import copy
import gc
import threading
import time
import weakref
from typing import Any

import pytest

from gpumon.core.phase import TrainingPhase
from gpumon.core.ring.events import RingKind
from tests.keras.later import b
from trainer_hooks import phase, step

pytestmark = pytest.mark.keras_jax


def steps_told() -> int:
    return max((event.value for event in b.records() if event.kind is RingKind.STEP), default=0)


def raising() -> Any:
    import keras

    class Raise(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            raise KeyError("pruned")

    return Raise()


class TestTwoTaggersInOneList:
    def test_count_each_step_once_however_many_epochs_there_are(self) -> None:
        model = b.small_model()

        b.fit(model, b.SlowBatches(0.0), b.tagger(), b.tagger(), steps=2, epochs=60)

        assert steps_told() == 120
        assert not hasattr(model.train_function, "bare")


class TestACallbackThatRaises:
    @pytest.mark.oldest_keras
    def test_leaves_neither_the_model_nor_a_thread_nor_its_phase_behind(self) -> None:
        models, before = [], set(threading.enumerate())
        for _ in range(3):
            model = b.small_model()
            models.append(weakref.ref(model))
            with contextlib.suppress(KeyError):
                b.fit(model, b.SlowBatches(0.0), b.tagger(), raising(), steps=4)
            del model
        for _ in range(3):  # what one collection ends lets the next one free more
            gc.collect()

        assert [model() for model in models] == [None] * 3
        assert b.present_phase() is TrainingPhase.OTHER
        new = set(threading.enumerate()) - before
        assert [thread.name for thread in new if thread.name.startswith("gpumon")] == []

    def test_lets_the_next_fit_of_the_same_model_count_right(self) -> None:
        model = b.small_model()
        for _ in range(2):
            with pytest.raises(KeyError):
                b.fit(model, b.SlowBatches(0.0), b.tagger(), raising(), steps=4)
        before = steps_told()

        b.fit(model, b.SlowBatches(0.0), b.tagger(), steps=6, epochs=1)

        assert steps_told() - before == 6


class TestAModelThatWasTrained:
    def test_can_be_freed(self) -> None:
        model = b.small_model()
        b.fit(model, b.SlowBatches(0.0), b.tagger(), steps=2)
        seen = weakref.ref(model)

        del model
        gc.collect()

        assert seen() is None


class TestTheFunctionThatCallsFit:
    def test_holds_nothing_that_it_has_deleted(self) -> None:
        """Python up to 3.12 would have it do so, were it asked for what it holds."""
        from trainer_hooks.ring.call_frames import caller_named, is_calling

        model = b.small_model()
        seen = weakref.ref(model)

        def look() -> object:
            return is_calling(object()) or caller_named("epoch_iterator", lambda _: True)

        assert not look()
        del model
        gc.collect()

        assert seen() is None


class TestAFitOnAnotherThread:
    def test_gives_the_phases_back_to_the_thread_that_had_them(self) -> None:
        step()
        model = b.small_model()
        fit = threading.Thread(
            target=lambda: b.fit(model, b.SlowBatches(0.0), b.tagger(), steps=3, epochs=1)
        )
        fit.start()
        fit.join()
        before = steps_told()

        with phase("input_wait"):
            time.sleep(0.02)
        step()

        assert steps_told() == before + 1
        assert b.phase_ns()["input_wait"] >= 20_000_000


class TestASubclassWithArgumentsOfItsOwn:
    def test_can_be_copied_as_tuners_do(self) -> None:
        from trainer_hooks import PhaseTagger

        class Named(PhaseTagger):
            def __init__(self, first: str, second: str) -> None:
                super().__init__(run=f"{first}-{second}")
                self.parts = (first, second)

        original = Named("a", "b")
        b.fit(b.small_model(), b.SlowBatches(0.0), original, steps=2, epochs=1)

        twin = copy.deepcopy(original)
        b.fit(b.small_model(), b.SlowBatches(0.0), twin, steps=2, epochs=1)

        assert (type(twin), twin.parts) == (Named, ("a", "b"))
        assert steps_told() == 4
