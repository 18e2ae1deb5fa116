"""``PhaseTagger`` on TensorFlow, against truth from below: sleeps that time themselves."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from statistics import mean, median, quantiles
from typing import TYPE_CHECKING, Any

import pytest

from gpumon.core.phase import TrainingMode, TrainingPhase
from gpumon.core.ring_events import RingKind

if TYPE_CHECKING:
    from tests.keras import builders_keras as b

pytestmark = pytest.mark.keras_tensorflow
MS = 1_000_000
STEPS = 16


@pytest.fixture(autouse=True)
def builders(framework: str) -> None:
    """Keras is imported only where it is there."""
    from tests.keras import builders_keras

    globals()["b"] = builders_keras


def synchronous(source: Any, batches: int = STEPS) -> Any:
    """A ``tf.data`` pipeline that works only while it is asked."""
    return pipeline(source, batches, prefetches=False)


def prefetched(source: Any, batches: int = STEPS) -> Any:
    return pipeline(source, batches, prefetches=True).prefetch(2)


def pipeline(source: Any, batches: int, *, prefetches: bool) -> Any:
    import tensorflow as tf

    spec = tf.TensorSpec((b.BATCH, b.FEATURES)), tf.TensorSpec((b.BATCH, 1))
    data = tf.data.Dataset.from_generator(lambda: iter(source), output_signature=spec)
    options = tf.data.Options()
    options.autotune.enabled = prefetches
    options.experimental_optimization.inject_prefetch = prefetches
    return data.take(batches).with_options(options)


def py_dataset(workers: int) -> Callable[[Any], Any]:
    """Makes a ``PyDataset`` as slow as a source."""

    def make(source: Any) -> Any:
        import keras

        class Batches(keras.utils.PyDataset):  # type: ignore[misc]
            _batch = next(iter(b.SlowBatches(0.0)))

            def __len__(self) -> int:
                return STEPS

            def __getitem__(self, index: int) -> Any:
                time.sleep(source.seconds)
                return self._batch

        return Batches(workers=workers)

    return make


def noting_compute(seconds: float) -> Any:
    """Sleeps inside the compiled step, and notes when it did."""

    class NotingCompute(b.SleepingCompute):
        def __init__(self) -> None:
            super().__init__(seconds)
            self.spans_ns: list[tuple[int, int]] = []

        def _sleep(self, values: Any) -> Any:
            began_ns = time.monotonic_ns()
            slept = super()._sleep(values)
            self.spans_ns.append((began_ns, time.monotonic_ns()))
            return slept

    return NotingCompute()


def facts_of_the_loader() -> dict[str, Any]:
    from trainer_hooks.ring.process_ring import process_ring

    writer = process_ring().writer
    assert writer is not None
    return writer.facts.loader


def waits_told_ns(mode: TrainingMode = TrainingMode.TRAIN) -> list[int]:
    """Length of each stretch of ``input_wait`` in a mode, in order."""
    entered = [event for event in b.records() if event.kind is RingKind.ENTER]
    return [
        after.at_ns - event.at_ns
        for event, after in pairwise(entered)
        if event.phase is TrainingPhase.INPUT_WAIT and event.value == mode
    ]


def gross_waits_told_ns() -> list[int]:
    """What each execution was told to have waited inside its step."""
    amounts = [event for event in b.records() if event.kind is RingKind.AMOUNT]
    return [event.value for event in amounts if event.phase is TrainingPhase.INPUT_WAIT]


def in_a_quiet_moment(lengths_ns: list[int]) -> float:
    """Their lower quartile: a machine that does other things as well only ever adds."""
    return quantiles(lengths_ns, n=4)[0]


def usually_told_and_true_ns(
    train: Callable[[Any, Any], object], told_ns: Callable[[], list[int]]
) -> tuple[float, float]:
    """By how much longer a source that sleeps is usually told to be waited for, and by how much
    longer it usually took, by its own notes.

    What loading and compiling cost is left out, and so is what TensorFlow adds to any batch: the
    first training only compiles, the second one is on a source that does not sleep.

    Args:
        train: Is handed a source and a callback.
        told_ns: What is told of each fetch so far.
    """
    told: list[float] = []
    true: list[float] = []
    for pause_s in (0.0, 0.0, 0.05):
        source, hook = b.SlowBatches(pause_s), b.tagger()
        before = len(told_ns())
        train(source, hook)
        told.append(in_a_quiet_moment(told_ns()[before:]))
        true.append(in_a_quiet_moment([end - start for start, end in source.spans_ns]))
    return told[2] - told[1], true[2] - true[1]


def within_a_tenth(true_ns: float) -> Any:
    """... or within a millisecond."""
    return pytest.approx(true_ns, rel=0.10, abs=MS)


class TestTheWaitForInput:
    def gaps_and_waits_ns(self, source: Any, seconds: float) -> tuple[list[int], list[int]]:
        """From a batch's callbacks to its compute, and what was told of the fetch between."""
        import keras

        class Notes(keras.callbacks.Callback):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.begun_ns: list[int] = []

            def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
                self.begun_ns.append(time.monotonic_ns())

        compute = noting_compute(0.005)
        model, hook, notes = b.small_model(compute), b.tagger(), Notes()
        model.fit(source(b.SlowBatches(0.0)), verbose=0, steps_per_epoch=STEPS)
        compute.spans_ns.clear()
        before = len(waits_told_ns())

        data = source(b.SlowBatches(seconds))
        model.fit(data, verbose=0, steps_per_epoch=STEPS, callbacks=[notes, hook])

        gaps_ns = [
            computes[0] - begun_ns
            for begun_ns, computes in zip(notes.begun_ns, compute.spans_ns, strict=True)
        ]
        return gaps_ns[1:], waits_told_ns()[before + 1 :]

    @pytest.mark.parametrize(
        ("source", "seconds"),
        [
            (synchronous, 0.05),
            (prefetched, 0.05),
            (iter, 0.05),
            (py_dataset(workers=0), 0.05),
            (py_dataset(workers=1), 0.05),
            (py_dataset(workers=2), 0.12),
        ],
        ids=["synchronous", "prefetched", "generator", "workers=0", "workers=1", "workers=2"],
    )
    def test_is_what_the_compute_had_to_wait(self, source: Any, seconds: float) -> None:
        fast_gaps_ns, fast_waits_ns = self.gaps_and_waits_ns(source, 0.0)
        gaps_ns, waits_ns = self.gaps_and_waits_ns(source, seconds)

        rest_ns = median(gap - wait for gap, wait in zip(fast_gaps_ns, fast_waits_ns, strict=True))
        true_ns = [gap - rest_ns for gap in gaps_ns]
        errors_ns = [wait - true for wait, true in zip(waits_ns, true_ns, strict=True)]
        assert mean(true_ns) > 10 * MS
        assert abs(median(errors_ns)) < max(MS, mean(true_ns) / 10)

    @pytest.mark.parametrize(
        "compiled",
        [{"jit_compile": False}, {"run_eagerly": True}],
        ids=["compiled", "eager"],
    )
    def test_is_as_long_as_a_source_sleeps_that_works_only_while_asked(
        self, compiled: dict[str, Any]
    ) -> None:
        model = b.small_model(**compiled)

        told_ns, true_ns = usually_told_and_true_ns(
            lambda source, hook: model.fit(synchronous(source), verbose=0, callbacks=[hook]),
            waits_told_ns,
        )

        assert true_ns > 40 * MS
        assert told_ns == within_a_tenth(true_ns)

    def test_is_told_with_several_steps_per_execution_where_nothing_is_compiled(self) -> None:
        model = b.small_model(steps_per_execution=4, run_eagerly=True)

        told_ns, true_ns = usually_told_and_true_ns(
            lambda source, hook: model.fit(synchronous(source), verbose=0, callbacks=[hook]),
            waits_told_ns,
        )

        assert told_ns == within_a_tenth(true_ns)
        assert "input_wait" not in facts_of_the_loader()

    def test_is_told_gross_with_several_steps_per_execution(self) -> None:
        model = b.small_model(b.SleepingCompute(0.005), steps_per_execution=4)

        told_ns, true_ns = usually_told_and_true_ns(
            lambda source, hook: model.fit(synchronous(source), verbose=0, callbacks=[hook]),
            gross_waits_told_ns,
        )

        assert true_ns > 40 * MS
        assert told_ns / 4 == within_a_tenth(true_ns)
        assert facts_of_the_loader()["input_wait"] == "gross"

    @pytest.mark.parametrize("eagerly", [False, True], ids=["compiled", "eager"])
    def test_counts_the_batches_of_an_execution_that_ends_early(self, eagerly: bool) -> None:
        model = b.small_model(steps_per_execution=4, run_eagerly=eagerly)

        model.fit(
            synchronous(b.SlowBatches(0.003), 18), epochs=2, verbose=0, callbacks=[b.tagger()]
        )

        assert [e.value for e in b.records() if e.kind is RingKind.STEP][-1] == 36
        assert [e.value for e in b.records() if e.kind is RingKind.SAMPLES][-1] == 36 * b.BATCH

    def test_beside_the_compute_is_told_inside_the_step_and_as_no_phase(self) -> None:
        model = b.small_model(b.SleepingCompute(0.005), steps_per_execution=4)

        model.fit(synchronous(b.SlowBatches(0.02)), verbose=0, callbacks=[b.tagger()])

        amounts = [e for e in b.records() if e.kind is RingKind.AMOUNT]
        assert {e.phase for e in amounts} == {TrainingPhase.INPUT_WAIT}
        assert len(amounts) == STEPS // 4
        assert sum(waits_told_ns()) < 5 * MS

    def test_is_short_where_batches_are_ready(self) -> None:
        model = b.small_model(b.SleepingCompute(0.005))

        model.fit(*b.rows_and_sums(480), batch_size=16, verbose=0, callbacks=[b.tagger()])

        assert b.phase_ns()["input_wait"] / 30 < 2 * MS


class TestOtherPhases:
    @pytest.mark.parametrize("steps_per_execution", [1, 4])
    def test_sum_to_the_time_of_the_training(self, steps_per_execution: int) -> None:
        model, edges = b.small_model(steps_per_execution=steps_per_execution), b.Edges()
        hook = b.tagger()

        model.fit(
            synchronous(b.SlowBatches(0.005)),
            validation_data=b.rows_and_sums(48),
            epochs=2,
            verbose=0,
            callbacks=[hook, edges],
        )

        assert edges.tagged_ns / edges.wall_ns == pytest.approx(1.0, abs=0.01)
        assert b.phase_ns()["other"] < 0.01 * edges.wall_ns

    def test_the_step_holds_the_compute_and_the_wait_none_of_it(self) -> None:
        compute = noting_compute(0.02)
        model = b.small_model(compute)
        b.fit(model, b.SlowBatches(0.0), steps=2, epochs=1)
        compute.spans_ns.clear()

        b.fit(model, b.SlowBatches(0.001), b.tagger(), steps=15, epochs=1)

        told, true_ns = b.phase_ns(), sum(end - start for start, end in compute.spans_ns)
        assert told["train_step"] + told["device_sync"] >= true_ns
        assert in_a_quiet_moment(waits_told_ns()) < 10 * MS

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
    def test_tell_the_wait_inside_fit(self) -> None:
        model = b.small_model(b.SleepingCompute(0.005))
        rows, sums = b.rows_and_sums(32)

        told_ns, true_ns = usually_told_and_true_ns(
            lambda source, hook: model.fit(
                rows, sums, verbose=0, validation_data=synchronous(source, 8), callbacks=[hook]
            ),
            lambda: waits_told_ns(TrainingMode.VALIDATION),
        )

        assert true_ns > 40 * MS
        assert told_ns == within_a_tenth(true_ns)
        assert b.phase_ns()["validation"] >= 3 * 8 * 5 * MS
        assert b.present_phase() is TrainingPhase.OTHER

    @pytest.mark.parametrize(
        ("call", "mode"),
        [("evaluate", TrainingMode.VALIDATION), ("predict", TrainingMode.PREDICT)],
    )
    def test_tell_it_alone(self, call: str, mode: TrainingMode) -> None:
        model = b.small_model(b.SleepingCompute(0.01))

        told_ns, true_ns = usually_told_and_true_ns(
            lambda source, hook: getattr(model, call)(
                synchronous(source, 8), verbose=0, callbacks=[hook]
            ),
            lambda: waits_told_ns(mode),
        )

        assert true_ns > 40 * MS
        assert told_ns == within_a_tenth(true_ns)
        assert b.phase_ns()["validation" if call == "evaluate" else "predict"] >= 3 * 8 * 10 * MS
        assert b.present_phase() is TrainingPhase.OTHER

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

    def test_the_device_is_done_with_a_step_after_its_compute(self) -> None:
        compute = noting_compute(0.01)
        model = b.small_model(compute)
        b.fit(model, b.SlowBatches(0.0), steps=2, epochs=1)
        compute.spans_ns.clear()

        b.fit(model, b.SlowBatches(0.0), b.tagger(), steps=8, epochs=1)

        done = [e.at_ns for e in b.records() if e.kind is RingKind.DEVICE_DONE]
        assert len(done) == 8
        assert all(
            end <= at <= end + 100 * MS for (_, end), at in zip(compute.spans_ns, done, strict=True)
        )
