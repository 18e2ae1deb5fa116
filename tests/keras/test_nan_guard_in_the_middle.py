"""NaNGuard guards the fit it is in, whatever is done with it in the middle of that."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.keras.later import batch_builders, builders, keras, nan_guard

pytestmark = pytest.mark.usefixtures("each_backend")

SIZE, STEPS = 4, 10
ACTS_AT, ODD = 3, 7


def evaluates(model: Any, guard: Any) -> None:
    model.evaluate(*batch_builders.rows_and_targets(8), verbose=0, callbacks=[guard])


def fits(model: Any, guard: Any) -> None:
    """Longer than the fit around it has lasted by then, in batches and in epochs."""
    model.fit(
        *batch_builders.rows_and_targets(SIZE * 12), SIZE, epochs=2, verbose=0, callbacks=[guard]
    )


def fits_and_fails(model: Any, guard: Any) -> None:
    fails = builders.raising(ValueError, "on_train_batch_end")
    with pytest.raises(ValueError):  # noqa: PT011 (it says nothing)
        model.fit(
            *batch_builders.rows_and_targets(SIZE * 20), SIZE, verbose=0, callbacks=[guard, fails]
        )


ACTS: dict[str, tuple[str, Callable[[Any, Any], None]]] = {
    "an evaluation": ("the same", evaluates),
    "a fit": ("the same", fits),
    "a fit of another model that fails": ("another", fits_and_fails),
}


def trained(act: str, guard: Any, odd: int) -> Any:
    """The model, and the losses of its epochs; the numbers of one batch (from 1) are infinite."""
    which, acts = ACTS[act]
    model, other = batch_builders.a_model(), batch_builders.a_model()
    rows, targets = batch_builders.rows_and_targets(STEPS * SIZE)
    rows[(odd - 1) * SIZE] = np.inf
    left = [1]

    def do(number: int, logs: Any = None) -> None:
        if left[0] and number == ACTS_AT - 1:
            left[0] -= 1
            acts(callback.model if which == "the same" else other, guard)

    callback = keras.callbacks.LambdaCallback(on_train_batch_end=do)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        history = model.fit(
            rows, targets, SIZE, epochs=2, shuffle=False, verbose=0, callbacks=[guard, callback]
        )
    assert left == [0]
    return model, history.history["loss"]


@pytest.mark.parametrize("act", ACTS)
class TestABatchThatSpoilsTheWeights:
    def test_is_named_afterwards_and_the_run_is_stopped(self, act: str) -> None:
        guard = nan_guard.NaNGuard(every=1)
        model, losses = trained(act, guard, ODD)

        found = guard.found
        assert found is not None
        assert (found.epoch, found.first_batch, found.last_batch) == (1, ODD, ODD)
        assert found.layer.startswith(f"{model.name}/")
        assert len(losses) == 1

    def test_is_found_at_the_end_of_its_epoch(self, act: str) -> None:
        guard = nan_guard.NaNGuard(every=1_000)
        _, losses = trained(act, guard, STEPS)

        assert guard.found is not None
        assert (guard.found.epoch, guard.found.last_batch) == (1, STEPS)
        assert len(losses) == 1


def test_a_fit_inside_needs_a_guard_of_its_own() -> None:
    model, other, guard = (
        batch_builders.a_model(),
        batch_builders.a_model(),
        nan_guard.NaNGuard(every=1),
    )
    inside = builders.Does(lambda _: fits(other, guard), "on_epoch_end")

    with pytest.warns(RuntimeWarning, match="not a fit inside .* give that one its own NaNGuard"):
        model.fit(*batch_builders.rows_and_targets(8), 4, verbose=0, callbacks=[guard, inside])


def test_a_fit_after_one_that_failed_is_guarded_with_the_same() -> None:
    def fail(own: Any) -> None:
        assert own.model  # on JAX, asking for it brings the weights back to it
        raise ValueError("a callback")

    model, guard = batch_builders.a_model(), nan_guard.NaNGuard(every=1)
    fails = builders.Does(fail, "on_train_batch_end")
    with pytest.raises(ValueError, match="a callback") as kept:
        model.fit(*batch_builders.rows_and_targets(8), 4, verbose=0, callbacks=[guard, fails])
    rows, targets = batch_builders.rows_and_targets(8)
    rows[0] = np.inf
    with pytest.warns(RuntimeWarning, match="is not finite"):
        model.fit(rows, targets, 4, verbose=0, callbacks=[guard])

    assert kept.traceback  # whoever keeps it keeps the frames of the first one alive
    assert guard.found is not None
