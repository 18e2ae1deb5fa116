"""``PhaseTagger`` where only JAX does so, and in company that is the same on every backend."""

from __future__ import annotations

import contextlib
import gc
import threading
import time
import warnings
import weakref
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.ring_format.events import RingKind
from tests.keras.later import b, keras

pytestmark = pytest.mark.keras_jax
MS = 1_000_000


class TestTheWaitForInput:
    def trained(self, model: Any, steps: int) -> tuple[int, Any]:
        """How long it really waited, and its edges; told is that within 10 %, or 1 ms a step."""
        source, edges = b.SlowBatches(0.01), b.Edges()
        b.fit(model, source, b.tagger(), edges, steps=steps, epochs=1)
        true_ns = source.spent_ns(edges)
        assert b.phase_ns()["input_wait"] == pytest.approx(true_ns, rel=0.10, abs=steps * MS)
        return true_ns, edges

    @pytest.mark.measured
    def test_of_several_steps_an_execution_is_recorded_gross_by_batch_and_not_called_hidden(
        self,
    ) -> None:
        model = b.small_model(b.SleepingCompute(0.002), steps_per_execution=4)
        true_ns, edges = self.trained(model, steps=16)

        assert b.marks(RingKind.STEP) == [4, 8, 12, 16]
        (recorded,) = b.recorded_in([(edges.made_ns, edges.ended_ns)])
        recorded_ns = recorded.gross_input_wait_ns + recorded.waits[IdleCause.INPUT_WAIT]
        assert recorded_ns == pytest.approx(true_ns, rel=0.10, abs=16 * MS)
        assert recorded.gross_input_wait_ns > 9 * 10 * MS
        assert recorded.hidden_input_wait_ns < 4 * MS
        assert b.facts().loader["input_wait"] == "gross"

    def test_is_recorded_where_nothing_is_compiled(self) -> None:
        self.trained(b.small_model(run_eagerly=True), steps=8)


class TestCompiling:
    @pytest.mark.measured
    @pytest.mark.versions
    def test_is_recorded_where_jax_compiles_and_nowhere_else(self) -> None:
        import jax

        compiled: list[float] = []
        jax.monitoring.register_event_duration_secs_listener(
            lambda event, seconds, **_: compiled.append("backend_compile" in event)
        )
        model, fits = b.small_model(), []
        for _ in range(3):
            compiled.clear()
            before_ns = b.phase_ns()["compile"]
            b.fit_rows(model, 64, b.tagger())
            fits.append((sum(compiled), b.phase_ns()["compile"] - before_ns))

        assert fits[0][0] > 0
        assert fits[0][1] > 5 * MS
        assert fits[2][0] == 0  # an older Keras compiles in the second fit, too
        assert all(recorded_ns < fits[0][1] / 4 for number, recorded_ns in fits if number == 0)


class TestTheTraining:
    @pytest.mark.measured
    @pytest.mark.versions
    def test_stays_asynchronous(self) -> None:
        def period_s(*callbacks: Any) -> float:
            began = time.monotonic()
            b.fit(model, b.SlowBatches(0.015), *callbacks, steps=20, epochs=1)
            return time.monotonic() - began

        model = b.small_model(b.SleepingCompute(0.015))
        period_s()
        bare = min(period_s() for _ in range(3))
        tagged = min(period_s(b.tagger()) for _ in range(3))

        assert tagged < 1.3 * bare

    def test_has_its_callbacks_back_when_it_is_over(self) -> None:
        mine = keras.callbacks.CallbackList([b.tagger()], add_history=True)
        before = list(mine.callbacks)
        model = b.small_model()
        mine.set_model(model)

        b.fit_rows(model, 32, callbacks=mine)

        assert mine.callbacks == before

    def test_goes_on_where_no_ring_can_be_made(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("GPUMON_RUNTIME_DIR", str(tmp_path / "file"))

        with pytest.warns(RuntimeWarning, match="records no phases"):
            hook = b.tagger()
        history = b.fit_rows(b.small_model(), 32, hook)

        assert len(history.history["loss"]) == 1


class TestAnotherBackend:
    @pytest.fixture(autouse=True)
    def backend(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(keras.backend, "backend", lambda: "openvino")

    def test_is_reported_once_to_have_no_wait_for_input_and_none_is_recorded(self) -> None:
        sleeper = b.SleepingCallback("on_epoch_end", seconds=0.02)
        model, hook = b.small_model(), b.tagger()

        with b.one_warning("on openvino, .* are both 'other'"):
            b.fit(model, b.SlowBatches(0.01), hook, sleeper, steps=5)
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            b.fit(model, b.SlowBatches(0.01), hook, sleeper, steps=5)

        recorded = b.phase_ns()
        assert (recorded["input_wait"], recorded["train_step"]) == (0, 0)
        assert recorded["callbacks"] >= sleeper.spent_ns
        assert recorded["other"] >= 2 * 8 * 10 * MS
        assert b.marks(RingKind.STEP)[-1] == 20


class TestTwoTaggersInOneList:
    def test_count_each_step_once_however_many_epochs_there_are(self) -> None:
        model = b.small_model()

        b.fit(model, b.SlowBatches(0.0), b.tagger(), b.tagger(), steps=2, epochs=60)

        assert b.recorded_steps() == 120
        assert not hasattr(model.train_function, "bare")


class TestACallbackThatRaises:
    @pytest.mark.versions
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
