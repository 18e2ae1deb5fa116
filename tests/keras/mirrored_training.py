"""A process of its own: trains on two logical devices, bare and tagged."""

from __future__ import annotations

import json
from typing import Any

import keras
import tensorflow as tf

from tests.keras import builders_keras as b
from tests.keras import builders_tensorflow as t


def left_behind(*callbacks: Any) -> dict[str, Any]:
    """Everything a training on both devices leaves behind; its last batch is shorter."""
    keras.utils.set_random_seed(1)
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        model = keras.Sequential([keras.layers.Input((b.FEATURES,)), keras.layers.Dense(1)])
        model.compile(optimizer="sgd", loss="mse")
    data = tf.data.Dataset.from_tensor_slices(b.rows_and_sums(56)).batch(16)
    left = b.left_by(model, *callbacks, x=data, validation_data=data, epochs=2)
    return {**left, "weights": [weight.tolist() for weight in model.get_weights()]}


if __name__ == "__main__":
    t.two_devices()
    bare, tagged = left_behind(), left_behind(b.tagger())
    print(json.dumps({"bare": bare, "tagged": tagged, "phase_ns": b.phase_ns()}))
