"""Runs in its own process: a plain MirroredStrategy, and models made before, with and after it.

TensorFlow numbers the device groups of each plain strategy from 1, so that a second strategy fails,
and after it every model on several devices of the process.
"""

from __future__ import annotations

import json
from typing import Any

import tensorflow as tf


def main() -> None:
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 4
    )
    import keras

    from tests.multi_gpu import builders_middle as middle_builders
    from tests.multi_gpu import builders_parallel as builders

    x, y = middle_builders.rows()

    def evaluated(model: Any) -> Any:
        model.fit(x, y, shuffle=False, verbose=0)
        return model.evaluate(x, y, verbose=0)

    before, one = middle_builders.made(2)[1], middle_builders.made(1)[1]
    with tf.distribute.MirroredStrategy(["CPU:1", "CPU:2"]).scope():
        mirrored = middle_builders.made(1)[1]
    expected = evaluated(one)
    losses = {"mirrored": evaluated(mirrored), "before": evaluated(before)}
    losses["with it"] = evaluated(middle_builders.made(2)[1])
    keras.utils.clear_session()
    losses["cleared"] = evaluated(middle_builders.made(3)[1])
    results = {name: builders.furthest([values], [expected]) for name, values in losses.items()}
    print(json.dumps(results))


if __name__ == "__main__":
    main()
