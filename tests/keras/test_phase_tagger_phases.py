"""``PhaseTagger`` against truth from below the hooks: sleeps that time themselves.

What TensorFlow measures in another way stands in files of its own; whole trainings that something
holds up stand in ``tests/truth``.
"""

from __future__ import annotations

import sys

import pytest

from gpumon.core.phase import TrainingMode, TrainingPhase
from gpumon.core.ring_format.events import RingKind
from tests.keras.later import b, keras

MS = 1_000_000

both_ways = pytest.mark.parametrize("ordinary", [False, True], ids=["asynchronous", "synchronous"])
"""Keras calls callbacks on other threads where all of them allow it."""


@pytest.mark.measured
@pytest.mark.usefixtures("jax_and_torch")
class TestTheWaitForInput:
    @pytest.mark.versions
    @both_ways
    def test_is_as_long_as_the_source_reports(self, ordinary: bool) -> None:
        model, source = b.warmed_model(b.SleepingCompute(0.005)), b.SlowBatches(0.02)
        edges = b.Edges()

        b.fit(model, source, b.tagger(), edges, *b.others(ordinary))

        true_ns = source.spent_ns(edges)
        assert true_ns > 28 * 20 * MS
        # Within 10 % of the truth, or 1 ms a step.
        assert b.phase_ns()["input_wait"] == pytest.approx(true_ns, rel=0.10, abs=30 * MS)


@pytest.mark.measured
class TestTheStep:
    @pytest.mark.parametrize(
        ("ordinary", "overhead_ns"),
        [  # JAX computes beside a training that does not wait for its steps
            pytest.param(True, 5 * MS, marks=pytest.mark.keras_jax),
            pytest.param(True, 20 * MS, marks=pytest.mark.keras_torch),
            pytest.param(False, 20 * MS, marks=pytest.mark.keras_torch),
        ],
    )
    def test_has_the_compute_and_no_wait(self, ordinary: bool, overhead_ns: int) -> None:
        compute, source = b.SleepingCompute(0.02), b.SlowBatches(0.001)
        model, edges = b.warmed_model(compute), b.Edges()

        b.fit(model, source, b.tagger(), edges, *b.others(ordinary))

        recorded_ns = b.phase_ns()["train_step"] + b.phase_ns()["device_sync"]
        true_ns = sum(b.lengths_ns(compute.spans_ns))
        assert true_ns <= recorded_ns <= true_ns + 30 * overhead_ns
        assert recorded_ns <= edges.wall_ns - source.spent_ns(edges) + 30 * MS


@pytest.mark.measured
@pytest.mark.usefixtures("each_backend")
class TestBatchesThatAreReady:
    def test_are_hardly_waited_for(self) -> None:
        b.fit_rows(b.warmed_model(b.SleepingCompute(0.005)), 480, b.tagger())

        assert b.phase_ns()["input_wait"] / 30 < 5 * MS / 3


@pytest.mark.measured
@pytest.mark.usefixtures("jax_and_torch")
class TestOtherPhases:
    @both_ways
    def test_sum_to_the_time_of_the_training(self, ordinary: bool) -> None:
        edges = b.Edges()

        b.fit(b.small_model(), b.SlowBatches(0.005), b.tagger(), edges, *b.others(ordinary))

        assert edges.tagged_ns / edges.wall_ns == pytest.approx(1.0, abs=0.01)
        assert b.phase_ns()["other"] == 0

    @pytest.mark.parametrize(
        "method", ["on_epoch_begin", "on_epoch_end", "on_train_batch_begin", "on_train_batch_end"]
    )
    def test_callbacks_are_as_long_as_they_sleep(self, method: str) -> None:
        model, sleeper = b.warmed_model(), b.SleepingCallback(method, seconds=0.02)

        b.fit(model, b.SlowBatches(0.0), b.tagger(), sleeper, steps=5, epochs=3)

        assert b.phase_ns()["callbacks"] == pytest.approx(sleeper.spent_ns, rel=0.10, abs=15 * MS)

    def test_a_callback_on_another_thread_is_no_phase_and_takes_no_time(self) -> None:
        if not hasattr(keras.callbacks.CallbackList, "_async_dispatch"):
            pytest.skip("this Keras calls all callbacks on the thread that trains")
        sleeper = b.SleepingCallback("on_train_batch_end", seconds=0.004, async_safe=True)

        b.fit(b.warmed_model(), b.SlowBatches(0.006), b.tagger(), sleeper)

        assert sleeper.spent_ns > 30 * 4 * MS
        assert b.phase_ns()["callbacks"] < sleeper.spent_ns / 2
        assert b.facts().callback_ns.get("SleepingCallback", 0) < sleeper.spent_ns / 4

    @pytest.mark.versions
    @both_ways
    def test_validation_is_recorded_and_its_wait_for_input_within_it(self, ordinary: bool) -> None:
        model, edges = b.warmed_model(b.SleepingCompute(0.005)), b.Edges()
        source = b.SlowBatches(0.02)

        validated = {"validation_data": iter(source), "validation_steps": 5}
        callbacks = [b.tagger(), edges, *b.others(ordinary)]
        b.fit_rows(model, 48, *callbacks, epochs=2, **validated)

        phases = b.phases_in(TrainingMode.VALIDATION)
        assert phases.count(TrainingPhase.INPUT_WAIT) >= 2 * 5
        assert set(phases) == {TrainingPhase.INPUT_WAIT, TrainingPhase.VALIDATION}
        assert b.phase_ns()["validation"] >= 2 * 5 * 5 * MS
        true_ns = source.spent_in_validation_ns(edges)
        assert true_ns > 4 * 20 * MS
        # Of sixteen batches six are the training's, and each validation makes its loader anew.
        each_ns = MS if keras.backend.backend() == "jax" else 2 * MS
        assert b.phase_ns()["input_wait"] == pytest.approx(true_ns, rel=0.10, abs=16 * each_ns)

    def test_evaluate_and_predict_alone_are_recorded(self) -> None:
        model, hook = b.small_model(b.SleepingCompute(0.01)), b.tagger()
        rows, sums = b.rows_and_sums(64)

        model.evaluate(rows, sums, verbose=0, callbacks=[hook])
        evaluated = b.phase_ns()
        model.predict(rows, verbose=0, callbacks=[hook])

        assert evaluated["validation"] >= 2 * 10 * MS
        assert b.phase_ns()["predict"] >= 2 * 10 * MS
        assert b.present_phase() is TrainingPhase.OTHER
        assert TrainingPhase.INPUT_WAIT in b.phases_in(TrainingMode.PREDICT)


class TestMarks:
    @pytest.mark.versions
    @pytest.mark.usefixtures("each_backend")
    @both_ways
    def test_steps_samples_and_epochs_are_counted(self, ordinary: bool) -> None:
        b.fit_rows(b.small_model(), 60, b.tagger(), *b.others(ordinary), epochs=3)

        assert b.marks(RingKind.STEP) == list(range(1, 13))
        assert b.marks(RingKind.SAMPLES)[-1] == 3 * 60
        assert b.marks(RingKind.EPOCH) == [0, 1, 2]

    @pytest.mark.measured
    @pytest.mark.usefixtures("each_backend")
    @both_ways
    def test_the_device_is_done_with_a_step_after_its_compute(self, ordinary: bool) -> None:
        compute = b.SleepingCompute(0.02)
        model = b.warmed_model(compute)
        b.fit(model, b.SlowBatches(0.0), steps=2, epochs=1)  # the rest that there is to compile
        compute.spans_ns.clear()

        b.fit(model, b.SlowBatches(0.0), b.tagger(), *b.others(ordinary), steps=10, epochs=1)

        done_ns = {e.value: e.at_ns for e in b.records() if e.kind is RingKind.DEVICE_DONE}
        assert len(done_ns) >= 8
        for step, at_ns in done_ns.items():
            _, end_ns = compute.spans_ns[step - 1]
            assert end_ns <= at_ns
            assert at_ns <= end_ns + 100 * MS or step == 10


@pytest.mark.usefixtures("each_backend")
class TestTheFacts:
    @pytest.mark.versions
    def test_say_what_trains_on_which_data(self) -> None:
        b.fit_rows(b.small_model(), 64, b.tagger(run="resnet", gpus=[1]), batch_size=8)
        facts, loader = b.facts(), b.facts().loader
        held_out = b.SlowSequence(3, seconds=0.0, workers=1)
        words = {"steps_per_epoch": 1, "verbose": 0, "callbacks": [b.tagger()]}
        b.small_model().fit(iter(b.SlowBatches(0.0)), validation_data=held_out, **words)
        line = sys._getframe().f_lineno - 1

        assert (facts.run, facts.gpus) == ("resnet", ("1",))
        assert facts.framework == f"keras/{keras.backend.backend()}"
        assert (loader["kind"], loader["adapter"]) == ("arrays", "ArrayDataAdapter")
        assert loader["batch_size"] == 8
        assert b.facts().loader["kind"] == "generator"
        assert "batch_size" not in b.facts().loader
        recorded = b.facts().loader
        named = ("class", "made_at", "validation_kind", "validation_class", "validation_workers")
        assert [recorded[name] for name in named] == [
            "SlowBatches.__iter__",
            f"test_phase_tagger_phases.py:{line}",
            "PyDataset",
            "SlowSequence",
            1,
        ]
        assert str(recorded["defined_at"]).startswith("builders_keras.py:")
        assert recorded["validation_made_at"] == recorded["made_at"]
