"""``PhaseTagger`` reports steps only where a batch was seen to pass."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

from gpumon.core.phase import TrainingMode, TrainingPhase
from tests.keras.later import builders, keras

pytestmark = pytest.mark.keras_jax
WAIT = (TrainingPhase.INPUT_WAIT, TrainingMode.TRAIN)
UNSEEN = "cannot see the steps of this run"


def puts_back(function: Any, method: str = "on_train_batch_begin") -> Any:
    """A user's callback that has a train function of its own."""

    def put(own: Any) -> None:
        own._model.train_function = function

    return builders.Does(put, method, async_safe=True)


def fit_before(model: Any) -> Any:
    """Train a little, so that there is a train function; which is returned."""
    builders.fit(model, builders.SlowBatches(0.0), steps=2, epochs=1)
    return model.train_function


def another_way() -> tuple[Any, Any]:
    """A model, and a callback that has its steps go around the tap."""
    model = builders.small_model()
    return model, puts_back(fit_before(model))


class TestARunThatGoesAroundTheTap:
    def test_is_unseen_with_one_warning_and_its_waits_and_steps_are_other(self) -> None:
        (model, other_way), source = another_way(), builders.SlowBatches(0.01)
        callbacks = [builders.tagger(logs=True), other_way, builders.an_ordinary_callback()]

        with builders.one_warning(UNSEEN):
            history = builders.fit(model, source, *callbacks, steps=10, epochs=2).history

        unseen = builders.phases_within(
            source.spans_ns[5:]
        )  # three batches after those that Keras peeks at
        assert unseen == {(TrainingPhase.OTHER, TrainingMode.TRAIN)}
        assert builders.phase_ns()["train_step"] == 0
        assert builders.recorded_steps() == 20
        assert set(history) == {"loss"}  # no ratio of an unseen wait

    @pytest.mark.versions
    def test_may_be_followed_by_one_that_is_seen(self) -> None:
        model, hook = builders.small_model(), builders.tagger()
        bare = fit_before(model)
        with pytest.warns(RuntimeWarning, match=UNSEEN):
            builders.fit(model, builders.SlowBatches(0.0), hook, puts_back(bare))

        source = builders.SlowBatches(0.01)
        builders.fit(model, source, hook, steps=10, epochs=1)

        assert builders.phases_within(source.spans_ns[2:]) == {WAIT}
        assert model.train_function is bare


class TestARunThatIsSeen:
    def test_is_so_with_a_train_function_that_a_callback_made_again(self) -> None:
        model, source = builders.small_model(), builders.SlowBatches(0.01)
        again = puts_back(fit_before(model), "on_epoch_begin")

        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            builders.fit(model, source, builders.tagger(), again, steps=8)

        assert builders.phases_within(source.spans_ns) == {WAIT}

    def test_needs_no_callbacks_of_batches_after_its_first(self) -> None:
        from trainer_hooks.keras import brackets

        calls: list[bool] = []
        default = keras.callbacks.Callback.on_train_batch_begin

        def look(_: Any) -> None:
            begins = [one.on_train_batch_begin for one in listed.callbacks]
            idle = (default, brackets._nothing)
            calls.append(any(getattr(one, "__func__", one) not in idle for one in begins))

        model = builders.small_model()
        callbacks = [builders.tagger(), builders.Does(look, "on_epoch_end")]
        listed = keras.callbacks.CallbackList(callbacks, add_history=True, model=model)

        builders.fit_rows(model, builders.BATCH, epochs=3, callbacks=listed)

        assert calls == [True, False, False]

    def test_is_not_warned_of_where_there_were_too_few_batches_to_record(self) -> None:
        model, other_way = another_way()

        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", RuntimeWarning)
            builders.fit(
                model, builders.SlowBatches(0.0), builders.tagger(), other_way, steps=3, epochs=1
            )

        assert [str(one.message) for one in warned if one.category is RuntimeWarning] == []


def cannot_import(*_: object) -> None:
    raise ImportError("no such framework")


def cannot_install(*_: object) -> None:
    raise AttributeError("another Keras")


class TestATapThatFails:
    @pytest.mark.parametrize(
        ("where", "fails"),
        [
            ("trainer_hooks.keras.probed_tap.make_tap", cannot_import),
            ("trainer_hooks.taps.jax.JaxTap.install", cannot_install),
            ("trainer_hooks.taps.jax.JaxTap.remove", cannot_install),
        ],
    )
    def test_leaves_the_training_and_one_warning(
        self, where: str, fails: Callable[..., None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def trained(*callbacks: Any) -> Any:
            arguments = {"epochs": 2, "shuffle": False}
            return builders.fit_rows(builders.small_model(), 160, *callbacks, **arguments).history

        bare = trained()
        monkeypatch.setattr(where, fails)

        with builders.one_warning(UNSEEN):
            assert trained(builders.tagger()) == bare

        assert builders.recorded_steps() == 20
