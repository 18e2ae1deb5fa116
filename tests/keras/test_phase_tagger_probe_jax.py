"""``PhaseTagger`` claims to see steps only where a batch was seen to pass."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from tests.keras.later import b, keras

pytestmark = pytest.mark.keras_jax
MS = 1_000_000
UNSEEN = "cannot see the steps of this run"


def puts_back(function: Any, method: str = "on_train_batch_begin") -> Any:
    """A user's callback that has a train function of its own."""

    def put(own: Any) -> None:
        own._model.train_function = function

    return b.Does(put, method, async_safe=True)


def fit_before(model: Any) -> Any:
    """Train a little, so that there is a train function; which is returned."""
    b.fit(model, b.SlowBatches(0.0), steps=2, epochs=1)
    return model.train_function


def another_way() -> tuple[Any, Any]:
    """A model, and a callback that has its steps go around the tap."""
    model = b.small_model()
    return model, puts_back(fit_before(model))


class TestATrainingThatGoesAroundTheTap:
    @pytest.mark.measured
    @pytest.mark.parametrize("ordinary", [False, True], ids=["asynchronous", "synchronous"])
    def test_is_reported_once_to_be_unseen_and_its_wait_and_steps_are_other(
        self, ordinary: bool
    ) -> None:
        (model, other_way), source, edges = another_way(), b.SlowBatches(0.01), b.Edges()
        callbacks = [b.tagger(), edges, other_way, *b.others(ordinary)]

        with b.one_warning(UNSEEN):
            b.fit(model, source, *callbacks, steps=20, epochs=2)

        recorded = b.phase_ns()
        assert recorded["input_wait"] == pytest.approx(source.peeked_ns(edges), abs=10 * MS)
        assert recorded["train_step"] == 0
        assert recorded["other"] >= 0.9 * source.spent_ns(edges) * 36 / 40  # all but three batches
        assert edges.tagged_ns / edges.wall_ns == pytest.approx(1.0, abs=0.01)

    def test_has_its_steps_counted_all_the_same_and_no_ratio_of_a_wait_that_was_not_seen(
        self,
    ) -> None:
        model, other_way = another_way()

        with pytest.warns(RuntimeWarning, match=UNSEEN):
            history = b.fit(model, b.SlowBatches(0.0), b.tagger(logs=True), other_way, steps=10)

        assert b.recorded_steps() == 20
        assert set(history.history) == {"loss"}

    @pytest.mark.measured
    @pytest.mark.versions
    def test_may_be_followed_by_one_that_is_seen(self) -> None:
        model, hook = b.small_model(), b.tagger()
        bare = fit_before(model)
        with pytest.warns(RuntimeWarning, match=UNSEEN):
            b.fit(model, b.SlowBatches(0.0), hook, puts_back(bare))

        b.fit(model, b.SlowBatches(0.01), hook, steps=10, epochs=1)

        assert b.phase_ns()["input_wait"] >= 8 * 10 * MS
        assert model.train_function is bare

    @pytest.mark.measured
    def test_may_be_a_fit_of_the_models_own(self) -> None:
        class OwnFit(keras.Sequential):  # type: ignore[misc]
            def fit(self, *, callbacks: Any) -> None:
                listed = keras.callbacks.CallbackList(callbacks, model=self, verbose=0, steps=6)
                listed.on_train_begin()
                listed.on_epoch_begin(0)
                for batch in range(6):
                    listed.on_train_batch_begin(batch)
                    time.sleep(0.01)
                    listed.on_train_batch_end(batch)
                listed.on_epoch_end(0)
                listed.on_train_end()

        model = b.small_model(kind=OwnFit)
        model.make_train_function()

        with pytest.warns(RuntimeWarning, match=UNSEEN):
            model.fit(callbacks=[b.tagger()])

        assert b.phase_ns()["other"] >= 3 * 10 * MS
        assert b.recorded_steps() == 6


class TestATrainingThatIsSeen:
    @pytest.mark.measured
    def test_is_so_with_a_train_function_that_a_callback_made_again(self) -> None:
        model, source, edges = b.small_model(), b.SlowBatches(0.01), b.Edges()
        anew = puts_back(fit_before(model), "on_epoch_begin")

        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            b.fit(model, source, b.tagger(), edges, anew)

        true_ns = source.spent_ns(edges)
        assert b.phase_ns()["input_wait"] == pytest.approx(true_ns, rel=0.1, abs=30 * MS)

    def test_needs_no_callbacks_of_batches_after_its_first(self) -> None:
        from trainer_hooks.keras import brackets

        handler: list[bool] = []
        default = keras.callbacks.Callback.on_train_batch_begin

        def look(_: Any) -> None:
            begins = [one.on_train_batch_begin for one in listed.callbacks]
            idle = (default, brackets._nothing)
            handler.append(any(getattr(one, "__func__", one) not in idle for one in begins))

        model = b.small_model()
        callbacks = [b.tagger(), b.Does(look, "on_epoch_end")]
        listed = keras.callbacks.CallbackList(callbacks, add_history=True, model=model)

        b.fit_rows(model, b.BATCH, epochs=3, callbacks=listed)

        assert handler == [True, False, False]

    def test_is_not_warned_of_where_there_were_too_few_batches_to_record(self) -> None:
        model, other_way = another_way()

        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", RuntimeWarning)
            b.fit(model, b.SlowBatches(0.0), b.tagger(), other_way, steps=3, epochs=1)

        assert [str(one.message) for one in warned if one.category is RuntimeWarning] == []


def cannot_import(*_: object) -> None:
    raise ImportError("no such framework")


def cannot_place(*_: object) -> None:
    raise AttributeError("another Keras")


class TestATapThatFails:
    @pytest.mark.parametrize(
        ("where", "fails"),
        [
            ("trainer_hooks.keras.probed_tap.make_tap", cannot_import),
            ("trainer_hooks.taps.jax.JaxTap.place", cannot_place),
            ("trainer_hooks.taps.jax.JaxTap.remove", cannot_place),
        ],
    )
    def test_leaves_the_training_and_one_warning(
        self, where: str, fails: Callable[..., None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def trained(*callbacks: Any) -> Any:
            words = {"epochs": 2, "shuffle": False}
            return b.fit_rows(b.small_model(), 160, *callbacks, **words).history

        bare = trained()
        monkeypatch.setattr(where, fails)

        with b.one_warning(UNSEEN):
            assert trained(b.tagger()) == bare

        assert b.recorded_steps() == 20
