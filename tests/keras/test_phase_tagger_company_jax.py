"""``PhaseTagger`` in company: a second tagger, callbacks that raise, and threads."""

from __future__ import annotations

import contextlib
import gc
import threading
import time
import weakref

import pytest

from gpumon.core.phase import TrainingPhase
from tests.keras.later import b
from trainer_hooks import phase, step

pytestmark = pytest.mark.keras_jax


class TestTwoTaggersInOneList:
    def test_count_each_step_once_however_many_epochs_there_are(self) -> None:
        model = b.small_model()

        b.fit(model, b.SlowBatches(0.0), b.tagger(), b.tagger(), steps=2, epochs=60)

        assert b.steps_told() == 120
        assert not hasattr(model.train_function, "bare")


class TestACallbackThatRaises:
    @pytest.mark.oldest_keras
    def test_leaves_neither_the_model_nor_a_thread_nor_its_phase_behind(self) -> None:
        models, before = [], set(threading.enumerate())
        for _ in range(3):
            model = b.small_model()
            models.append(weakref.ref(model))
            with contextlib.suppress(KeyError):
                b.fit(model, b.SlowBatches(0.0), b.tagger(), b.raising(KeyError), steps=4)
            del model
        for _ in range(3):  # what one collection ends lets the next one free more
            gc.collect()

        assert [model() for model in models] == [None] * 3
        assert b.present_phase() is TrainingPhase.OTHER
        new = set(threading.enumerate()) - before
        assert [thread.name for thread in new if thread.name.startswith("gpumon")] == []


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
        before = b.steps_told()

        with phase("input_wait"):
            time.sleep(0.02)
        step()

        assert b.steps_told() == before + 1
        assert b.phase_ns()["input_wait"] >= 20_000_000
