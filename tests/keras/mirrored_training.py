"""A process of its own: trains on two logical devices, bare and tagged, and compares."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["GPUMON_RUNTIME_DIR"] = tempfile.mkdtemp()
sys.path.insert(0, str(Path(__file__).parents[2]))

import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)

import keras  # noqa: E402

from tests.keras import builders_keras as b  # noqa: E402


def numbers_of(*callbacks: Any) -> dict[str, Any]:
    """Everything a training on both devices leaves behind; its last batch is shorter."""
    keras.utils.set_random_seed(1)
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        model = keras.Sequential([keras.layers.Input((b.FEATURES,)), keras.layers.Dense(1)])
        model.compile(optimizer="sgd", loss="mse")
    rows, sums = b.rows_and_sums(56)
    data = tf.data.Dataset.from_tensor_slices((rows, sums)).batch(16)
    found = list(callbacks)
    history = model.fit(data, validation_data=data, epochs=2, verbose=0, callbacks=found)
    return {
        "history": history.history,
        "iterations": int(model.optimizer.iterations.numpy()),
        "weights": [weight.tobytes() for weight in model.get_weights()],
    }


if __name__ == "__main__":
    bare, hook = numbers_of(), b.tagger(logs=False)
    assert numbers_of(hook) == bare
    told = b.phase_ns()
    assert told["input_wait"] > 0, told
    assert told["train_step"] > 0, told
    assert told["validation"] > 0, told
    print("bare and tagged are equal")
