"""A process of its own: acceptance row 6 and NaNGuard on a model that trains on two devices."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"
sys.path.insert(0, str(Path(__file__).parents[2]))

import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)

import keras  # noqa: E402
import numpy as np  # noqa: E402

from tests.keras import builders_batches as w  # noqa: E402
from trainer_hooks.batches import fixed_batches  # noqa: E402
from trainer_hooks.keras.nan_guard import NaNGuard  # noqa: E402
from trainer_hooks.multi_gpu.making import multi_gpu_model  # noqa: E402


def parallel() -> Any:
    norm = keras.layers.BatchNormalization(name="norm")
    template = w.a_model(keras.Sequential([norm], name="stem"))
    model = multi_gpu_model(template, gpus=["CPU:0", "CPU:1"])
    model.compile(optimizer="sgd", loss="mse")
    return model


def row_6() -> None:
    model = parallel()
    for tail in ("drop", "repeat", "pad"):
        batches = fixed_batches(w.rows_and_targets(9), 4, multiple_of=2, tail=tail)
        guard = NaNGuard(every=1, on_found="raise")
        model.fit(batches, verbose=0, callbacks=[guard])
        assert guard.found is None
        assert not any(np.isnan(weight).any() for weight in model.template.get_weights()), tail
        print("0 NaN:", tail)


def a_layer_of_a_copy_is_named() -> None:
    model, guard = parallel(), NaNGuard(every=1)
    rows, targets = w.rows_and_targets(12)
    rows[4] = np.inf
    with warnings.catch_warnings(record=True):
        model.fit(rows, targets, 4, shuffle=False, verbose=0, callbacks=[guard])
    assert guard.found is not None
    assert guard.found.layer == f"{model.name}/stem/norm", guard.found
    assert (guard.found.first_batch, guard.found.last_batch) == (2, 2), guard.found
    print("named:", guard.found)


if __name__ == "__main__":
    row_6()
    a_layer_of_a_copy_is_named()
