"""What callbacks train and evaluate themselves, inside a tagged ``fit``, is no part of that fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpumon.core.phase import TrainingMode, TrainingPhase
from gpumon.core.ring_format.events import RingKind
from tests.keras.later import builders, keras

STEPS, EPOCHS = 6, 3
CALLBACKS = (TrainingPhase.CALLBACKS, TrainingMode.TRAIN)
WAIT = (TrainingPhase.INPUT_WAIT, TrainingMode.TRAIN)
WHILE_TRAINING = (
    "on_train_begin",
    "on_epoch_begin",
    "on_train_batch_begin",
    "on_train_batch_end",
    "on_epoch_end",
)


def cell(backend: str, steps_per_execution: int, *, eagerly: bool = False) -> Any:
    settings = {"steps_per_execution": steps_per_execution, "run_eagerly": eagerly}
    return pytest.param(settings, marks=getattr(pytest.mark, f"keras_{backend}"))


def trained_aside(**compiled: Any) -> Any:
    """The callback, after a fit in which it trained at every opportunity."""
    batch = builders.rows_and_sums(5)
    aside = builders.Does(lambda own: own.model.train_on_batch(*batch), *WHILE_TRAINING)
    model = builders.small_model(builders.SleepingCompute(0.01), **compiled)
    # Before its own, a tagger tags nothing.
    builders.fit_rows(model, STEPS * builders.BATCH, builders.tagger(), aside, epochs=EPOCHS)
    return aside


@pytest.mark.parametrize(
    "compiled",
    [
        cell("jax", 1),
        cell("torch", 1),
        cell("tensorflow", 1),
        cell("tensorflow", 3),
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
        assert builders.marks(RingKind.STEP)[-1] == steps
        assert builders.marks(RingKind.SAMPLES)[-1] == steps * builders.BATCH
        if builders.backend() == "tensorflow":
            each = 1 if compiled["run_eagerly"] else each  # what is compiled is done all at once
            assert builders.marks(RingKind.DEVICE_DONE) == list(range(each, steps + 1, each))

    def test_is_callbacks_from_its_beginning_to_its_end(self, aside: Any) -> None:
        assert builders.phases_within(aside.spans_ns) == {CALLBACKS}


def fits_with_the_tagger(tagger: Any, other: Any) -> Callable[[Any], object]:
    return lambda _: builders.fit(other, builders.SlowBatches(0.0), tagger, steps=4, epochs=1)


def evaluates_with_the_tagger(tagger: Any, other: Any) -> Callable[[Any], object]:
    return lambda _: other.evaluate(*builders.rows_and_sums(32), verbose=0, callbacks=[tagger])


def fits_the_same_model(tagger: Any, other: Any) -> Callable[[Any], object]:
    return lambda own: builders.fit_rows(own.model, 64) if own.times < 2 else None


@pytest.mark.usefixtures("each_backend")
class TestARunInsideAFit:
    @pytest.mark.parametrize(
        ("acts", "method"),
        [
            (fits_with_the_tagger, "on_epoch_end"),
            (evaluates_with_the_tagger, "on_epoch_end"),
            (fits_the_same_model, "on_epoch_end"),
            (fits_the_same_model, "on_train_batch_end"),
        ],
    )
    def test_is_callbacks_and_the_outer_one_stays_tagged(self, acts: Any, method: str) -> None:
        tagger, source, model = (
            builders.tagger(),
            builders.SlowBatches(0.005),
            builders.small_model(),
        )
        aside = builders.Does(acts(tagger, builders.small_model()), method)

        data, steps = builders.fed_by(source, STEPS)
        callbacks = [tagger, aside]
        model.fit(data, steps_per_epoch=steps, epochs=EPOCHS, verbose=0, callbacks=callbacks)

        inside = 2 * 4 if acts is fits_the_same_model else 0
        assert int(model.optimizer.iterations) >= EPOCHS * STEPS + inside
        assert builders.marks(RingKind.STEP)[-1] == EPOCHS * STEPS
        assert builders.phases_within(aside.spans_ns) == {CALLBACKS}
        assert builders.phases_within(source.spans_ns) == {WAIT}


@pytest.mark.usefixtures("each_backend")
class TestAValidationThatRaised:
    def test_caught_error_leaves_the_training_tagged(self) -> None:
        class Catches(keras.Sequential):  # type: ignore[misc]
            def evaluate(self, *args: Any, **named: Any) -> Any:
                try:
                    return super().evaluate(*args, **named)
                except Exception:  # noqa: BLE001
                    return {}

        def failing() -> Any:
            for _ in range(2):
                yield builders.rows_and_sums(16)
            raise OSError("the file server is gone")

        model = builders.small_model(kind=Catches)
        validated = {"validation_data": failing(), "validation_steps": 10}
        builders.fit_rows(
            model, STEPS * builders.BATCH, builders.tagger(), epochs=EPOCHS, **validated
        )

        assert builders.marks(RingKind.STEP)[-1] == EPOCHS * STEPS
        entered = builders.phases_in(TrainingMode.TRAIN)
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
        holder = a_composite_of(builders.tagger())

        builders.fit(
            builders.small_model(), builders.SlowBatches(0.0), holder, steps=STEPS, epochs=EPOCHS
        )

        assert builders.marks(RingKind.STEP)[-1] == EPOCHS * STEPS

    @pytest.mark.versions
    def test_has_them_counted_where_a_user_puts_another_list_there(self) -> None:
        def replace(own: Any) -> None:
            listed.callbacks = [tagger, own]

        tagger, model = builders.tagger(), builders.small_model()
        callbacks = [tagger, builders.Does(replace, "on_train_begin")]
        listed = keras.callbacks.CallbackList(
            callbacks, add_history=True, model=model, steps=STEPS, epochs=EPOCHS
        )

        builders.fit_rows(model, STEPS * builders.BATCH, epochs=EPOCHS, callbacks=listed)

        assert builders.marks(RingKind.STEP)[-1] == EPOCHS * STEPS
