"""What callbacks train and evaluate themselves, inside a tagged ``fit``, is no part of that fit."""

from __future__ import annotations

import time
from typing import Any

import pytest

from gpumon.core.phase import TrainingMode, TrainingPhase
from gpumon.core.ring_format.events import RingKind
from tests.keras.later import b, keras

MS = 1_000_000
STEPS, EPOCHS, WAIT_S, ASIDE_S = 6, 3, 0.02, 0.15
WHILE_TRAINING = (
    "on_train_begin",
    "on_epoch_begin",
    "on_train_batch_begin",
    "on_train_batch_end",
    "on_epoch_end",
)


def cell(backend: str, steps_per_execution: int, *, eagerly: bool = False) -> Any:
    words = {"steps_per_execution": steps_per_execution, "run_eagerly": eagerly}
    return pytest.param(words, marks=getattr(pytest.mark, f"keras_{backend}"))


def trained_aside(**compiled: Any) -> Any:
    """The callback, after one slow step and the other on batches that are ready."""
    batch = b.rows_and_sums(5)
    aside = b.Does(lambda own: own.model.train_on_batch(*batch), *WHILE_TRAINING)
    model = b.small_model(b.SleepingCompute(0.01), **compiled)
    # Before its own, a tagger tags nothing.
    b.fit_rows(model, STEPS * b.BATCH, b.tagger(), aside, epochs=EPOCHS)
    return aside


@pytest.mark.parametrize(
    "compiled",
    [
        cell("jax", 1),
        cell("torch", 1),
        cell("tensorflow", 1),
        cell("tensorflow", 3),
        cell("tensorflow", 1, eagerly=True),
        cell("tensorflow", 3, eagerly=True),
    ],
)
class TestTrainingOnABatchInACallback:
    @pytest.fixture
    def aside(self, trained_once: Any, compiled: dict[str, Any]) -> Any:
        return trained_once(trained_aside, **compiled)

    def test_is_no_step_and_no_sample_of_the_fit(
        self, aside: Any, compiled: dict[str, Any]
    ) -> None:
        each, steps = compiled["steps_per_execution"], EPOCHS * STEPS
        assert aside.times == 1 + 2 * EPOCHS + 2 * steps // each
        assert int(aside.model.optimizer.iterations) == steps + aside.times
        assert b.marks(RingKind.STEP)[-1] == steps
        assert b.marks(RingKind.SAMPLES)[-1] == steps * b.BATCH
        if keras.backend.backend() == "tensorflow":
            each = 1 if compiled["run_eagerly"] else each  # what is compiled is done all at once
            assert b.marks(RingKind.DEVICE_DONE) == list(range(each, steps + 1, each))

    @pytest.mark.measured
    def test_is_callbacks_from_its_beginning_to_its_end(self, aside: Any) -> None:
        callbacks = (TrainingPhase.CALLBACKS, TrainingMode.TRAIN)
        assert b.phases_within(aside.spans_ns) == {callbacks}
        assert b.phase_ns()["callbacks"] == pytest.approx(aside.spent_ns, rel=0.15)
        assert b.phase_ns()["input_wait"] < aside.spent_ns / 4


def told_and_waited_ns(source: Any, edges: Any, begins: Any, steps: Any) -> tuple[int, int]:
    """How long the training waited, as the tagger says, and as all others do.

    TensorFlow fetches ahead behind all that Keras does: it waits from where a batch is announced
    to where the step runs. The first step is traced there, too: it is left out on both sides.
    The others fetch when they wait.

    Args:
        source: Of the batches.
        edges: Of the training.
        begins: Which batches were announced when, to the last callback.
        steps: When each really ran.
    """
    recorded_ns: int = b.phase_ns()["input_wait"]
    if keras.backend.backend() != "tensorflow":
        return recorded_ns, source.spent_ns(edges)
    starts = zip(begins.spans_ns, steps.spans_ns, strict=True)
    waits_ns = [to_ns - from_ns for (_, from_ns), (to_ns, _) in starts]
    entered = [event for event in b.records() if event.kind is RingKind.ENTER]
    first = next(at for at, event in enumerate(entered) if event.phase == "input_wait")
    recorded_ns -= entered[first + 1].at_ns - entered[first].at_ns
    return recorded_ns, sum(waits_ns[1:])


@pytest.mark.usefixtures("each_backend")
class TestAFitInsideAFit:
    def assert_tagged_around(self, tagger: Any, act: Any) -> None:
        """A fit at the end of whose epochs another model does something with the same tagger."""
        aside, edges = b.Does(act, "on_epoch_end"), b.Edges()
        source, steps = b.SlowBatches(WAIT_S), b.Notes()
        begins = b.Does(lambda _: None, "on_train_batch_begin", async_safe=True)
        callbacks = (tagger, edges, aside, begins)

        b.fit(b.measured_model(steps), source, *callbacks, steps=STEPS, epochs=EPOCHS)

        assert aside.times == EPOCHS
        assert b.marks(RingKind.STEP)[-1] == EPOCHS * STEPS
        recorded_ns, waited_ns = told_and_waited_ns(source, edges, begins, steps)
        late_ns = EPOCHS * STEPS * (MS + source.late_ns)
        assert recorded_ns == pytest.approx(waited_ns, rel=0.1, abs=late_ns)

    @pytest.mark.measured
    def test_with_the_same_tagger_leaves_the_outer_one_tagged(self) -> None:
        tagger, inner = b.tagger(), b.small_model()

        def train_another(_: Any) -> None:
            began_s = time.monotonic()
            b.fit(inner, b.SlowBatches(0.0), tagger, steps=4, epochs=1)
            time.sleep(max(0.0, ASIDE_S - (time.monotonic() - began_s)))

        self.assert_tagged_around(tagger, train_another)

        assert int(inner.optimizer.iterations) == 4 * EPOCHS
        assert b.phase_ns()["callbacks"] >= EPOCHS * ASIDE_S * 1e9

    @pytest.mark.measured
    def test_and_an_evaluation_with_it_do_too(self) -> None:
        tagger, other = b.tagger(), b.small_model()
        rows, sums = b.rows_and_sums(32)

        self.assert_tagged_around(
            tagger, lambda _: other.evaluate(rows, sums, verbose=0, callbacks=[tagger])
        )

    @pytest.mark.parametrize("method", ["on_epoch_end", "on_train_batch_end"])
    def test_of_the_same_model_without_the_tagger_is_no_step_of_it(self, method: str) -> None:
        def train_aside(own: Any) -> None:
            if own.times < 2:
                b.fit_rows(own.model, 64)

        aside = b.Does(train_aside, method)

        b.fit(b.small_model(), b.SlowBatches(0.0), b.tagger(), aside, steps=STEPS, epochs=EPOCHS)

        assert int(aside.model.optimizer.iterations) == EPOCHS * STEPS + 2 * 4
        assert b.marks(RingKind.STEP)[-1] == EPOCHS * STEPS


@pytest.mark.usefixtures("each_backend")
class TestAValidationThatRaised:
    def test_and_was_caught_leaves_the_training_tagged(self) -> None:
        class Catches(keras.Sequential):  # type: ignore[misc]
            def evaluate(self, *args: Any, **named: Any) -> Any:
                try:
                    return super().evaluate(*args, **named)
                except Exception:  # noqa: BLE001
                    return {}

        def failing() -> Any:
            for _ in range(2):
                yield b.rows_and_sums(16)
            raise OSError("the file server is gone")

        model = b.small_model(kind=Catches)
        validated = {"validation_data": failing(), "validation_steps": 10}
        b.fit_rows(model, STEPS * b.BATCH, b.tagger(), epochs=EPOCHS, **validated)

        assert b.marks(RingKind.STEP)[-1] == EPOCHS * STEPS
        entered = b.phases_in(TrainingMode.TRAIN)
        assert entered.count(TrainingPhase.TRAIN_STEP) >= EPOCHS * STEPS


def a_composite_of(one: Any) -> Any:
    """A callback that holds another, and passes on to it what it needs itself."""

    class Composite(keras.callbacks.Callback):  # type: ignore[misc]
        callbacks: list[Any]

        def set_model(self, model: Any) -> None:
            super().set_model(model)
            one.set_model(model)

    made = Composite()
    made.callbacks = [one]
    for name in ("on_train_begin", "on_epoch_end", "on_train_end"):
        setattr(made, name, getattr(one, name))
    return made


@pytest.mark.usefixtures("each_backend")
class TestAListThatDoesNotPassEverythingOn:
    def test_has_its_steps_counted_where_a_callback_has_the_tagger(self) -> None:
        holder = a_composite_of(b.tagger())

        b.fit(b.small_model(), b.SlowBatches(0.0), holder, steps=STEPS, epochs=EPOCHS)

        assert b.marks(RingKind.STEP)[-1] == EPOCHS * STEPS

    @pytest.mark.versions
    def test_has_them_counted_where_a_user_puts_another_list_there(self) -> None:
        def replace(own: Any) -> None:
            listed.callbacks = [tagger, own]

        tagger, model = b.tagger(), b.small_model()
        callbacks = [tagger, b.Does(replace, "on_train_begin")]
        listed = keras.callbacks.CallbackList(
            callbacks, add_history=True, model=model, steps=STEPS, epochs=EPOCHS
        )

        b.fit_rows(model, STEPS * b.BATCH, epochs=EPOCHS, callbacks=listed)

        assert b.marks(RingKind.STEP)[-1] == EPOCHS * STEPS
