"""What callbacks train and evaluate themselves, inside a tagged ``fit``, is no part of that fit."""

from __future__ import annotations

import time
from typing import Any

import pytest

from gpumon.core.ring.events import RingKind
from tests.keras.callback_methods import WHILE_TRAINING
from tests.keras.later import b

BACKENDS = ("tensorflow", "jax", "torch")
pytestmark = pytest.mark.parametrize(
    "backend",
    [pytest.param(name, marks=getattr(pytest.mark, f"keras_{name}")) for name in BACKENDS],
)
MS = 1_000_000
STEPS, EPOCHS, WAIT_S, ASIDE_S = 6, 3, 0.02, 0.15


def does(method: str, what: Any) -> Any:
    """A callback that does it in one of its methods, and notes when."""
    import keras

    class Does(keras.callbacks.Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.spans_ns: list[tuple[int, int]] = []

        @property
        def times(self) -> int:
            return len(self.spans_ns)

        def _do(self, *_: object, **__: object) -> None:
            began_ns = time.monotonic_ns()
            what(self.model)
            self.spans_ns.append((began_ns, time.monotonic_ns()))

    one = Does()
    setattr(one, method, one._do)
    return one


def begins_of_batches() -> Any:
    """A callback, the last in its list, that notes when Keras has called them all for a batch."""
    import keras

    class BeginsOfBatches(keras.callbacks.Callback):  # type: ignore[misc]
        async_safe = True

        def __init__(self) -> None:
            super().__init__()
            self.at_ns: list[int] = []

        def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
            self.at_ns.append(time.monotonic_ns())

    return BeginsOfBatches()


def told_and_waited_ns(source: Any, edges: Any, begins: Any, steps: Any) -> tuple[int, int]:
    """How long the training waited, as the tagger says, and as all others do.

    TensorFlow fetches ahead behind all that Keras does: it waits from where a batch is announced
    to where the step runs. The first step is traced there, too: it is left out on both sides.
    The others fetch when they wait.

    Args:
        source: Of the batches.
        edges: Of the training.
        begins: When batches were announced.
        steps: When each really ran.
    """
    import keras

    told_ns: int = b.phase_ns()["input_wait"]
    if keras.backend.backend() != "tensorflow":
        return told_ns, source.spent_ns(edges)
    starts_ns = (start_ns for start_ns, _ in steps.spans_ns)
    waits_ns = [to_ns - from_ns for from_ns, to_ns in zip(begins.at_ns, starts_ns, strict=True)]
    entered = [event for event in b.records() if event.kind is RingKind.ENTER]
    first = next(at for at, event in enumerate(entered) if event.phase == "input_wait")
    told_ns -= entered[first + 1].at_ns - entered[first].at_ns
    return told_ns, sum(waits_ns[1:])


def values_of(kind: RingKind) -> list[int]:
    return [event.value for event in b.records() if event.kind is kind]


class TestTrainingOnABatchInACallback:
    @pytest.mark.parametrize("method", WHILE_TRAINING)
    def test_is_no_step_and_no_sample_of_the_fit(self, backend: str, method: str) -> None:
        rows, sums = b.rows_and_sums(5)
        aside = does(method, lambda model: model.train_on_batch(rows, sums))
        model = b.small_model()

        b.fit(model, b.SlowBatches(0.0), b.tagger(), aside, steps=STEPS, epochs=EPOCHS)

        assert aside.times > 0
        assert int(model.optimizer.iterations) == EPOCHS * STEPS + aside.times
        assert values_of(RingKind.STEP)[-1] == EPOCHS * STEPS
        assert values_of(RingKind.SAMPLES)[-1] == EPOCHS * STEPS * b.BATCH


class TestAFitInsideAFit:
    @pytest.mark.measured
    def test_with_the_same_tagger_leaves_the_outer_one_tagged(self, backend: str) -> None:
        tagger, source, inner = b.tagger(), b.SlowBatches(WAIT_S), b.small_model()

        def train_another(_: Any) -> None:
            began_s = time.monotonic()
            b.fit(inner, b.SlowBatches(0.0), tagger, steps=4, epochs=1)
            time.sleep(max(0.0, ASIDE_S - (time.monotonic() - began_s)))

        aside, edges, steps = does("on_epoch_end", train_another), b.Edges(), b.Notes()

        begins = begins_of_batches()
        callbacks = (tagger, edges, aside, begins)

        b.fit(b.measured_model(steps), source, *callbacks, steps=STEPS, epochs=EPOCHS)

        assert aside.times == EPOCHS
        assert int(inner.optimizer.iterations) == 4 * EPOCHS
        assert values_of(RingKind.STEP)[-1] == EPOCHS * STEPS
        told_ns, waited_ns = told_and_waited_ns(source, edges, begins, steps)
        late_ns = EPOCHS * STEPS * (MS + source.late_ns)
        assert told_ns == pytest.approx(waited_ns, rel=0.1, abs=late_ns)
        assert b.phase_ns()["callbacks"] >= EPOCHS * ASIDE_S * 1e9

    @pytest.mark.measured
    def test_and_an_evaluation_with_it_do_too(self, backend: str) -> None:
        tagger, source, other = b.tagger(), b.SlowBatches(WAIT_S), b.small_model()
        rows, sums = b.rows_and_sums(32)
        aside = does(
            "on_epoch_end", lambda _: other.evaluate(rows, sums, verbose=0, callbacks=[tagger])
        )
        edges, steps = b.Edges(), b.Notes()

        begins = begins_of_batches()
        callbacks = (tagger, edges, aside, begins)

        b.fit(b.measured_model(steps), source, *callbacks, steps=STEPS, epochs=EPOCHS)

        assert aside.times == EPOCHS
        assert values_of(RingKind.STEP)[-1] == EPOCHS * STEPS
        told_ns, waited_ns = told_and_waited_ns(source, edges, begins, steps)
        late_ns = EPOCHS * STEPS * (MS + source.late_ns)
        assert told_ns == pytest.approx(waited_ns, rel=0.1, abs=late_ns)

    def test_that_raised_lets_the_next_one_be_tagged(self, backend: str) -> None:
        tagger, model = b.tagger(), b.small_model()

        def fail(_: Any) -> None:
            raise ValueError("of a callback")

        with pytest.raises(ValueError, match="of a callback") as kept:
            b.fit(model, b.SlowBatches(0.0), tagger, does("on_epoch_end", fail), steps=STEPS)
        b.fit(model, b.SlowBatches(0.0), tagger, steps=STEPS, epochs=1)

        assert kept.traceback  # whoever keeps it keeps the frames of the first one alive
        assert values_of(RingKind.STEP)[-1] == 2 * STEPS


class TestAFitOfTheSameModelWithoutTheTagger:
    @pytest.mark.parametrize("method", ["on_epoch_end", "on_train_batch_end"])
    def test_is_no_step_of_the_outer_one(self, backend: str, method: str) -> None:
        rows, sums = b.rows_and_sums(64)
        left = [2]

        def train_aside(model: Any) -> None:
            if left[0] > 0:
                left[0] -= 1
                model.fit(rows, sums, batch_size=16, epochs=1, verbose=0)

        aside = does(method, train_aside)

        b.fit(b.small_model(), b.SlowBatches(0.0), b.tagger(), aside, steps=STEPS, epochs=EPOCHS)

        assert left == [0]
        assert values_of(RingKind.STEP)[-1] == EPOCHS * STEPS


class TestAValidationThatRaised:
    def test_and_was_caught_leaves_the_training_tagged(self, backend: str) -> None:
        import keras

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

        model = Catches([keras.layers.Input((b.FEATURES,)), keras.layers.Dense(1)])
        model.compile(optimizer="adam", loss="mse")
        model.fit(
            iter(b.SlowBatches(0.0)), steps_per_epoch=STEPS, epochs=EPOCHS, verbose=0,
            callbacks=[b.tagger()], validation_data=failing(), validation_steps=10,
        )  # fmt: skip

        steps = [e for e in b.records() if e.phase.value == "train_step" and e.value == 0]
        entered = [e for e in steps if e.kind is RingKind.ENTER]
        assert values_of(RingKind.STEP)[-1] == EPOCHS * STEPS
        assert len(entered) >= EPOCHS * STEPS


def a_composite_of(one: Any) -> Any:
    """A callback that holds another, and passes on to it what it needs itself."""
    import keras

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


class TestAListThatDoesNotPassEverythingOn:
    def test_has_its_steps_counted_where_a_callback_holds_the_tagger(self, backend: str) -> None:
        b.fit(
            b.small_model(),
            b.SlowBatches(0.0),
            a_composite_of(b.tagger()),
            steps=STEPS,
            epochs=EPOCHS,
        )

        assert values_of(RingKind.STEP)[-1] == EPOCHS * STEPS

    @pytest.mark.oldest_keras
    def test_has_them_counted_where_somebody_puts_another_list_there(self, backend: str) -> None:
        import keras

        class Replaces(keras.callbacks.Callback):  # type: ignore[misc]
            def on_train_begin(self, logs: object = None) -> None:
                listed.callbacks = [tagger, self]

        tagger, model = b.tagger(), b.small_model()
        listed = keras.callbacks.CallbackList(
            [tagger, Replaces()], add_history=True, model=model, verbose=0, steps=STEPS,
            epochs=EPOCHS,
        )  # fmt: skip

        model.fit(
            iter(b.SlowBatches(0.0)), steps_per_epoch=STEPS, epochs=EPOCHS, verbose=0,
            callbacks=listed,
        )  # fmt: skip

        assert values_of(RingKind.STEP)[-1] == EPOCHS * STEPS
