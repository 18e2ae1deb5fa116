"""``PhaseTagger`` where only JAX differs, and what is the same on every backend, tested on JAX."""

from __future__ import annotations

import contextlib
import copy
import gc
import pickle
import threading
import time
import warnings
import weakref
from pathlib import Path
from typing import Any

import pytest

import trainer_hooks
from gpumon.core.phase import TrainingMode, TrainingPhase
from gpumon.core.ring_format.events import RingKind
from tests.keras.later import builders, keras

pytestmark = pytest.mark.keras_jax
MS = 1_000_000


class TestSeveralStepsAnExecution:
    def test_have_an_exact_wait_before_each_execution_and_gross_ones_inside(self) -> None:
        source = builders.SlowBatches(0.01)
        model = builders.small_model(builders.SleepingCompute(0.002), steps_per_execution=4)

        builders.fit(model, source, builders.tagger(), steps=16, epochs=1)

        for at, span in enumerate(source.spans_ns[2:], 2):  # Keras reads two to see what they are
            mode = TrainingMode.TRAIN if at % 4 == 0 else TrainingMode.BESIDE_STEP
            assert builders.phases_within([span]) == {(TrainingPhase.INPUT_WAIT, mode)}
        assert builders.marks(RingKind.STEP) == [4, 8, 12, 16]
        assert builders.facts().loader["input_wait"] == "gross"


@pytest.mark.versions
def test_compiling_is_recorded_where_jax_compiles_and_nowhere_else() -> None:
    import jax

    compiled: list[bool] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, seconds, **_: compiled.append("backend_compile" in event)
    )
    model, fits = builders.small_model(), []
    for _ in range(3):
        compiled.clear()
        before_ns = builders.phase_ns()["compile"]
        builders.fit_rows(model, 64, builders.tagger())
        fits.append((any(compiled), builders.phase_ns()["compile"] - before_ns > 5 * MS))

    assert fits[0] == (True, True)
    assert fits[2] == (False, False)  # an older Keras compiles in the second fit, too


@pytest.mark.measured
@pytest.mark.versions
def test_a_training_run_stays_asynchronous() -> None:
    def wall_s(*callbacks: Any) -> float:
        began = time.monotonic()
        builders.fit(model, builders.SlowBatches(0.015), *callbacks, steps=20, epochs=1)
        return time.monotonic() - began

    model = builders.small_model(builders.SleepingCompute(0.015))
    wall_s()
    bare = min(wall_s() for _ in range(3))
    tagged = min(wall_s(builders.tagger()) for _ in range(3))

    assert tagged < 1.3 * bare


class TestACallback:
    def test_is_timed_by_its_class_over_all_fits_of_the_process(self) -> None:
        twin = type("Twin", (builders.SleepingCallback,), {})
        twins = [twin("on_test_end", "on_train_batch_begin", seconds=0.004) for _ in range(2)]
        model, validated = builders.small_model(), {"validation_data": builders.rows_and_sums(32)}

        for _ in range(2):
            builders.fit_rows(model, 64, builders.tagger(), *twins, **validated)

        assert [each.times for each in twins] == [2 * 5] * 2
        assert builders.facts().callback_ns["Twin"] >= sum(each.spent_ns for each in twins)

    @pytest.mark.measured
    def test_callback_that_writes_checkpoints_is_checkpoint(self, tmp_path: Path) -> None:
        class Backup(keras.callbacks.BackupAndRestore):  # type: ignore[misc]
            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                time.sleep(0.02)
                super().on_epoch_end(epoch, logs)

        class EachBatch(keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                time.sleep(0.005)

        saves = keras.callbacks.ModelCheckpoint(str(tmp_path / "model.keras"))
        batches = EachBatch(str(tmp_path / "each.keras"))
        backup = Backup(str(tmp_path / "backup"))

        builders.fit(
            builders.small_model(),
            builders.SlowBatches(0.0),
            saves,
            batches,
            builders.tagger(),
            backup,
            steps=5,
        )

        recorded, by_class = builders.phase_ns(), builders.facts().callback_ns
        assert by_class["Backup"] >= 2 * 20 * MS
        assert by_class["EachBatch"] >= 10 * 5 * MS
        saved_ns = sum(by_class[name] for name in ("Backup", "EachBatch", "ModelCheckpoint"))
        assert recorded["checkpoint"] == pytest.approx(saved_ns, rel=0.1, abs=5 * MS)

    def test_is_called_in_the_order_that_it_has_without_the_tagger(self) -> None:
        methods = [
            f"on_{what}_{edge}"
            for what in ("train", "epoch", "train_batch", "test", "test_batch")
            for edge in ("begin", "end")
        ]

        def order(*tagger: Any) -> list[tuple[str, str]]:
            calls: list[tuple[str, str]] = []

            def noting(name: str) -> Any:
                noted = {m: lambda *_, m=m, **__: calls.append((name, m)) for m in methods}
                return keras.callbacks.LambdaCallback(**noted)

            callbacks = [noting("first"), *tagger, noting("second")]
            validated = {"validation_data": builders.rows_and_sums(32)}
            builders.fit_rows(builders.small_model(), 64, *callbacks, **validated)
            return calls

        assert order(builders.tagger()) == order()

    @pytest.mark.versions
    def test_error_leaves_no_model_thread_or_phase_behind(self) -> None:
        models, before = [], set(threading.enumerate())
        for raising in ([builders.raising(KeyError)], [builders.raising(KeyError)], []):
            model = builders.small_model()
            models.append(weakref.ref(model))
            with contextlib.suppress(KeyError):
                builders.fit(model, builders.SlowBatches(0.0), builders.tagger(), *raising, steps=4)
            del model
        for _ in range(3):  # what one collection ends lets the next one free more
            gc.collect()

        assert [model() for model in models] == [None] * 3
        assert builders.present_phase() is TrainingPhase.OTHER
        new = set(threading.enumerate()) - before
        assert [thread.name for thread in new if thread.name.startswith("gpumon")] == []

    @pytest.mark.versions
    @pytest.mark.parametrize("name", ["PhaseTagger", "NaNGuard"])
    def test_own_callback_listed_as_a_class_is_refused(self, name: str) -> None:
        kind = getattr(trainer_hooks, name)
        with pytest.raises(TypeError, match=rf"lists the class: write {name}\(\) instead"):
            builders.fit_rows(builders.small_model(), 32, kind)


class TestATagger:
    def test_gives_the_list_of_callbacks_back(self) -> None:
        own_list = keras.callbacks.CallbackList([builders.tagger()], add_history=True)
        before = list(own_list.callbacks)
        model = builders.small_model()
        own_list.set_model(model)

        builders.fit_rows(model, 32, callbacks=own_list)

        assert own_list.callbacks == before

    def test_lets_a_run_go_on_where_no_ring_can_be_made(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("GPUMON_RUNTIME_DIR", str(tmp_path / "file"))

        with pytest.warns(RuntimeWarning, match="records no phases"):
            hook = builders.tagger()
        history = builders.fit_rows(builders.small_model(), 32, hook)

        assert len(history.history["loss"]) == 1

    def test_unknown_backend_warns_once_and_records_no_input_wait(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(keras.backend, "backend", lambda: "openvino")
        sleeper = builders.SleepingCallback("on_epoch_end", seconds=0.02)
        model, hook = builders.small_model(), builders.tagger()

        with builders.one_warning("on openvino, .* are both 'other'"):
            builders.fit(model, builders.SlowBatches(0.01), hook, sleeper, steps=5)
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            builders.fit(model, builders.SlowBatches(0.01), hook, sleeper, steps=5)

        recorded = builders.phase_ns()
        assert (recorded["input_wait"], recorded["train_step"]) == (0, 0)
        assert recorded["callbacks"] >= sleeper.spent_ns
        assert recorded["other"] >= 2 * 8 * 10 * MS
        assert builders.marks(RingKind.STEP)[-1] == 20

    def test_two_taggers_count_each_step_once(self) -> None:
        model = builders.small_model()

        builders.fit(
            model,
            builders.SlowBatches(0.0),
            builders.tagger(),
            builders.tagger(),
            steps=2,
            epochs=60,
        )

        assert builders.recorded_steps() == 120
        assert not hasattr(model.train_function, "bare")

    def test_may_have_a_subclass_that_calls_its_base_by_name(self) -> None:
        class Subclass(trainer_hooks.PhaseTagger):
            def set_model(self, model: Any) -> None:
                self.was_called = True
                trainer_hooks.PhaseTagger.set_model(self, model)

        tagger = Subclass()

        assert "input_wait_ratio" in builders.fit_rows(builders.small_model(), 64, tagger).history
        assert tagger.was_called


def pickled(one: Any) -> Any:
    return pickle.loads(pickle.dumps(one))


@pytest.mark.parametrize("copied", [copy.copy, pickled])
class TestACopyOfATagger:
    """As tuners and workers make them."""

    def fit(self, *callbacks: Any, epochs: int = 1) -> Any:
        source = builders.SlowBatches(0.0)
        return builders.fit(
            builders.small_model(), source, *callbacks, steps=4, epochs=epochs
        ).history

    def test_is_a_new_tagger_of_the_same_run(self, copied: Any) -> None:
        class TaggerOfAnExperiment(trainer_hooks.PhaseTagger):
            def __init__(self, experiment: dict[str, Any], *, seed: int) -> None:
                super().__init__(run=f"{experiment['name']}-{seed}", logs=False)
                self.experiment, self.seed = experiment, seed

        TaggerOfAnExperiment.__qualname__ = "TaggerOfAnExperiment"
        globals()["TaggerOfAnExperiment"] = TaggerOfAnExperiment  # pickle looks it up
        original = TaggerOfAnExperiment({"name": "sweep"}, seed=3)

        one = copied(original)
        self.fit(original, builders.Does(lambda _: copied(original), "on_epoch_begin"), epochs=2)
        self.fit(one)

        assert type(one) is TaggerOfAnExperiment
        assert (one.experiment, one.seed) == ({"name": "sweep"}, 3)
        assert builders.recorded_steps() == 12
        assert builders.facts().run == "sweep-3"

    def test_adds_the_same_keys_to_the_logs(self, copied: Any) -> None:
        assert "input_wait_ratio" not in self.fit(copied(builders.tagger()))
        assert "input_wait_ratio" in self.fit(copied(builders.tagger(logs=True)))
