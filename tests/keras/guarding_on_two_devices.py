"""A process of its own: acceptance row 6 and NaNGuard on a model that trains on two devices."""

from __future__ import annotations

import json
import warnings
from typing import Any

import keras
import numpy as np

from tests.keras import builders_batches as w
from tests.keras import builders_tensorflow as t
from trainer_hooks.batches import fixed_batches
from trainer_hooks.keras.nan_guard import NaNGuard
from trainer_hooks.multi_gpu.making import multi_gpu_model


def parallel() -> Any:
    norm = keras.layers.BatchNormalization(name="norm")
    template = w.a_model(keras.Sequential([norm], name="stem"))
    model = multi_gpu_model(template, gpus=["CPU:0", "CPU:1"])
    model.compile(optimizer="sgd", loss="mse")
    return model


def row_6() -> dict[str, Any]:
    """By tail: how many weights had a NaN after it, and what was found."""
    model, nan_in, found_in = parallel(), {}, {}
    for tail in ("drop", "repeat", "pad"):
        batches = fixed_batches(w.rows_and_targets(9), 4, multiple_of=2, tail=tail)
        guard = NaNGuard(every=1, on_found="raise")
        model.fit(batches, verbose=0, callbacks=[guard])
        nan_in[tail] = sum(bool(np.isnan(one).any()) for one in model.template.get_weights())
        found_in[tail] = guard.found
    return {"NaN in": nan_in, "found in": found_in}


def a_layer_of_a_copy() -> dict[str, Any]:
    model, guard = parallel(), NaNGuard(every=1)
    rows, targets = w.rows_and_targets(12)
    rows[4] = np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(rows, targets, 4, shuffle=False, verbose=0, callbacks=[guard])
    found = guard.found
    assert found is not None
    layer = [found.layer, found.first_batch, found.last_batch]
    return {"model": model.name, "layer": layer, "said": str(found)}


if __name__ == "__main__":
    t.two_devices()
    print(json.dumps({**row_6(), **a_layer_of_a_copy()}))
