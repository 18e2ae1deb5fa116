"""``PhaseTagger`` where TensorFlow differs: prefetched data, several steps an execution, traces."""

from __future__ import annotations

import sys
import time
import types
from collections.abc import Iterator
from itertools import islice, pairwise
from statistics import mean, median
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from gpumon.core.phase import TrainingMode, TrainingPhase
from gpumon.core.ring_format.events import RingKind
from tests.keras.later import builders, keras, on_tensorflow, tf
from tests.keras.test_phase_tagger_harmless import data_of
from tests.waiting import lateness_ns, until

pytestmark = pytest.mark.keras_tensorflow
MS = 1_000_000
WAIT = (TrainingPhase.INPUT_WAIT, TrainingMode.TRAIN)
STEP = (TrainingPhase.TRAIN_STEP, TrainingMode.TRAIN)
VALIDATION = (TrainingPhase.VALIDATION, TrainingMode.VALIDATION)
CALLBACKS = (TrainingPhase.CALLBACKS, TrainingMode.TRAIN)


@pytest.fixture(autouse=True)
def compiles_afterwards(framework: str) -> Iterator[None]:
    yield
    tf.config.run_functions_eagerly(False)


@pytest.mark.measured
@pytest.mark.parametrize(("source", "seconds"), [("prefetched", 0.05), ("workers=2", 0.12)])
def test_the_wait_for_prefetched_data_is_what_the_compute_had_to_wait(
    source: str, seconds: float
) -> None:
    compute = builders.SleepingCompute(0.005)

    true_ns, errors_ns = on_tensorflow.true_waits_and_errors_ns(
        on_tensorflow.SOURCES[source], compute, seconds
    )

    late_ns = lateness_ns(compute.spans_ns, 0.005)  # everything is as late on a busy machine
    assert mean(true_ns) > 10 * MS
    assert abs(median(errors_ns)) < max(MS, mean(true_ns) / 10) + late_ns


@pytest.mark.parametrize("source", ["generator", "workers=0"])
def test_the_wait_for_data_without_workers_is_recorded_while_they_are_made(source: str) -> None:
    """Each batch is ready only once the run is recorded as waiting for it."""
    compute, recorded = builders.SleepingCompute(0.01), list[bool]()

    def batch(number: int) -> Any:
        if number:  # Keras reads the first one early
            recorded.append(until(lambda: builders.present_phase() is TrainingPhase.INPUT_WAIT))
        return builders.rows_and_sums(builders.BATCH)

    model = builders.warmed_model(compute)
    if source == "generator":
        data: Any = (batch(number) for number in range(6))
    else:
        methods = {"__len__": lambda _: 6, "__getitem__": lambda _, number: batch(number)}
        data = type("Made", (keras.utils.PyDataset,), methods)(workers=0)
    model.fit(data, shuffle=False, verbose=0, callbacks=[builders.tagger()])

    assert len(recorded) >= 5
    assert all(recorded)
    assert builders.marks(RingKind.STEP)[-1] == 6
    assert builders.phases_within(compute.spans_ns) == {STEP}
    assert len(on_tensorflow.recorded_waits_ns()) >= 6


class EndingSource:
    """Its length is unknown, and its end takes a while, too."""

    def __init__(self, batches: int) -> None:
        self._slow, self._batches = builders.SlowBatches(0.01), batches
        self.ends_ns: list[tuple[int, int]] = []

    @property
    def spans_ns(self) -> list[tuple[int, int]]:
        return self._slow.spans_ns

    def __iter__(self) -> Iterator[Any]:
        yield from islice(self._slow, self._batches)
        began_ns = time.monotonic_ns()
        time.sleep(0.1)
        self.ends_ns.append((began_ns, time.monotonic_ns()))

    def fit(self, model: Any, *callbacks: Any, **settings: Any) -> None:
        settings = {"epochs": 3, "verbose": 0, **settings}
        model.fit(
            on_tensorflow.dataset(lambda: iter(self)),
            callbacks=[*callbacks, builders.tagger()],
            **settings,
        )


class Execution(NamedTuple):
    """A time in ``train_step``, and the wait for input that is recorded inside it."""

    start_ns: int
    end_ns: int
    waited_ns: int
    has_steps: bool

    def inside(self, spans_ns: list[tuple[int, int]]) -> list[int]:
        return builders.lengths_ns(
            [span for span in spans_ns if self.start_ns < span[0] < self.end_ns]
        )


def executions() -> list[Execution]:
    events = builders.records()
    entered = [event for event in events if event.kind is RingKind.ENTER]
    found = []
    for begin, end in pairwise(entered):
        if (begin.phase, begin.value) == STEP and end.phase is not TrainingPhase.COMPILE:
            inside = [one for one in events if begin.at_ns < one.at_ns <= end.at_ns]
            waits = [one.value for one in inside if one.kind is RingKind.AMOUNT]
            has_steps = any(one.kind is RingKind.STEP for one in inside)
            found.append(Execution(begin.at_ns, end.at_ns, sum(waits), has_steps))
    return found


class SeveralSteps:
    """Three epochs of 16 batches, four an execution, with a validation each."""

    def __init__(self) -> None:
        self.compute, self.source = builders.SleepingCompute(0.01), EndingSource(16)
        self.sleeper = builders.SleepingCallback("on_epoch_end", seconds=0.02)
        model = builders.small_model(self.compute, steps_per_execution=4)
        rows, sums = builders.rows_and_sums(3 * builders.BATCH)
        validated = {"validation_data": (rows, sums), "validation_batch_size": builders.BATCH}
        self.source.fit(model, self.sleeper, **validated)
        spans_ns = self.compute.spans_ns
        self.validations_ns = [span for at, span in enumerate(spans_ns) if at % 19 >= 16]


class TestSeveralStepsAnExecution:
    """Their wait for input is *gross*: fetching may overlap with computing."""

    @pytest.fixture
    def trained(self, trained_once: Any) -> Any:
        return trained_once(SeveralSteps)

    def test_have_the_sleeps_of_their_source_recorded_as_a_wait_inside_the_step(
        self, trained: SeveralSteps
    ) -> None:
        found = [one for one in executions() if one.has_steps]
        assert len(found) == 3 * 4 - 1  # the first one is compiled
        for one in found:
            slept_ns = one.inside(trained.source.spans_ns)
            computed_ns = one.inside(trained.compute.spans_ns)
            assert len(slept_ns) == len(computed_ns)
            # No batch of the execution is fetched while its last one is computed.
            longest_ns = one.end_ns - one.start_ns - computed_ns[-1]
            assert sum(slept_ns) <= one.waited_ns + MS
            assert one.waited_ns <= longest_ns

    def test_have_the_wait_for_the_end_of_the_data_recorded_and_in_no_step(
        self, trained: SeveralSteps
    ) -> None:
        ends = [one for one in executions() if not one.has_steps]
        assert len(ends) == len(trained.source.ends_ns) == 3
        for one, slept_ns in zip(ends, builders.lengths_ns(trained.source.ends_ns), strict=True):
            assert one.waited_ns >= 0.99 * slept_ns

    def test_leave_callbacks_and_validations_out(self, trained: SeveralSteps) -> None:
        assert builders.phases_within(trained.sleeper.spans_ns) == {CALLBACKS}
        assert builders.phases_within(trained.validations_ns) == {VALIDATION}

    def test_are_counted(self, trained: SeveralSteps) -> None:
        assert builders.marks(RingKind.STEP)[-1] == 3 * 16
        assert builders.marks(RingKind.SAMPLES)[-1] == 3 * 16 * builders.BATCH
        assert builders.facts().loader["input_wait"] == "gross"
        amounts = [event for event in builders.records() if event.kind is RingKind.AMOUNT]
        assert {event.phase for event in amounts} == {TrainingPhase.INPUT_WAIT}


@pytest.mark.parametrize(
    ("steps_per_execution", "eagerly", "phase"),
    [(1, False, WAIT), (4, True, WAIT), (4, False, STEP)],
)
def test_the_end_of_the_data_is_waited_for_and_ends_an_execution_early(
    steps_per_execution: int, eagerly: bool, phase: Any
) -> None:
    source = EndingSource(6)
    model = builders.small_model(steps_per_execution=steps_per_execution, run_eagerly=eagerly)

    source.fit(model, epochs=2)

    assert len(source.ends_ns) == 2
    assert builders.phases_within(source.ends_ns) == {phase}
    assert builders.marks(RingKind.STEP)[-1] == 2 * 6
    assert builders.marks(RingKind.SAMPLES)[-1] == 2 * 6 * builders.BATCH


class TestTracing:
    @pytest.mark.parametrize("steps_per_execution", [1, 4])
    def test_is_compile_and_recorded_once(self, steps_per_execution: int) -> None:
        traced_ns: list[tuple[int, int]] = []

        class Tracing(builders.SleepingCompute):
            def call(self, rows: Any) -> Any:
                began_ns = time.monotonic_ns()
                time.sleep(0.1)  # runs while it is traced, and not in the graph
                traced_ns.append((began_ns, time.monotonic_ns()))
                return rows

        model = builders.small_model(Tracing(0.0), steps_per_execution=steps_per_execution)
        traced_ns.clear()  # Keras traced shapes to build the model
        builders.fit_rows(model, 64, builders.tagger())
        compile_ns = builders.phase_ns()["compile"]
        builders.fit_rows(model, 64, builders.tagger())

        assert builders.phases_within(traced_ns) == {(TrainingPhase.COMPILE, TrainingMode.TRAIN)}
        assert builders.phase_ns()["compile"] == compile_ns

    def test_unforeseen_tracing_is_compile_too(self) -> None:
        model, hook = builders.small_model(), builders.tagger()
        rows, sums = builders.rows_and_sums(64)
        model.fit(rows, sums, batch_size=64, verbose=0, callbacks=[hook])
        before_ns = builders.phase_ns()["compile"]

        model.fit(rows.astype("int32"), sums, batch_size=64, verbose=0, callbacks=[hook])

        amounts = [event for event in builders.records() if event.kind is RingKind.AMOUNT]
        assert [event.phase for event in amounts] == [TrainingPhase.COMPILE]
        assert builders.phase_ns()["compile"] - before_ns > 10 * MS

    def traces_of(self, model: Any) -> dict[str, int]:
        """How often the functions behind the train function were traced."""
        from trainer_hooks.taps.tensorflow.functions import form_of

        form: Any = form_of(model.train_function)
        return {
            name: function.experimental_get_tracing_count()
            for name, function in (("one step", form.one_step), ("fused", form.fused))
        }

    @pytest.mark.parametrize("kind", ["tf.data", "generator"])
    def test_is_done_as_often_as_keras_does_it_itself(self, kind: str) -> None:
        def traces(*callbacks: Any) -> dict[str, int]:
            model = builders.normalized_model()
            for _ in range(2 if callbacks else 1):
                model.fit(**data_of(kind), verbose=0, callbacks=list(callbacks))
            return self.traces_of(model)

        assert traces(builders.tagger()) == {"one step": traces()["one step"], "fused": 0}

    def test_is_repeated_once_where_it_was_done_without_timers(self) -> None:
        model, hook = builders.normalized_model(steps_per_execution=4), builders.tagger()
        builders.fit_rows(model, 60)
        bare = model.train_function

        for _ in range(2):
            builders.fit_rows(model, 60, hook)

        assert model.train_function is not bare
        assert self.traces_of(model)["fused"] == 1


@pytest.mark.versions
def test_a_train_step_of_ones_own_has_the_same_results() -> None:
    class Own(keras.Sequential):  # type: ignore[misc]
        def train_step(self, data: Any) -> dict[str, Any]:
            rows, sums = data
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self(rows) - sums) ** 2)
            variables = self.trainable_variables
            gradients = tape.gradient(loss, variables)
            self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
            return {"loss": loss}

    def outcome(*callbacks: Any) -> dict[str, Any]:
        return builders.left_by(builders.small_model(kind=Own), *callbacks, **data_of("arrays"))

    assert outcome(builders.tagger()) == outcome()


def test_a_model_of_several_steps_an_execution_can_be_trained_after_a_fit_that_raised() -> None:
    def broken() -> Any:
        yield from islice(builders.SlowBatches(0.0), 9)
        raise OSError("disk")

    def error_of(*callbacks: Any) -> type[BaseException]:
        with pytest.raises(Exception, match="disk") as raised:
            builders.fit(builders.normalized_model(steps_per_execution=4), broken(), *callbacks)
        return raised.type

    hook = builders.tagger()
    assert error_of(hook) is error_of()
    assert builders.present_phase() is TrainingPhase.OTHER

    model = builders.normalized_model(steps_per_execution=4)
    builders.fit(model, builders.SlowBatches(0.0), hook, steps=8, epochs=1)

    assert not hasattr(model.train_function, "bare")


class TestAnotherTensorflow:
    def without_its_iterators(self, monkeypatch: pytest.MonkeyPatch) -> None:
        name = "tensorflow.python.data.ops.iterator_ops"
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))

    def fetching_in_another_way(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from trainer_hooks.taps.tensorflow import fetches as tensorflow_fetches

        monkeypatch.setattr(tensorflow_fetches, "_METHODS", ("get_next",))

    @pytest.mark.parametrize("other", [without_its_iterators, fetching_in_another_way])
    def test_has_the_wait_in_its_steps_and_one_warning(
        self, other: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model, source = builders.small_model(steps_per_execution=4), EndingSource(8)
        other(self, monkeypatch)

        with builders.one_warning("cannot see the wait for input"):
            source.fit(model)

        phases = {phase for phase, _ in builders.phases_within(source.spans_ns)}
        assert phases <= {TrainingPhase.TRAIN_STEP, TrainingPhase.COMPILE}
        assert builders.marks(RingKind.STEP)[-1] == 24


class TestEagerExecution:
    @pytest.mark.parametrize("steps_per_execution", [1, 4])
    def test_may_be_switched_off_after_the_first_epoch(self, steps_per_execution: int) -> None:
        off = builders.Does(lambda _: tf.config.run_functions_eagerly(False), "on_epoch_end")
        model = builders.small_model(steps_per_execution=steps_per_execution)
        tf.config.run_functions_eagerly(True)

        builders.fit_rows(model, 8 * builders.BATCH, builders.tagger(), off, epochs=3)

        assert int(model.optimizer.iterations) == 3 * 8
        assert builders.marks(RingKind.STEP)[:1] == [1]
        assert builders.present_phase() is TrainingPhase.OTHER

    def test_gpu_has_an_exact_wait_only_before_each_execution(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A GPU may still compute when Python requests the next batch."""
        present = [SimpleNamespace(device_type=kind) for kind in ("CPU", "GPU")]
        monkeypatch.setattr(tf.config, "list_logical_devices", lambda *_: present)
        source = EndingSource(10)

        source.fit(builders.small_model(steps_per_execution=4, run_eagerly=True), epochs=2)

        firsts = [at for at in range(20) if at % 10 in (0, 4, 8)]
        beside = (TrainingPhase.INPUT_WAIT, TrainingMode.BESIDE_STEP)
        for at, span in enumerate(source.spans_ns):
            assert builders.phases_within([span]) == {WAIT if at in firsts else beside}
        assert builders.facts().loader["input_wait"] == "gross"
        assert builders.marks(RingKind.DEVICE_DONE) == [4, 8, 10, 14, 18, 20]
        assert builders.marks(RingKind.STEP)[-1] == 20

    def test_counts_the_steps_before_data_that_end_within_a_call(self) -> None:
        """A Keras that fetches batch by batch receives the end as an error, and passes it on."""
        from trainer_hooks.ring.guard import Guard
        from trainer_hooks.ring.phase_modes import TRAIN_MODE
        from trainer_hooks.taps.tensorflow.eager import EagerStep

        recorded: list[object] = []
        machine = SimpleNamespace(
            is_calling_back=False,
            fetch_begin=lambda: recorded.append("fetch"),
            fetch_outside_steps_begin=lambda: recorded.append("beside"),
            fetch_end=lambda: recorded.append("step"),
            fetch_exhausted=lambda: recorded.append("exhausted"),
            dispatched=lambda steps, samples: recorded.append((steps, samples)),
            device_done=lambda step, at_ns: None,
        )
        listener: Any = SimpleNamespace(
            machine_here=machine, guard=Guard(print), failed=lambda: recorded.append("failed")
        )
        step = EagerStep(
            lambda data: [next(data) for _ in range(4)], TRAIN_MODE, listener, batches=4
        )
        step._computes_at_once = False

        with pytest.raises(StopIteration):
            step(iter(tf.data.Dataset.from_tensor_slices(tf.zeros((16, 1))).batch(8)))

        beside = ["beside", "step"]  # the last one found nothing
        assert recorded == ["fetch", "step", *beside, *beside, (2, 16), "exhausted"]
