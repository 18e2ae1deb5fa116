"""Specification of NaNGuard: which layer, which variable, which batch; on each backend."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from tests.keras.later import batch_builders, keras, nan_guard

BATCH = 4

pytestmark = pytest.mark.usefixtures("each_backend")


def fit(model: Any, guard: Any, *, odd_batch: int | None = None, steps: int = 10) -> Any:
    """Two epochs; the numbers of one batch (from 1) are infinite."""
    rows, targets = batch_builders.rows_and_targets(steps * BATCH)
    if odd_batch is not None:
        rows[(odd_batch - 1) * BATCH] = np.inf
    return model.fit(
        rows,
        targets,
        BATCH,
        epochs=2,
        verbose=0,
        shuffle=False,
        callbacks=[guard, batch_builders.Steps()],
    )


def found_by(guard: Any) -> nan_guard.NonFinite:
    found: nan_guard.NonFinite | None = guard.found
    assert found is not None
    return found


class TestTheArticlesCase:
    """One tower gets none of the last batch: the loss is fine, the moving variance NaN."""

    @pytest.mark.versions
    def test_is_found_and_named_although_the_loss_looks_fine(self) -> None:
        model, guard = batch_builders.a_model(batch_builders.Towers()), nan_guard.NaNGuard(every=1)
        with pytest.warns(RuntimeWarning, match=r"moving_mean of layer \w+/towers\w*/batch_norm"):
            history = model.fit(
                *batch_builders.rows_and_targets(9), BATCH, epochs=3, verbose=0, callbacks=[guard]
            )

        assert np.isfinite(history.history["loss"]).all()
        assert len(history.history["loss"]) == 1  # it was stopped
        found = found_by(guard)
        assert (found.epoch, found.first_batch, found.last_batch) == (1, 3, 3)
        assert (found.variable, found.others) == ("moving_mean", 1)  # and the variance
        assert found.loss_batch is None


class TestABatchThatSpoilsTheWeights:
    def test_is_named_where_each_is_checked(self) -> None:
        guard = nan_guard.NaNGuard(every=1)
        with pytest.warns(RuntimeWarning, match="of layer .* since batch 4 of epoch 1.*is stopped"):
            history = fit(batch_builders.a_model(), guard, odd_batch=4)

        assert (found_by(guard).first_batch, found_by(guard).last_batch) == (4, 4)
        assert found_by(guard).variable == "kernel"
        assert len(history.history["loss"]) == 1

    def test_else_the_batches_since_the_check_before(self) -> None:
        guard = nan_guard.NaNGuard(every=5, on_found="warn")
        with pytest.warns(RuntimeWarning, match="since one of the batches 6 to "):
            fit(batch_builders.a_model(), guard, odd_batch=8)

        assert found_by(guard).first_batch == 6
        assert 8 <= found_by(guard).last_batch <= 10
        assert found_by(guard).loss_batch in (None, 8)


class TestWhatIsDoneThen:
    def test_may_be_an_error(self) -> None:
        with pytest.raises(nan_guard.NonFiniteWeightsError, match="batch 2 of") as caught:
            fit(
                batch_builders.a_model(), nan_guard.NaNGuard(every=1, on_found="raise"), odd_batch=2
            )

        assert caught.value.found.last_batch == 2

    def test_may_be_one_warning_and_nothing_else(self) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            history = fit(
                batch_builders.a_model(), nan_guard.NaNGuard(every=1, on_found="warn"), odd_batch=2
            )

        assert len([one for one in caught if one.category is RuntimeWarning]) == 1
        assert len(history.history["loss"]) == 2

    @pytest.mark.parametrize("wrong", [{"every": 0}, {"every": 1.5}, {"on_found": "shout"}])
    def test_is_refused_where_it_is_unknown(self, wrong: Any) -> None:
        with pytest.raises(ValueError, match=f"^{next(iter(wrong))} must"):
            nan_guard.NaNGuard(**wrong)


class TestTheLayer:
    def test_is_named_with_the_models_around_it(self) -> None:
        inner = keras.Sequential([keras.layers.Dense(3, name="deep")], name="inner")
        model, guard = batch_builders.a_model(inner), nan_guard.NaNGuard()
        inner.layers[0].bias.assign([0.0, np.nan, 0.0])
        with pytest.warns(RuntimeWarning, match="was not finite before the first batch"):
            fit(model, guard)

        assert found_by(guard).layer.endswith("inner/deep")
        assert (found_by(guard).variable, found_by(guard).epoch) == ("bias", 0)
