"""``fixed_batches`` and ``NaNGuard`` with a model that trains on two devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.keras.later import batch_builders, nan_guard
from tests.multi_gpu.later import builders, keras
from trainer_hooks.batches import fixed_batches

pytestmark = pytest.mark.multi_gpu


@pytest.fixture
def model() -> Any:
    norm = keras.layers.BatchNormalization(name="norm")
    template = batch_builders.a_model(keras.Sequential([norm], name="stem"))
    model = builders.parallel(template, devices=["CPU:1", "CPU:2"], ratios=None)
    model.compile(optimizer="sgd", loss="mse")
    return model


def test_row_6_no_moving_statistic_is_nan_after_an_odd_last_batch(model: Any) -> None:
    for tail in ("drop", "repeat", "pad"):
        guard = nan_guard.NaNGuard(every=1, on_found="raise")
        batches = fixed_batches(batch_builders.rows_and_targets(9), 4, multiple_of=2, tail=tail)

        model.fit(batches, verbose=0, callbacks=[guard])

        assert guard.found is None, tail
        assert not any(np.isnan(weight).any() for weight in model.template.get_weights()), tail


def test_a_layer_of_the_copies_is_named(model: Any) -> None:
    guard = nan_guard.NaNGuard(every=1)
    rows, targets = batch_builders.rows_and_targets(12)
    rows[4] = np.inf

    with pytest.warns(RuntimeWarning, match="of layer .* since batch 2 of epoch 1"):
        model.fit(rows, targets, 4, shuffle=False, verbose=0, callbacks=[guard])

    assert guard.found is not None
    assert guard.found.layer == f"{model.name}/stem/norm"
    assert (guard.found.first_batch, guard.found.last_batch) == (2, 2)
